package pop

import (
	"bytes"
	"encoding/binary"

	"github.com/perigee-mq/perigee/store/record"
)

// triesMax is how many of the last leases with an attempt id are remembered for one client.
const triesMax = 64

// Leased is one message of a lease.
type Leased struct {
	Queue   record.QueueID
	Offset  record.QueueOffset
	Lease   record.Pos
	Attempt uint16
}

// try is a lease with an attempt id: what to answer when the same receive comes again.
type try struct {
	topic record.TopicID
	group record.GroupID
	lease record.Pos
	no    uint64 // client.tried when it was made
	id    int    // length of the attempt id
	data  []byte // the attempt id, then runs of offsets: uvarint queue, first offset, count
	told  map[place]int
}

// place is where a message is, within its topic.
type place struct {
	queue  record.QueueID
	offset record.QueueOffset
}

// Again returns what is left of the lease that a client's receive with this attempt id made: messages
// that are not done and whose lease has neither ended nor was given back or suspended. Nothing if no
// such lease is remembered; then the receive is a new one. Told and Untell know of what was returned.
func (t *Table) Again(now int64, num record.ClientNum, topic record.TopicID, group record.GroupID, attemptID []byte) []Leased {
	c := t.clients.byNum[num]
	if c == nil || len(attemptID) == 0 {
		return nil
	}
	for i := len(c.tries) - 1; i >= 0; i-- {
		y := &c.tries[i]
		if y.topic != topic || y.group != group || !bytes.Equal(y.data[:y.id], attemptID) {
			continue
		}
		var left []Leased
		t.eachLeft(y, func(s spot) bool {
			if s.page.ready>>s.bit&1 == 0 && !s.node.is(kept|waits) && t.deadline(s.node) > now {
				left = append(left, Leased{s.queue.key.Queue, record.QueueOffset(s.offset()), y.lease, s.node.attempt()})
				y.tell(s)
			}
			return true
		})
		return left
	}
	return nil
}

// tell notes that one more answer has a message. It is no part of the state: after a restart nobody is left who
// would give an earlier answer back.
func (y *try) tell(s spot) {
	if y.told == nil {
		y.told = map[place]int{}
	}
	y.told[place{s.queue.key.Queue, record.QueueOffset(s.offset())}]++
}

// Told reports whether Again has returned a message under its latest lease, which must be this one, to somebody
// who may still have it: another answer than the first.
func (t *Table) Told(k Key, off record.QueueOffset, lease record.Pos) bool {
	y := t.tryOf(k, off, lease)
	return y != nil && y.told[place{k.Queue, off}] > 0
}

// Untell is for an answer that did not arrive. It reports whether another one has the message under the same lease:
// then the lease must stay, and there is one answer less.
func (t *Table) Untell(k Key, off record.QueueOffset, lease record.Pos) bool {
	if !t.Told(k, off, lease) {
		return false
	}
	t.tryOf(k, off, lease).told[place{k.Queue, off}]--
	return true
}

// tryOf is the remembered receive that made the latest lease of a message, nil if there is none.
func (t *Table) tryOf(k Key, off record.QueueOffset, lease record.Pos) *try {
	q := t.queueOf(k)
	if q == nil || off < 0 || int64(off) >= q.next {
		return nil
	}
	s, live := t.find(q, int64(off))
	if !live || s.node.lease() != lease {
		return nil
	}
	c := t.clients.byNum[s.node.client]
	if c == nil {
		return nil
	}
	for i := range c.tries {
		if c.tries[i].lease == lease {
			return &c.tries[i]
		}
	}
	return nil
}

// remember notes a lease with an attempt id, and forgets what is too old. A lease of which nothing is
// left is no part of the state, so acks and leases
// may change places in the log if they concern different messages; those in front are forgotten here to save memory.
func (t *Table) remember(c *client, pos record.Pos, ck *record.PopCk) {
	c.tried++
	n := 0
	for n < len(c.tries) && (c.tries[n].no+triesMax <= c.tried || !t.left(&c.tries[n])) {
		n++
	}
	rest := copy(c.tries, c.tries[n:])
	clear(c.tries[rest:])
	y := try{topic: ck.Topic, group: ck.Group, lease: pos, no: c.tried, id: len(ck.AttemptID)}
	y.data = append(make([]byte, 0, len(ck.AttemptID)+16), ck.AttemptID...)
	for i := range ck.Sections {
		y.data = appendRuns(y.data, &ck.Sections[i])
	}
	c.tries = append(c.tries[:rest], y)
}

func appendRuns(dst []byte, sec *record.PopSection) []byte {
	for i := 0; i < len(sec.Items); {
		j := i + 1
		for j < len(sec.Items) && sec.Items[j].Offset == sec.Items[j-1].Offset+1 && (sec.Items[j].Attempt == 0) == (sec.Items[i].Attempt == 0) {
			j++
		}
		if sec.Items[i].Attempt != 0 {
			dst = binary.AppendUvarint(dst, uint64(uint32(sec.Queue)))
			dst = binary.AppendUvarint(dst, uint64(sec.Items[i].Offset))
			dst = binary.AppendUvarint(dst, uint64(j-i))
		}
		i = j
	}
	return dst
}

// left reports whether some message still has the lease.
func (t *Table) left(y *try) bool {
	any := false
	t.eachLeft(y, func(spot) bool {
		any = true
		return false
	})
	return any
}

// eachLeft calls fn for the un-done messages whose latest lease is y's, while it returns true.
func (t *Table) eachLeft(y *try, fn func(spot) bool) {
	r := reader{b: y.data[y.id:]}
	for len(r.b) > 0 {
		queue, first, n := r.uvarint(), int64(r.uvarint()), int64(r.uvarint())
		q := t.queueOf(Key{y.group, y.topic, record.QueueID(queue)})
		if q == nil {
			continue
		}
		at := cursor{t: t, q: q}
		for off := first; off < first+n; off++ {
			if s, ok := at.find(off); ok && s.node.lease() == y.lease && !fn(s) {
				return
			}
		}
	}
}
