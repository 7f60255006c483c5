package pop

import "github.com/perigee-mq/perigee/store/record"

// window is how many message-group hashes are read at a time.
const window = 32

// hashes is the message-group hashes that were read last.
type hashes struct {
	key  Key
	base int64
	n    int
	buf  [window]uint64
}

// Ordered reports whether a queue hands out the messages of each message group one delivery after the
// other.
func (t *Table) Ordered(k Key) bool {
	if q := t.queueOf(k); q != nil {
		return q.ordered
	}
	return t.orderedGroup(k.Group)
}

func (t *Table) orderedGroup(g record.GroupID) bool { return t.o.Ordered != nil && t.o.Ordered(g) }

// SetOrdered says that from here on a group is handed messages in order, or is not. What is in flight
// stays as it is: before a message group goes out in order, all of its messages that were handed out
// must be done or their leases ended; what an ordered group passed over comes next if it is not ordered
// any more. It looks at every message that the group has in flight.
func (t *Table) SetOrdered(g record.GroupID, ordered bool) error {
	for k, q := range t.byKey {
		if k.Group != g || q.ordered == ordered {
			continue
		}
		if !ordered {
			t.toPlain(q)
		} else if err := t.toOrdered(q); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) setOrdered(q *queue) {
	q.ordered = true
	if q.locks == nil {
		q.locks = &locks{byHash: map[uint64]uint32{}}
	}
}

func (t *Table) toOrdered(q *queue) error {
	t.setOrdered(q)
	_, err := t.rejoin(q)
	return err
}

func (t *Table) toPlain(q *queue) {
	q.ordered = false
	t.eachPage(q, func(p *page) {
		for _, id := range p.chunks {
			if id != 0 {
				t.freeAnnex(t.chunks.at(id))
			}
		}
	})
	if len(q.locks.byHash) == 0 {
		q.locks = nil
		return
	}
	for _, id := range q.locks.byHash {
		l := t.locks.at(id)
		l.first, l.last, l.undone, l.ended = 0, 0, 0, 0
		t.settle(q, id)
	}
}

func (t *Table) freeAnnex(c *chunk) {
	if a := c.annex(); a != 0 {
		t.annexes.free(a)
		c.setAnnex(0)
	}
}

// freeLocks gives up all locks of a queue, whose links are gone.
func (t *Table) freeLocks(q *queue) {
	if q.locks == nil {
		return
	}
	for _, id := range q.locks.byHash {
		t.locks.free(id)
	}
	if q.locks = nil; q.ordered {
		t.setOrdered(q)
	}
}

// hash is the message-group hash of a message.
func (t *Table) hash(q *queue, off int64) (uint64, error) {
	h := &t.hashes
	if h.n == 0 || h.key != q.key || off < h.base || off >= h.base+int64(h.n) {
		h.n = 0
		if t.o.Groups == nil {
			return 0, nil
		}
		n, err := t.o.Groups(q.key, record.QueueOffset(off), h.buf[:])
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, corrupt("offset %d of %v has no message", off, q.key)
		}
		h.key, h.base, h.n = q.key, off, n
	}
	return h.buf[off-h.base], nil
}

// passedOver reports whether an offset below next that has no node was passed over.
func (t *Table) passedOver(q *queue, off int64) bool {
	if q.locks == nil || q.locks.passed == 0 {
		return false
	}
	hash, err := t.hash(q, off)
	if err != nil {
		return false
	}
	id, ok := q.locks.byHash[hash]
	return ok && t.locks.at(id).passed != nil && t.locks.at(id).passed.has(off)
}
