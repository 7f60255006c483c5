// Package carry is what a broker keeps of the part of its log that retention has deleted: where messages that
// are still needed were carried to, the queue entries of messages that are leased or wait for a retry below
// the first offset of their queue, and how many messages went unconsumed. It is a view of MOVE and TRIM
// records.
//
// It is a pure core: the same records give the same table, byte for byte (Encode). A message is named by the
// position at which it was written first, however often it was carried.
package carry

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// Place is where a message that was carried stands now: the MOVE record with it.
type Place struct {
	Pos  record.Pos
	Size uint32 // of the record, bytes
}

// moved is one message that was carried. 24 bytes.
type moved struct {
	from record.Pos
	Place
}

// Reader names a group and a topic that it reads.
type Reader struct {
	Group record.GroupID
	Topic record.TopicID
}

// Table is the view. At and Held may be called from anywhere; everything else belongs to the view's owner.
//
// Invariants: a carried message stands behind the position it was written at; the messages of a queue that
// are held rise by offset.
type Table struct {
	mu    sync.RWMutex // guards moved and held against readers beside the owner
	moved []moved      // by from
	held  map[queue.Key][]record.Held

	lost  map[Reader]int64
	begin record.Pos // what the newest finished step deleted below
}

// New returns an empty table.
func New() *Table { return &Table{held: map[queue.Key][]record.Held{}, lost: map[Reader]int64{}} }

func byFrom(m moved, from record.Pos) int { return cmp.Compare(m.from, from) }

// Move takes a MOVE record of size bytes at pos: who refers to from finds it there. Many come in order of
// from, which costs least.
func (t *Table) Move(from, pos record.Pos, size uint32) error {
	if from < 0 || pos <= from || size < record.HeaderSize {
		return mqerr.New(mqerr.Corrupt, "the message of position %d is carried to %d with %d bytes", from, pos, size)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m := moved{from, Place{pos, size}}
	if n := len(t.moved); n == 0 || t.moved[n-1].from < from {
		t.moved = append(t.moved, m)
		return nil
	}
	i, is := slices.BinarySearchFunc(t.moved, from, byFrom)
	if is {
		t.moved[i] = m
	} else {
		t.moved = slices.Insert(t.moved, i, m)
	}
	return nil
}

// At tells where a message is now that was written at a position, false if it was not carried.
func (t *Table) At(from record.Pos) (Place, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	i, is := slices.BinarySearchFunc(t.moved, from, byFrom)
	if !is {
		return Place{}, false
	}
	return t.moved[i].Place, true
}

// Present is where a message is now that was written at a position, carried or not.
func (t *Table) Present(from record.Pos) record.Pos {
	if p, is := t.At(from); is {
		return p.Pos
	}
	return from
}

// Len is how many messages were carried and are still known.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.moved)
}

// Hold replaces what is held of a queue. list rises by offset; none lets all go. The table keeps it.
func (t *Table) Hold(k queue.Key, list []record.Held) error {
	for i := range list {
		if list[i].Offset < 0 || i > 0 && list[i].Offset <= list[i-1].Offset {
			return mqerr.New(mqerr.Corrupt, "topic %d queue %d: offset %d is held out of order", k.Topic, k.Queue, list[i].Offset)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(list) == 0 {
		delete(t.held, k)
	} else {
		t.held[k] = list
	}
	return nil
}

// Held is the entry of a message that is held, false if it is not.
func (t *Table) Held(k queue.Key, off record.QueueOffset) (queue.Entry, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	i, is := slices.BinarySearchFunc(t.held[k], off, func(h record.Held, off record.QueueOffset) int { return cmp.Compare(h.Offset, off) })
	if !is {
		return queue.Entry{}, false
	}
	return EntryOf(&t.held[k][i]), true
}

// Holds tells whether just these entries of a queue are held.
func (t *Table) Holds(k queue.Key, list []record.Held) bool { return slices.Equal(t.held[k], list) }

// EntryOf is a held entry as its queue had it.
func EntryOf(h *record.Held) queue.Entry {
	return queue.Entry{Pos: h.Pos, Size: h.Size, Time: h.Time, TagHash: h.TagHash, GroupHash: h.GroupHash}
}

// HeldOf is a queue entry that is held.
func HeldOf(off record.QueueOffset, e *queue.Entry) record.Held {
	return record.Held{Offset: off, Pos: e.Pos, Size: e.Size, Time: e.Time, TagHash: e.TagHash, GroupHash: e.GroupHash}
}

// EachHeld calls fn for what is held, in no order.
func (t *Table) EachHeld(fn func(k queue.Key, h *record.Held)) {
	for k, list := range t.held {
		for i := range list {
			fn(k, &list[i])
		}
	}
}

// HeldLen is how many entries are held.
func (t *Table) HeldLen() int {
	n := 0
	for _, list := range t.held {
		n += len(list)
	}
	return n
}

// HeldQueues are the queues of which something is held, in order.
func (t *Table) HeldQueues() []queue.Key {
	return slices.SortedFunc(maps.Keys(t.held), queue.Key.Compare)
}

// Finish takes the end of a step that deletes what is below d: what stands there is not known any more.
func (t *Table) Finish(d record.Pos) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin = max(t.begin, d)
	t.moved = slices.DeleteFunc(t.moved, func(m moved) bool { return m.Pos < d })
	t.moved = slices.Clip(t.moved)
}

// Begin is the position below which the newest finished step has deleted, 0 before the first.
func (t *Table) Begin() record.Pos { return t.begin }

// Lose counts messages of a topic that went unconsumed by a group.
func (t *Table) Lose(r Reader, n int64) {
	if n > 0 {
		t.lost[r] += n
	}
}

// Lost is how many messages of a topic went unconsumed by a group since it exists.
func (t *Table) Lost(r Reader) int64 { return t.lost[r] }

// DropTopic forgets a deleted topic. What was carried for it goes with its part of the log.
func (t *Table) DropTopic(id record.TopicID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.held, func(k queue.Key, _ []record.Held) bool { return k.Topic == id })
	maps.DeleteFunc(t.lost, func(r Reader, _ int64) bool { return r.Topic == id })
}

// DropQueue forgets a queue that is gone.
func (t *Table) DropQueue(k queue.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.held, k)
}

// DropGroup forgets a deleted group.
func (t *Table) DropGroup(id record.GroupID) {
	maps.DeleteFunc(t.lost, func(r Reader, _ int64) bool { return r.Group == id })
}
