// Package lite is the broker's table of lite topics: the child queues of the topics that hold them.
//
// It is a pure core, a view of the META records about lite topics and of the messages sent to them. It
// reads no clock and has no goroutine and no lock; the same records give the same state, byte for byte
// (Encode), on every replica and in every replay. A lite topic is a name and a queue id: what makes
// 100,000 of them affordable is that nothing else of a queue costs a file, a mapping or a goroutine.
package lite

import (
	"cmp"
	"maps"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// FirstQueue is the queue id of the first lite topic of a parent. Plain queues are below.
const FirstQueue record.QueueID = 1 << 16

// lastQueue bounds the ids; they are never used twice, and 2,000,000,000 are enough for one parent.
const lastQueue record.QueueID = 1<<31 - 1

// NameMax bounds the name of a lite topic in a record, in bytes. What clients may use is shorter.
const NameMax = 255

// Is reports whether a queue is that of a lite topic.
func Is(q record.QueueID) bool { return q >= FirstQueue }

// Topic is one lite topic.
type Topic struct {
	Queue record.QueueID
	Name  string
	// ActiveMS is when it was made or last sent to, ms since 1970.
	ActiveMS int64
}

// parent is the lite topics of one topic.
type parent struct {
	next    record.QueueID // of the next new one
	byName  map[string]*Topic
	byQueue map[record.QueueID]*Topic
}

// Table is the lite topics of one broker. It is not safe for concurrent use: the engine owns it.
type Table struct {
	parents map[record.TopicID]*parent
	topics  int
}

// New returns an empty table.
func New() *Table { return &Table{parents: map[record.TopicID]*parent{}} }

// Named returns the lite topic of that name, nil if there is none.
func (t *Table) Named(p record.TopicID, name string) *Topic {
	if f := t.parents[p]; f != nil {
		return f.byName[name]
	}
	return nil
}

// At returns the lite topic with that queue, nil if there is none.
func (t *Table) At(p record.TopicID, q record.QueueID) *Topic {
	if f := t.parents[p]; f != nil {
		return f.byQueue[q]
	}
	return nil
}

// Count is the number of lite topics of a parent.
func (t *Table) Count(p record.TopicID) int {
	if f := t.parents[p]; f != nil {
		return len(f.byName)
	}
	return 0
}

// Len is the number of lite topics of all parents.
func (t *Table) Len() int { return t.topics }

// Next is the queue id that the next new lite topic of a parent gets, false if all were used.
func (t *Table) Next(p record.TopicID) (record.QueueID, bool) {
	next := FirstQueue
	if f := t.parents[p]; f != nil {
		next = f.next
	}
	return next, next < lastQueue
}

// Each calls fn for the lite topics of a parent, in any order. fn must not change the table.
func (t *Table) Each(p record.TopicID, fn func(*Topic)) {
	if f := t.parents[p]; f != nil {
		for _, c := range f.byQueue {
			fn(c)
		}
	}
}

// Meta is the record that makes (or deletes) a lite topic of a parent.
func Meta(p record.TopicID, q record.QueueID, name string, deleted bool) record.Meta {
	return record.Meta{Kind: record.MetaLite, Version: uint64(q), ID: uint32(p), Name: []byte(name), Deleted: deleted}
}

// Apply takes a META record about a lite topic, written at ms since 1970. A new one has the parent's next
// queue id; one that is deleted must be there.
func (t *Table) Apply(m *record.Meta, ms int64) error {
	id, q, name := record.TopicID(m.ID), record.QueueID(m.Version), string(m.Name)
	if m.Version > uint64(lastQueue) || len(m.Value) > 0 {
		return corrupt("lite topic %q of topic %d: queue %d, %d bytes of definition", name, id, m.Version, len(m.Value))
	}
	if m.Deleted {
		return t.remove(id, q, name)
	}
	next, ok := t.Next(id)
	switch {
	case !ok || q != next:
		return corrupt("lite topic %q of topic %d gets queue %d instead of %d", name, id, q, next)
	case name == "" || len(name) > NameMax:
		return corrupt("lite topic of topic %d with a name of %d bytes", id, len(name))
	case t.Named(id, name) != nil:
		return corrupt("lite topic %q of topic %d is made twice", name, id)
	}
	f := t.parents[id]
	if f == nil {
		f = newParent()
		t.parents[id] = f
	}
	f.next = q + 1
	t.add(f, &Topic{Queue: q, Name: name, ActiveMS: ms})
	return nil
}

func newParent() *parent {
	return &parent{next: FirstQueue, byName: map[string]*Topic{}, byQueue: map[record.QueueID]*Topic{}}
}

func (t *Table) add(f *parent, c *Topic) {
	f.byName[c.Name], f.byQueue[c.Queue] = c, c
	t.topics++
}

func (t *Table) remove(id record.TopicID, q record.QueueID, name string) error {
	c := t.At(id, q)
	if c == nil || c.Name != name {
		return corrupt("lite topic %q of topic %d with queue %d is deleted, but does not exist", name, id, q)
	}
	f := t.parents[id]
	delete(f.byName, name)
	delete(f.byQueue, q)
	t.topics--
	return nil
}

// Sent takes a message stored in the queue of a lite topic at ms since 1970.
func (t *Table) Sent(p record.TopicID, q record.QueueID, ms int64) error {
	c := t.At(p, q)
	if c == nil {
		return corrupt("a message of topic %d in queue %d, which is of no lite topic", p, q)
	}
	c.ActiveMS = max(c.ActiveMS, ms)
	return nil
}

// Lost says that queue ids below next may have been given by records that are lost: they are not given again.
func (t *Table) Lost(p record.TopicID, next record.QueueID) {
	f := t.parents[p]
	if f == nil {
		f = newParent()
		t.parents[p] = f
	}
	f.next = max(f.next, next)
}

// Drop forgets a parent that was deleted.
func (t *Table) Drop(p record.TopicID) {
	t.topics -= t.Count(p)
	delete(t.parents, p)
}

// sorted returns the parents by id.
func (t *Table) sorted() []record.TopicID { return slices.Sorted(maps.Keys(t.parents)) }

// children returns the lite topics of a parent by queue.
func (f *parent) children() []*Topic {
	all := make([]*Topic, 0, len(f.byQueue))
	for _, c := range f.byQueue {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Topic) int { return cmp.Compare(a.Queue, b.Queue) })
	return all
}

func corrupt(format string, args ...any) error { return mqerr.New(mqerr.Corrupt, format, args...) }
