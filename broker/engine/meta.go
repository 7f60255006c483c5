package engine

import (
	"context"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Definitions are changes of topics and groups as the controller sends them.
type Definitions struct {
	Topics        []topic.Definition
	Groups        []group.Definition
	DeletedTopics []record.TopicID
	DeletedGroups []record.GroupID
	// Full says that this is everything: what is not in it does not exist.
	Full bool
	// Version is the controller's version of the whole.
	Version uint64
}

// Define logs what is new in defs and returns when all of it is durable. What the log knows already, in
// this version or a newer one, makes no record. Definitions that cannot be are refused as a whole, before
// anything is logged.
func (e *Engine) Define(ctx context.Context, defs *Definitions) error {
	var failed error
	if err := e.ask(ctx, &callOp{do: func(w *writer) { failed = w.define(defs) }, all: true}); err != nil {
		return err // the writer may still be at it
	}
	return failed
}

func (w *writer) define(defs *Definitions) error {
	records, err := w.news(defs)
	if err != nil {
		return err
	}
	for i := range records {
		w.meta(&records[i])
		if id := record.TopicID(records[i].ID); records[i].Kind == record.MetaTopic && w.bug == nil {
			w.topics.define(w.views.topics.Get(id))
		}
		if records[i].Kind == record.MetaGroup {
			w.changed(record.GroupID(records[i].ID))
		}
	}
	for _, id := range w.gone(defs) {
		w.meta(&record.Meta{Kind: record.MetaTopic, Version: defs.Version, ID: uint32(id), Deleted: true})
		w.topics.drop(id)
	}
	for _, id := range w.goneGroups(defs) {
		w.meta(&record.Meta{Kind: record.MetaGroup, Version: defs.Version, ID: uint32(id), Deleted: true})
		for _, t := range w.topics.byID {
			if u := t.subs[id]; u != nil {
				w.ready.disarm(u)
				delete(t.subs, id)
			}
			w.lite.dropGroup(w, t, id)
		}
	}
	return nil
}

// news are the records of the definitions that the log does not know, topics first.
func (w *writer) news(defs *Definitions) ([]record.Meta, error) {
	var records []record.Meta
	size := metaBytes * (len(defs.DeletedTopics) + len(defs.DeletedGroups))
	add := func(m record.Meta, err error) error {
		if n := record.MetaSize(&m); err == nil && n > w.e.log.MaxBody() {
			err = mqerr.New(mqerr.Invalid, "the definition of %q has %d bytes, more than a record of the log may have", m.Name, n)
		}
		records = append(records, m)
		size += metaBytes + record.MetaSize(&m)
		return err
	}
	for i := range defs.Topics {
		d := &defs.Topics[i]
		if old := w.views.topics.Get(d.ID); old != nil && old.Version >= d.Version {
			continue
		}
		if d.Queues < 1 {
			return nil, mqerr.New(mqerr.Invalid, "topic %d (%q) is defined with %d queues", d.ID, d.Name, d.Queues)
		}
		if err := add(d.Meta()); err != nil {
			return nil, err
		}
	}
	for i := range defs.Groups {
		d := &defs.Groups[i]
		if old := w.views.groups.Get(d.ID); old != nil && old.Version >= d.Version {
			continue
		}
		if d.MaxAttempts < 1 {
			return nil, mqerr.New(mqerr.Invalid, "group %d (%q) is defined with %d attempts", d.ID, d.Name, d.MaxAttempts)
		}
		if err := add(d.Meta()); err != nil {
			return nil, err
		}
	}
	if !w.hasSpace(space.Broker, size) {
		return nil, w.noSpace(space.Broker)
	}
	return records, nil
}

// metaBytes is the most that a META record takes beside its value.
const metaBytes = 512

// meta logs one definition and applies it. Acks, verdicts and positions of this turn come first: they must not
// follow the deletion of what they are about.
func (w *writer) meta(m *record.Meta) {
	w.flushAcks()
	w.flushEndings()
	w.flushOffsets()
	pos := w.put(record.TypeMeta, record.MetaSize(m), func(body []byte) { record.PutMeta(body, m) })
	if err := w.views.applyMeta(pos, w.stamp, m); err != nil {
		w.broken(err)
	}
}

// gone lists the topics of the log that defs says are deleted. A whole set that is older than a
// definition says nothing about it.
func (w *writer) gone(defs *Definitions) []record.TopicID {
	var ids []record.TopicID
	for _, id := range defs.DeletedTopics {
		if w.views.topics.Get(id) != nil {
			ids = append(ids, id)
		}
	}
	if !defs.Full {
		return ids
	}
	named := map[record.TopicID]bool{}
	for i := range defs.Topics {
		named[defs.Topics[i].ID] = true
	}
	for _, d := range w.views.topics.All() {
		if !named[d.ID] && d.Version <= defs.Version {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// goneGroups lists the groups of the log that defs says are deleted.
func (w *writer) goneGroups(defs *Definitions) []record.GroupID {
	var ids []record.GroupID
	for _, id := range defs.DeletedGroups {
		if w.views.groups.Get(id) != nil {
			ids = append(ids, id)
		}
	}
	if !defs.Full {
		return ids
	}
	named := map[record.GroupID]bool{}
	for i := range defs.Groups {
		named[defs.Groups[i].ID] = true
	}
	for _, d := range w.views.groups.All() {
		if !named[d.ID] && d.Version <= defs.Version {
			ids = append(ids, d.ID)
		}
	}
	return ids
}
