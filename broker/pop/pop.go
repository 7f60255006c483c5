// Package pop is the in-flight table: which messages each group holds under a lease, which wait to
// come again, and which are done.
//
// It is a pure core. Its input is records of the log and times that the caller gives; it reads no
// clock, has no goroutine and no lock. The same records give the same state, byte for byte (Encode),
// on every replica and in every replay. What depends on the time of day (a lease that has ended is
// ready to go out again) is derived by Advance and is no part of that state.
//
// For one group and queue an offset at or above next was never handed out; below next it is done, or
// un-done with its latest lease (position of the lease record, attempt, deadline). The floor, below
// which everything is done, is the lowest un-done offset. Un-done messages lie in pages of 64
// offsets, in chunks of 8, in slabs without pointers: about 30 bytes a message, and nothing for what
// is done (page.go, tree.go). Deadlines hang on a timing wheel (wheel.go) or, for session leases, on
// their client (client.go) by links within the messages themselves, so an ack leaves nothing behind.
package pop

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Key names a queue as one group sees it.
type Key struct {
	Group record.GroupID
	Topic record.TopicID
	Queue record.QueueID
}

// Options configures a Table. The zero value of a field means its default.
type Options struct {
	// Dead says whether a message that was handed out for the attempt-th time is dead when that lease
	// ends. It is asked then, not for messages that were given back or suspended (Change.Keep), and must
	// not call the table. Default: never.
	Dead func(k Key, attempt uint16) bool
	// Ordered tells whether a group is handed messages in order: of each message group, one delivery after
	// the other. It is asked when a queue is named for the first time; SetOrdered tells of changes.
	// Default: none is.
	Ordered func(g record.GroupID) bool
	// Groups reads the message-group hashes of messages of a queue, from off on, at least one; 0 for a
	// message without a message group. It is asked for ordered groups only. Default: no message has one.
	Groups func(k Key, off record.QueueOffset, dst []uint64) (int, error)
}

// State is what a receipt handle is now.
type State uint8

// States of a handle.
const (
	Stale   State = iota // names nothing that was handed out, or a lease that is not the message's latest
	Current              // names the latest lease of an un-done message, ended or not
	Done                 // the message is done
)

// Stats is the state of one queue for one group as of the last Advance, exact. Messages below Next that
// are not done are in one of InFlight, Ready and Waiting.
type Stats struct {
	Floor      record.QueueOffset // everything below is done
	Next       record.QueueOffset // nothing at or above was handed out
	InFlight   int64              // leased
	Ready      int64              // not leased and may go out: came back, or passed over before
	Waiting    int64              // not leased, not to go out yet: suspended, dying, or behind an older one of its message group
	FirstReady record.QueueOffset // lowest offset of Ready, -1 if there is none
}

// Table is the in-flight table of one broker. It is not safe for concurrent use.
//
// Invariants: every un-done message is below next of its queue, and is in exactly one of: a slot of
// the wheel, the list of what is overdue, the list of the client that holds it, the ready set, the
// lists of what is dying.
type Table struct {
	o Options

	chunks   slab[chunk]
	pages    slab[page]
	branches slab[branch]
	locks    slab[lock]
	annexes  slab[annex]
	hashes   hashes
	plan     plan // memory of the last one
	lease    leaseCheck

	byKey  map[Key]*queue
	groups readers
	recent *queue   // found last, nil if none: most records name a queue more than once
	queues []*queue // by slot; nil for a free one
	slots  []uint32 // free slots
	undone int64    // messages, all queues
	uses   map[record.GroupID]*use
	freed  []Holder // watched ones that have less leased since

	wheel   wheel
	clients clients
	hole    *Hole // records stand behind one, else nil
}

// New returns an empty table.
func New(o Options) *Table {
	t := &Table{o: o, byKey: map[Key]*queue{}, groups: readers{}, uses: map[record.GroupID]*use{}}
	t.pages.alloc() // index 0 means "none"
	t.branches.alloc()
	t.locks.alloc()
	t.annexes.alloc()
	t.initWheel()
	t.clients.init()
	return t
}

// Start makes a queue known before its first record, so that Plan finds messages from at on. It does
// nothing for a queue that is known. No record says it: the first lease or skip of the queue does,
// by the lowest offset that it names. A Skip of nothing (From = To = at) makes the start durable.
func (t *Table) Start(k Key, at record.QueueOffset) {
	if !t.Started(k) {
		t.newQueue(k).next = int64(at)
	}
}

// Started reports whether the queue is known, by Start or by a record.
func (t *Table) Started(k Key) bool { return t.queueOf(k) != nil }

// Len is the number of messages in all queues that were handed out and are not done.
func (t *Table) Len() int64 { return t.undone }

// Check tells what the handle of a delivery is now.
func (t *Table) Check(k Key, off record.QueueOffset, lease record.Pos) State {
	q := t.queueOf(k)
	if q == nil || off < 0 || int64(off) >= q.next {
		return Stale
	}
	at, ok := t.find(q, int64(off))
	switch {
	case !ok && t.passedOver(q, int64(off)):
		return Stale
	case !ok:
		return Done
	case at.node.lease() == lease:
		return Current
	}
	return Stale
}

// Stats returns the state of a queue, zero with FirstReady -1 for one that is not known.
func (t *Table) Stats(k Key) Stats {
	q := t.queueOf(k)
	if q == nil {
		return Stats{FirstReady: -1}
	}
	s := Stats{
		Floor:      record.QueueOffset(t.floor(q)),
		Next:       record.QueueOffset(q.next),
		InFlight:   q.undone - q.ready - q.waiting,
		Ready:      t.readyIn(q),
		Waiting:    q.waiting,
		FirstReady: -1,
	}
	if p := t.readyPage(q, 0); p != nil && !q.ordered {
		s.FirstReady = record.QueueOffset(p.first() + int64(lowest(p.ready)))
	}
	if q.locks == nil {
		return s
	}
	s.Waiting += q.ready + q.locks.passed - s.Ready
	if free := q.locks.free; len(free) > 0 && (s.FirstReady < 0 || free[0].off < int64(s.FirstReady)) {
		s.FirstReady = record.QueueOffset(free[0].off)
	}
	return s
}

// readyIn is how many messages of a queue may go out.
func (t *Table) readyIn(q *queue) int64 {
	switch {
	case q.locks == nil:
		return q.ready
	case q.ordered:
		return q.locks.ready
	}
	return q.ready + q.locks.ready
}

// DropTopic forgets all queues of a deleted topic.
func (t *Table) DropTopic(id record.TopicID) {
	t.drop(func(k Key) bool { return k.Topic == id })
}

// DropGroup forgets all queues of a deleted group.
func (t *Table) DropGroup(id record.GroupID) {
	t.drop(func(k Key) bool { return k.Group == id })
	delete(t.uses, id)
}

// DropQueue forgets one queue of a group. It costs what the queue holds, however many others there are.
func (t *Table) DropQueue(k Key) {
	if q := t.byKey[k]; q != nil {
		t.dropQueue(q)
	}
}

func (t *Table) drop(which func(Key) bool) {
	for k, q := range t.byKey {
		if which(k) {
			t.dropQueue(q)
		}
	}
}

func (t *Table) dropQueue(q *queue) {
	t.recent, t.hashes.n = nil, 0
	t.eachPage(q, func(p *page) {
		for set := p.live; set != 0; set &= set - 1 {
			t.detach(t.spotIn(q, p, lowest(set)))
		}
	})
	t.freeTree(q)
	t.undone -= q.undone
	delete(t.byKey, q.key)
	t.groups.remove(q.key)
	t.queues[q.slot] = nil
	t.slots = append(t.slots, q.slot)
}

// queueOf returns a queue that Start or a record has named, nil if none has.
func (t *Table) queueOf(k Key) *queue {
	if t.recent != nil && t.recent.key == k {
		return t.recent
	}
	q := t.byKey[k]
	if q != nil {
		t.recent = q
	}
	return q
}

func (t *Table) newQueue(k Key) *queue {
	q := &queue{key: k, use: t.useOf(k.Group)}
	if t.orderedGroup(k.Group) {
		t.setOrdered(q)
	}
	if n := len(t.slots); n > 0 {
		q.slot = t.slots[n-1]
		t.slots = t.slots[:n-1]
		t.queues[q.slot] = q
	} else {
		q.slot = uint32(len(t.queues))
		t.queues = append(t.queues, q)
	}
	t.byKey[k] = q
	t.groups.add(k)
	return q
}

// recorded returns the queue if a record has named it, nil otherwise.
func (t *Table) recorded(k Key) *queue {
	if q := t.queueOf(k); q != nil && q.recorded {
		return q
	}
	return nil
}

// record returns the queue for a record that names it; its first one starts the queue at off.
func (t *Table) record(k Key, off int64) *queue {
	q := t.queueOf(k)
	if q == nil {
		q = t.newQueue(k)
	}
	if !q.recorded {
		q.recorded = true
		q.next = off
	}
	return q
}

func corrupt(format string, args ...any) error {
	return mqerr.New(mqerr.Corrupt, format, args...)
}
