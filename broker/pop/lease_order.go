package pop

import "github.com/perigee-mq/perigee/store/record"

// passMax is how many offsets one section of a lease may look at for the first time.
const passMax = 1 << 20

// leaseCheck is what the check of a lease in order has found and its application needs.
type leaseCheck struct {
	hashes []uint64         // in the order in which they are needed
	at     int              // how many of them were used
	seen   map[uint64]*seen // message groups of a section
	free   []*seen
}

// seen is what a section did with a message group so far.
type seen struct {
	passed walk  // what was passed over before and not handed out by this section yet
	left   int64 // of these
	behind bool  // a message of the group was passed over by this section
}

func (c *leaseCheck) empty() { c.hashes, c.at = c.hashes[:0], 0 }

func (c *leaseCheck) next() uint64 {
	c.at++
	return c.hashes[c.at-1]
}

// inOrder reports whether leases of a queue go by its locks: it is ordered, or there is something left of
// the time when it was.
func (t *Table) inOrder(k Key) bool {
	if q := t.queueOf(k); q != nil {
		return q.locks != nil
	}
	return t.orderedGroup(k.Group)
}

// begin is where a section begins and how far it has looked at a queue: [next, end) is new.
func (t *Table) begin(k Key, ck *record.PopCk, sec *record.PopSection) (next, end int64) {
	n := len(sec.Items)
	if q := t.recorded(k); q != nil {
		next = q.next
	} else if n > 0 {
		next = int64(sec.Items[0].Offset)
	}
	end = next
	if n > 0 {
		end = max(end, int64(sec.Items[n-1].Offset)+1)
	}
	if ck.Ordered {
		end = int64(sec.Next)
	}
	return next, end
}

// leaseInOrder applies a section that checkInOrder found to fit.
func (t *Table) leaseInOrder(pos record.Pos, ck *record.PopCk, sec *record.PopSection, c *client, after uint32) uint32 {
	k := Key{ck.Group, ck.Topic, sec.Queue}
	next, end := t.begin(k, ck, sec)
	if len(sec.Items) == 0 && end == next {
		return after
	}
	q := t.record(k, next)
	at := cursor{t: t, q: q}
	items := sec.Items
	for ; len(items) > 0 && int64(items[0].Offset) < next; items = items[1:] {
		it := items[0]
		s, old := at.find(int64(it.Offset))
		switch {
		case old && it.Attempt == 0:
			at.finish(s)
			continue
		case old:
			t.detach(s)
		default:
			lock := t.lockOf(q, t.lease.next())
			if it.Attempt != 0 {
				s = t.addTo(&at, int64(it.Offset), lock)
			}
			t.takePassed(q, lock)
			if it.Attempt == 0 {
				continue
			}
		}
		after = t.handOut(s, pos, ck, it.Attempt, c, after)
	}
	for off := next; off < end; off++ {
		hash := uint64(0)
		if q.ordered {
			hash = t.lease.next()
		}
		if len(items) == 0 || int64(items[0].Offset) != off {
			t.pass(q, t.lockOf(q, hash), span{off, 1})
			continue
		}
		it := items[0]
		if items = items[1:]; it.Attempt == 0 {
			continue
		}
		lock := uint32(0)
		if q.ordered {
			lock = t.lockOf(q, hash)
		}
		after = t.handOut(t.addTo(&at, off, lock), pos, ck, it.Attempt, c, after)
	}
	q.next = end
	return after
}

// addTo makes an offset un-done, and one of the messages of a lock if the queue is ordered.
func (t *Table) addTo(at *cursor, off int64, lock uint32) spot {
	s := at.add(off)
	t.reset(s.id)
	if at.q.ordered {
		t.join(s, lock)
	}
	return s
}

// checkInOrder says why a section does not fit a queue with locks: offsets rise; below next each is
// un-done with just this lease before, or the oldest that was passed over of its message group; new ones
// go out only if nothing older of their group is passed over.
func (t *Table) checkInOrder(pos record.Pos, ck *record.PopCk, sec *record.PopSection) error {
	k := Key{ck.Group, ck.Topic, sec.Queue}
	next, end := t.begin(k, ck, sec)
	switch n := len(sec.Items); {
	case n == 0 && t.recorded(k) == nil && end != next:
		return corrupt("lease at %d begins %v with messages passed over", pos, k)
	case end < next || end-next > passMax || n > 0 && end <= int64(sec.Items[n-1].Offset):
		return corrupt("lease at %d looks at offsets [%d, %d) of %v", pos, next, end, k)
	}
	q := t.queueOf(k)
	if q == nil {
		q = &queue{key: k, next: next}
		t.setOrdered(q)
	}
	if ck.Ordered && !q.ordered {
		return corrupt("lease at %d of %v is in order, the group is not", pos, k)
	}
	c := &t.lease
	c.begin()
	at := cursor{t: t, q: q}
	last, taken := int64(-1), int64(0)
	items := sec.Items
	for ; len(items) > 0 && int64(items[0].Offset) < next; items = items[1:] {
		it := items[0]
		if int64(it.Offset) <= last {
			return corrupt("lease at %d names offset %d of %v after %d", pos, it.Offset, k, last)
		}
		last = int64(it.Offset)
		if s, ok := at.find(last); ok {
			if err := checkAgain(pos, k, it, s.node); err != nil {
				return err
			}
			continue
		}
		hash, err := t.hash(q, last)
		if err != nil {
			return err
		}
		if !c.group(t, q, hash).takes(last) || it.Attempt > 1 || it.Attempt == 1 && it.Prev != -1 {
			return corrupt("lease at %d: attempt %d of offset %d of %v, which is done or not the oldest of its group", pos, it.Attempt, last, k)
		}
		taken++
		c.hashes = append(c.hashes, hash)
	}
	if !q.ordered && len(items) > 0 && taken < q.locks.passed {
		return corrupt("lease at %d hands out offset %d of %v, but older ones were passed over", pos, items[0].Offset, k)
	}
	return t.checkNew(pos, q, next, end, items, ck.Ordered)
}

// checkNew says why the items from next on do not fit.
func (t *Table) checkNew(pos record.Pos, q *queue, next, end int64, items []record.PopItem, ordered bool) error {
	c := &t.lease
	for off := next; off < end; off++ {
		hash, err := uint64(0), error(nil)
		if q.ordered {
			if hash, err = t.hash(q, off); err != nil {
				return err
			}
			c.hashes = append(c.hashes, hash)
		}
		if len(items) == 0 || int64(items[0].Offset) != off {
			if !ordered {
				return corrupt("lease at %d passes over offset %d of %v and is not in order", pos, off, q.key)
			}
			c.group(t, q, hash).behind = true
			continue
		}
		it := items[0]
		items = items[1:]
		if it.Attempt > 1 || it.Attempt == 1 && it.Prev != -1 {
			return corrupt("lease at %d: attempt %d of offset %d of %v, which is new", pos, it.Attempt, off, q.key)
		}
		if it.Attempt == 0 || !q.ordered {
			continue
		}
		if g := c.group(t, q, hash); g.behind || g.left > 0 {
			return corrupt("lease at %d: offset %d of %v goes out before older ones of its group", pos, off, q.key)
		}
	}
	if len(items) > 0 {
		return corrupt("lease at %d names offset %d of %v twice", pos, items[0].Offset, q.key)
	}
	return nil
}

// begin forgets the message groups of the section before.
func (c *leaseCheck) begin() {
	if c.seen == nil || len(c.seen) > passMax>>10 {
		c.seen, c.free = map[uint64]*seen{}, nil
		return
	}
	for _, s := range c.seen {
		c.free = append(c.free, s)
	}
	clear(c.seen)
}

// group returns what the section did with a message group so far.
func (c *leaseCheck) group(t *Table, q *queue, hash uint64) *seen {
	s := c.seen[hash]
	if s != nil {
		return s
	}
	if n := len(c.free); n > 0 {
		s, c.free = c.free[n-1], c.free[:n-1]
	} else {
		s = new(seen)
	}
	*s = seen{}
	if id, ok := q.locks.byHash[hash]; ok {
		if l := t.locks.at(id); l.passed != nil {
			s.passed, s.left = l.passed.walk(), l.passed.n
		}
	}
	c.seen[hash] = s
	return s
}

// takes reports whether off is the oldest that is passed over, and goes past it.
func (s *seen) takes(off int64) bool {
	if s.left == 0 {
		return false
	}
	at, ok := s.passed.next()
	s.left--
	return ok && at == off
}
