// Package timer is the table of messages that wait for their time: a view of the log.
//
// It is a pure function of the records that it was given: it reads no clock, no file, and has no
// goroutine. Each topic has its entries in order of (due, position); a recall finds its message by these
// two, since the recall handle and the RECALL record have both. Messages that were recalled are remembered
// past their time, so that a repeated recall is told the truth.
//
// Entries are kept as they stand in a checkpoint, 40 bytes each, in leaves of at most 10,880 bytes. A
// checkpoint refers to the leaves instead of copying them: a leaf that changes while one is saved is
// copied first. So taking one costs the writer a pointer for each leaf, not a copy of ten million timers.
package timer

import (
	"container/heap"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// AnyQueue is the queue of an entry whose queue is chosen when it is delivered.
const AnyQueue record.QueueID = -1

// Entry is one message that waits.
type Entry struct {
	Due       int64          // not before, ms since 1970
	Pos       record.Pos     // of the message's record
	Size      uint32         // of the message's record, bytes
	Queue     record.QueueID // or AnyQueue
	TagHash   uint64         // 0: no tag
	GroupHash uint64         // 0: no message group
}

// Keep is how long past its time a recalled message is remembered, ms.
const Keep = 24 * 60 * 60 * 1000

// forgetMax bounds how many recalled messages one record makes forgotten.
const forgetMax = 4

// Table holds what waits in a broker. It is not safe for concurrent use: the engine owns it.
type Table struct {
	topics   map[record.TopicID]*topic
	heads    heads // topics where something waits, by due time of the first
	waiting  int
	recalled int
}

// topic is what waits for one topic.
type topic struct {
	id       record.TopicID
	waiting  tree
	recalled tree
	grouped  int // messages with a message group that wait
	head     int // index in heads, -1 without one
}

// New returns an empty table.
func New() *Table { return &Table{topics: map[record.TopicID]*topic{}} }

// Len is the number of messages that wait.
func (t *Table) Len() int { return t.waiting }

// Recalled is the number of recalled messages that are remembered.
func (t *Table) Recalled() int { return t.recalled }

// Waiting is the number of messages of a topic that wait.
func (t *Table) Waiting(id record.TopicID) int {
	if p := t.topics[id]; p != nil {
		return p.waiting.n
	}
	return 0
}

// Grouped is the number of messages of a topic with a message group that wait.
func (t *Table) Grouped(id record.TopicID) int {
	if p := t.topics[id]; p != nil {
		return p.grouped
	}
	return 0
}

// Next tells which topic has the message that is due first, and when, ms since 1970.
func (t *Table) Next() (id record.TopicID, due int64, ok bool) {
	if len(t.heads) == 0 {
		return 0, 0, false
	}
	p := t.heads[0]
	return p.id, p.waiting.front().Due, true
}

// Due appends to dst what is due at now for a topic, in order, at most limit entries.
func (t *Table) Due(id record.TopicID, now int64, limit int, dst []Entry) []Entry {
	p := t.topics[id]
	if p == nil {
		return dst
	}
	for _, l := range p.waiting.leaves {
		for i := range l.len() {
			e := entryAt(l.at(i))
			if e.Due > now || limit <= 0 {
				return dst
			}
			limit--
			dst = append(dst, e)
		}
	}
	return dst
}

// State is what the table knows of a message.
type State uint8

// States.
const (
	Unknown  State = 0 // was never here, was delivered, or was recalled long ago
	Waiting  State = 1
	Recalled State = 2
)

// State tells what became of the message of a topic with a due time and a position.
func (t *Table) State(id record.TopicID, due int64, pos record.Pos) (State, Entry) {
	p := t.topics[id]
	if p == nil {
		return Unknown, Entry{}
	}
	if e, ok := p.waiting.get(key{due, pos}); ok {
		return Waiting, e
	}
	if e, ok := p.recalled.get(key{due, pos}); ok {
		return Recalled, e
	}
	return Unknown, Entry{}
}

// Add takes a message that was stored at now.
func (t *Table) Add(id record.TopicID, e Entry, now int64) error {
	if e.Due < 0 || e.Pos < 0 || e.Queue < AnyQueue {
		return mqerr.New(mqerr.Corrupt, "the message at %d waits for time %d and queue %d", e.Pos, e.Due, e.Queue)
	}
	p := t.topics[id]
	if p == nil {
		p = &topic{id: id, head: -1}
		t.topics[id] = p
	}
	if !p.waiting.insert(&e) {
		return mqerr.New(mqerr.Corrupt, "the message at %d waits for time %d twice", e.Pos, e.Due)
	}
	t.waiting++
	p.count(&e, 1)
	t.changed(p, now)
	return nil
}

// ApplyDeliver takes messages out that a record of now delivers. They are the first of their topic, in
// order: anything else means that the log is damaged.
func (t *Table) ApplyDeliver(d *record.Deliver, now int64) error {
	p := t.topics[d.Topic]
	for i := range d.Items {
		it := &d.Items[i]
		if p == nil || p.waiting.n == 0 {
			return mqerr.New(mqerr.Corrupt, "topic %d: the message at %d is delivered, nothing waits", d.Topic, it.Ref)
		}
		e := p.waiting.front()
		if e.Pos != it.Ref || e.Size != it.Size || e.Due > now || e.TagHash != it.TagHash || e.GroupHash != it.GroupHash ||
			e.Queue != AnyQueue && e.Queue != it.Queue {
			return mqerr.New(mqerr.Corrupt, "topic %d: the message at %d is delivered, the one at %d is next, due at %d", d.Topic, it.Ref, e.Pos, e.Due)
		}
		p.waiting.pop()
		t.waiting--
		p.count(&e, -1)
	}
	if p != nil {
		t.changed(p, now)
	}
	return nil
}

// Remove takes messages out that a record of now delivers, whatever else waits: behind a hole of the log, those
// before them may have been delivered in it, or not. What does not wait is nothing.
func (t *Table) Remove(d *record.Deliver, now int64) {
	p := t.topics[d.Topic]
	if p == nil {
		return
	}
	refs := make(map[record.Pos]bool, len(d.Items))
	for i := range d.Items {
		refs[d.Items[i].Ref] = true
	}
	for _, e := range t.Due(d.Topic, now, p.waiting.n, nil) {
		if !refs[e.Pos] {
			continue
		}
		if _, ok := p.waiting.remove(key{e.Due, e.Pos}); ok {
			t.waiting--
			p.count(&e, -1)
		}
	}
	t.changed(p, now)
}

// ApplyRecall takes messages out that a record of now recalls.
func (t *Table) ApplyRecall(r *record.Recall, now int64) error {
	p := t.topics[r.Topic]
	for _, it := range r.Items {
		var e Entry
		ok := p != nil
		if ok {
			e, ok = p.waiting.remove(key{it.DeliverAt, it.Ref})
		}
		if !ok || !p.recalled.insert(&e) {
			return mqerr.New(mqerr.Corrupt, "topic %d: the message at %d is recalled, it does not wait for time %d", r.Topic, it.Ref, it.DeliverAt)
		}
		t.waiting--
		p.count(&e, -1)
		t.recalled++
	}
	if p != nil {
		t.changed(p, now)
	}
	return nil
}

// count notes that a message came (1) or went (-1).
func (p *topic) count(e *Entry, by int) {
	if e.GroupHash != 0 {
		p.grouped += by
	}
}

// DropTopic forgets all messages of a topic.
func (t *Table) DropTopic(id record.TopicID) {
	p := t.topics[id]
	if p == nil {
		return
	}
	t.waiting -= p.waiting.n
	t.recalled -= p.recalled.n
	if p.head >= 0 {
		heap.Remove(&t.heads, p.head)
	}
	delete(t.topics, id)
}

// changed forgets old recalls of a topic that a record of now has changed, and puts its first message in
// its place.
func (t *Table) changed(p *topic, now int64) {
	for range forgetMax {
		if p.recalled.n == 0 || p.recalled.front().Due > now-Keep {
			break
		}
		p.recalled.pop()
		t.recalled--
	}
	t.place(p)
	if p.waiting.n == 0 && p.recalled.n == 0 {
		delete(t.topics, p.id)
	}
}

// place keeps heads in order.
func (t *Table) place(p *topic) {
	switch {
	case p.waiting.n == 0 && p.head >= 0:
		heap.Remove(&t.heads, p.head)
	case p.waiting.n == 0:
	case p.head >= 0:
		heap.Fix(&t.heads, p.head)
	default:
		heap.Push(&t.heads, p)
	}
}

// heads is a heap of topics by their first message.
type heads []*topic

func (h heads) Len() int { return len(h) }

func (h heads) Less(i, j int) bool {
	a, b := h[i].waiting.front(), h[j].waiting.front()
	return a.Due < b.Due || a.Due == b.Due && a.Pos < b.Pos
}

func (h heads) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].head, h[j].head = i, j
}

func (h *heads) Push(x any) {
	p := x.(*topic)
	p.head = len(*h)
	*h = append(*h, p)
}

func (h *heads) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	p.head = -1
	return p
}
