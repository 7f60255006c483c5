package engine

import (
	"github.com/perigee-mq/perigee/store/checkpoint"
)

// Names of the sections of a checkpoint, in this order.
const (
	sectionBase     = "base"
	sectionTopics   = "topics"
	sectionGroups   = "groups"
	sectionLite     = "lite"
	sectionDups     = "duplicates"
	sectionPop      = "pop"
	sectionTxns     = "transactions"
	sectionTimers   = "timers"
	sectionPulled   = "offsets"
	sectionRedriven = "redriven"
	sectionQueues   = "queues"
)

// encode is the state of all views, sorted: equal views give equal bytes.
func (v *views) encode() ([]checkpoint.Section, error) {
	queues, err := v.queues.Encode(nil)
	if err != nil {
		return nil, err
	}
	return v.sections(queues)
}

// base is the state of all views for a SNAPSHOT: of the queues it says what offsets they have, since their
// entries can be found in the log.
func (v *views) base() ([]checkpoint.Section, error) { return v.sections(v.queues.EncodeBounds(nil)) }

func (v *views) sections(queues []byte) ([]checkpoint.Section, error) {
	topics, err := v.topics.Encode(nil)
	if err != nil {
		return nil, err
	}
	groups, err := v.groups.Encode(nil)
	if err != nil {
		return nil, err
	}
	return []checkpoint.Section{
		{Name: sectionBase, Data: encodeBase(v.epoch, v.stamp)},
		{Name: sectionEpochs, Data: v.epochs.encode()},
		{Name: sectionTopics, Data: topics},
		{Name: sectionGroups, Data: groups},
		{Name: sectionLite, Data: v.lite.Encode(nil)},
		{Name: sectionDups, Data: v.dups.Encode(nil)},
		{Name: sectionPop, Data: v.pop.Encode(nil)},
		{Name: sectionTxns, Data: v.txns.Encode(nil)},
		{Name: sectionTimers, More: v.timers.Share()},
		{Name: sectionPulled, Data: v.pulled.Encode(nil)},
		{Name: sectionRedriven, Data: v.redriven.Encode(nil)},
		{Name: sectionCarried, Data: v.carried.Encode(nil)},
		{Name: sectionQueues, Data: queues},
		{Name: sectionIndex, Data: v.index.encode()},
	}, nil
}

// decode replaces the views with those of a checkpoint.
func (v *views) decode(c *checkpoint.Checkpoint) error {
	queues, err := c.Section(sectionQueues)
	if err != nil {
		return err
	}
	if err := v.queues.Decode(queues); err != nil {
		return err
	}
	return v.load(c)
}

// load replaces the views with those of a checkpoint or a SNAPSHOT, but for the queues, which come before.
func (v *views) load(c *checkpoint.Checkpoint) error {
	base, err := c.Section(sectionBase)
	if err != nil {
		return err
	}
	if v.epoch, v.stamp, err = decodeBase(base); err != nil {
		return err
	}
	for _, s := range []struct {
		name string
		load func([]byte) error
	}{
		{sectionEpochs, v.epochs.decode},
		{sectionTopics, v.decodeTopics},
		{sectionGroups, v.groups.Decode},
		{sectionLite, v.lite.Decode},
		{sectionDups, v.dups.Decode},
		{sectionCarried, v.carried.Decode},
		{sectionPop, v.pop.Decode},
		{sectionTxns, v.txns.Decode},
		{sectionTimers, v.timers.Decode},
		{sectionPulled, v.pulled.Decode},
		{sectionRedriven, v.redriven.Decode},
		{sectionIndex, v.index.Decode},
	} {
		data, err := c.Section(s.name)
		if err != nil {
			return err
		}
		if err := s.load(data); err != nil {
			return err
		}
	}
	v.fillDuplicates()
	return nil
}
