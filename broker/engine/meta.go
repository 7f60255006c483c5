package engine

import (
	"context"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/topic"
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

// Define logs what is new in defs and returns when it is durable. What the log knows already, in this
// version or a newer one, makes no record.
func (e *Engine) Define(ctx context.Context, defs *Definitions) error {
	var failed error
	err := e.call(ctx, func(w *writer) { failed = w.define(defs) })
	if err != nil {
		return err
	}
	return failed
}

func (w *writer) define(defs *Definitions) error {
	for i := range defs.Topics {
		d := &defs.Topics[i]
		if old := w.views.topics.Get(d.ID); old != nil && old.Version >= d.Version {
			continue
		}
		m, err := d.Meta()
		if err != nil {
			return err
		}
		w.meta(&m)
		w.topics.define(w.views.topics.Get(d.ID))
	}
	for i := range defs.Groups {
		d := &defs.Groups[i]
		if old := w.views.groups.Get(d.ID); old != nil && old.Version >= d.Version {
			continue
		}
		m, err := d.Meta()
		if err != nil {
			return err
		}
		w.meta(&m)
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
		}
	}
	return nil
}

// meta logs one definition and applies it. Acks of this turn come first: they must not follow the
// deletion of what they are about.
func (w *writer) meta(m *record.Meta) {
	w.flushAcks()
	pos := w.put(record.TypeMeta, record.MetaSize(m), func(body []byte) { record.PutMeta(body, m) })
	if err := w.views.applyMeta(pos, m); err != nil {
		w.broken(err)
	}
}

// gone lists the topics of the log that defs says are deleted.
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
		if !named[d.ID] {
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
		if !named[d.ID] {
			ids = append(ids, d.ID)
		}
	}
	return ids
}
