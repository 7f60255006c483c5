// Package txn is the transaction table of a broker: the half messages that nobody has ended, and the
// verdicts of those that were ended lately. It is a view of the log: a pure function of its records.
//
// A half message is named by its message id, which clients take for the id of the transaction. One id
// may have several half messages (the same id sent again with another body); a verdict is for all of them.
//
// Invariants: an open half message has no remembered verdict by its position; positions of open half
// messages rise in the order in which they were added; verdicts are remembered in the order in which they
// were given. An open half message takes about 160 bytes of memory, a verdict about 110.
package txn

import (
	"encoding/binary"

	"github.com/dchest/siphash"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// ID stands for a message id: 128 bits of its hash, so that equal ones are taken for the same.
type ID [16]byte

// IDOf is the ID of a message id.
func IDOf(messageID []byte) ID {
	const key0, key1 = 0x706572696765650a, 0x7472616e73616374
	lo, hi := siphash.Hash128(key0, key1, messageID)
	var id ID
	binary.LittleEndian.PutUint64(id[:], lo)
	binary.LittleEndian.PutUint64(id[8:], hi)
	return id
}

// Half is a half message without a verdict.
type Half struct {
	Pos       record.Pos // of its record
	Size      uint32     // of its record, bytes
	Topic     record.TopicID
	Queue     record.QueueID // -1: any
	TagHash   uint64
	GroupHash uint64
	Digest    uint64 // first half of the body's digest
	ID        ID
	Stored    int64  // ms since 1970
	Checks    uint32 // sent so far
	Next      int64  // the next check is not before, ms since 1970
}

// Options bound what is remembered. The zero value of a field means its default.
type Options struct {
	// VerdictsMax is how many verdicts are remembered, VerdictsFor how long, in ms of the log's time.
	// Defaults 1,000,000 and 24 h.
	VerdictsMax int
	VerdictsFor int64
}

// Table is the transaction table. It is not safe for concurrent use: the engine owns it.
type Table struct {
	o      Options
	slots  []half
	free   []int32
	first  int32 // oldest open half message, none if there is none
	last   int32
	byPos  map[record.Pos]int32
	byID   map[uint64]int32 // by key; the newest, others follow by half.same
	topics map[record.TopicID]*due
	ended  verdicts
}

// none is no slot.
const none int32 = -1

// half is a Half in a slot.
type half struct {
	Half
	at            int32 // index in the topic's heap
	same          int32 // the next older one of the same key
	before, after int32 // neighbours by position
}

// New returns an empty table.
func New(o Options) *Table {
	if o.VerdictsMax == 0 {
		o.VerdictsMax = 1_000_000
	}
	if o.VerdictsFor == 0 {
		o.VerdictsFor = 24 * 3600 * 1000
	}
	t := &Table{o: o}
	t.reset()
	return t
}

func (t *Table) reset() {
	t.slots, t.free, t.first, t.last = nil, nil, none, none
	t.byPos, t.byID, t.topics = map[record.Pos]int32{}, map[uint64]int32{}, map[record.TopicID]*due{}
	t.ended = newVerdicts()
}

// keyOf folds topic and id; ids that share a key are told apart by themselves.
func keyOf(topic record.TopicID, id ID) uint64 {
	return binary.LittleEndian.Uint64(id[:]) ^ uint64(topic)*0x9e3779b97f4a7c15
}

// Len is the number of open half messages.
func (t *Table) Len() int { return len(t.byPos) }

// Grouped is the number of open half messages of a topic with a message group.
func (t *Table) Grouped(id record.TopicID) int {
	if d := t.topics[id]; d != nil {
		return d.grouped
	}
	return 0
}

// Verdicts is the number of verdicts that are remembered.
func (t *Table) Verdicts() int { return t.ended.n }

// Add takes a half message that was stored behind all that the table has.
func (t *Table) Add(h Half) error {
	if t.last != none && h.Pos <= t.slots[t.last].Pos {
		return mqerr.New(mqerr.Corrupt, "half message at %d comes after the one at %d", h.Pos, t.slots[t.last].Pos)
	}
	var s int32
	if n := len(t.free); n > 0 {
		s, t.free = t.free[n-1], t.free[:n-1]
	} else {
		s = int32(len(t.slots))
		t.slots = append(t.slots, half{})
	}
	key := keyOf(h.Topic, h.ID)
	same, ok := t.byID[key]
	if !ok {
		same = none
	}
	t.slots[s] = half{Half: h, same: same, before: t.last, after: none}
	if t.last != none {
		t.slots[t.last].after = s
	} else {
		t.first = s
	}
	t.last, t.byID[key], t.byPos[h.Pos] = s, s, s
	d := t.topics[h.Topic]
	if d == nil {
		d = new(due)
		t.topics[h.Topic] = d
	}
	t.push(d, s)
	if h.GroupHash != 0 {
		d.grouped++
	}
	return nil
}

// Get returns an open half message by its position.
func (t *Table) Get(pos record.Pos) (Half, bool) {
	s, ok := t.byPos[pos]
	if !ok {
		return Half{}, false
	}
	return t.slots[s].Half, true
}

// Open appends the open half messages of an id to dst, oldest first.
func (t *Table) Open(dst []Half, topic record.TopicID, id ID) []Half {
	s, ok := t.byID[keyOf(topic, id)]
	if !ok {
		return dst
	}
	from := len(dst)
	for ; s != none; s = t.slots[s].same {
		if h := &t.slots[s]; h.Topic == topic && h.ID == id {
			dst = append(dst, h.Half)
		}
	}
	for i, j := from, len(dst)-1; i < j; i, j = i+1, j-1 {
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst
}

// Check takes a TXN_CHECK record.
func (t *Table) Check(c *record.TxnCheck) error {
	for _, it := range c.Items {
		s, ok := t.byPos[it.Half]
		if !ok {
			return mqerr.New(mqerr.Corrupt, "a check of the half message at %d, which is not there", it.Half)
		}
		h := &t.slots[s]
		h.Checks, h.Next = it.Checks, it.Next
		t.moved(t.topics[h.Topic], h.at)
	}
	return nil
}

// End takes a TXN_END record of the time at, ms since 1970: its half messages are no longer open and
// their verdicts are remembered.
func (t *Table) End(e *record.TxnEnd, at int64) error {
	for i := range e.Committed {
		if err := t.end(e.Committed[i].Half, e.Source, true, at); err != nil {
			return err
		}
	}
	for _, ref := range e.RolledBack {
		if err := t.end(ref, e.Source, false, at); err != nil {
			return err
		}
	}
	t.ended.forget(t.o.VerdictsMax, at-t.o.VerdictsFor)
	return nil
}

func (t *Table) end(pos record.Pos, source record.TxnSource, commit bool, at int64) error {
	s, ok := t.byPos[pos]
	if !ok {
		return mqerr.New(mqerr.Corrupt, "a verdict of the half message at %d, which is not there", pos)
	}
	h := &t.slots[s].Half
	t.ended.add(Verdict{Topic: h.Topic, ID: h.ID, Pos: pos, Digest: h.Digest, Stored: h.Stored, Ended: at, Source: source, Commit: commit})
	t.remove(s)
	return nil
}

// remove takes a slot out of every index.
func (t *Table) remove(s int32) {
	h := &t.slots[s]
	if h.GroupHash != 0 {
		t.topics[h.Topic].grouped--
	}
	t.pull(h.Topic, h.at)
	delete(t.byPos, h.Pos)
	if h.before != none {
		t.slots[h.before].after = h.after
	} else {
		t.first = h.after
	}
	if h.after != none {
		t.slots[h.after].before = h.before
	} else {
		t.last = h.before
	}
	key := keyOf(h.Topic, h.ID)
	switch head := t.byID[key]; {
	case head != s:
		for t.slots[head].same != s {
			head = t.slots[head].same
		}
		t.slots[head].same = h.same
	case h.same == none:
		delete(t.byID, key)
	default:
		t.byID[key] = h.same
	}
	*h = half{}
	t.free = append(t.free, s)
}

// DropTopic forgets the half messages of a deleted topic.
func (t *Table) DropTopic(id record.TopicID) {
	d := t.topics[id]
	if d == nil {
		return
	}
	for _, s := range append([]int32(nil), d.heap...) {
		t.remove(s)
	}
}

// Verdict returns the newest verdict of an id that is remembered.
func (t *Table) Verdict(topic record.TopicID, id ID) (Verdict, bool) { return t.ended.get(topic, id) }

// EachBelow calls fn for the open half messages whose records are below a position, oldest first.
func (t *Table) EachBelow(pos record.Pos, fn func(h *Half)) {
	for s := t.first; s != none && t.slots[s].Pos < pos; s = t.slots[s].after {
		fn(&t.slots[s].Half)
	}
}
