package pop

import "github.com/perigee-mq/perigee/store/record"

// leaseMax is how many items one lease record may have.
const leaseMax = 1 << 16

// ApplyLease takes a lease record, which is at pos in the log.
func (t *Table) ApplyLease(pos record.Pos, ck *record.PopCk) error {
	if t.hole != nil {
		return t.forceLease(pos, ck)
	}
	return t.applyLease(pos, ck)
}

func (t *Table) applyLease(pos record.Pos, ck *record.PopCk) error {
	if err := t.checkLease(pos, ck); err != nil {
		return err
	}
	c := t.clients.byNum[ck.Client]
	if len(ck.ClientName) > 0 {
		c = t.define(ck.Client, string(ck.ClientName))
	}
	after := uint32(0) // the message of this lease that entered its client's list last
	for i := range ck.Sections {
		sec := &ck.Sections[i]
		k := Key{ck.Group, ck.Topic, sec.Queue}
		if t.inOrder(k) {
			after = t.leaseInOrder(pos, ck, sec, c, after)
			continue
		}
		if len(sec.Items) == 0 {
			continue
		}
		q := t.record(k, int64(sec.Items[0].Offset))
		at := cursor{t: t, q: q}
		for _, it := range sec.Items {
			off := int64(it.Offset)
			var s spot
			switch {
			case off == q.next:
				q.next++
				if it.Attempt == 0 {
					continue
				}
				s = at.add(off)
				t.reset(s.id)
			case it.Attempt == 0:
				s, _ = at.find(off)
				at.finish(s)
				continue
			default:
				s, _ = at.find(off)
				t.detach(s)
			}
			after = t.handOut(s, pos, ck, it.Attempt, c, after)
		}
	}
	if c != nil && len(ck.AttemptID) > 0 {
		t.remember(c, pos, ck)
	}
	return nil
}

// handOut gives a message that is in no list its new lease. It returns the message of this lease that
// entered its client's list last.
func (t *Table) handOut(s spot, pos record.Pos, ck *record.PopCk, attempt uint16, c *client, after uint32) uint32 {
	s.node.setLease(pos)
	s.node.setUntil(ck.Until, attempt)
	if c != nil {
		s.node.client = c.num
		c.held++
	}
	t.hold(s)
	if ck.Session {
		t.enter(c, s, ck.Until, after)
		return s.id
	}
	t.schedule(s.id, s.node, ck.Until)
	return after
}

// checkLease says why a lease record does not fit, nil if it does.
func (t *Table) checkLease(pos record.Pos, ck *record.PopCk) error {
	if pos < 0 || pos > posMax || pos%record.Align != 0 {
		return corrupt("lease at log position %d", pos)
	}
	if ck.Until < 0 || ck.Until > untilMax {
		return corrupt("lease at %d ends at %d ms", pos, ck.Until)
	}
	if err := t.checkClient(pos, ck); err != nil {
		return err
	}
	items := 0
	t.lease.empty()
	for i := range ck.Sections {
		if items += len(ck.Sections[i].Items); items > leaseMax {
			return corrupt("lease at %d has more than %d items", pos, leaseMax)
		}
		for j := range i {
			if ck.Sections[j].Queue == ck.Sections[i].Queue {
				return corrupt("lease at %d names queue %d twice", pos, ck.Sections[i].Queue)
			}
		}
		k, err := Key{ck.Group, ck.Topic, ck.Sections[i].Queue}, error(nil)
		switch {
		case t.inOrder(k):
			err = t.checkInOrder(pos, ck, &ck.Sections[i])
		case ck.Ordered:
			err = corrupt("lease at %d of %v is in order, the group is not", pos, k)
		default:
			err = t.checkItems(pos, k, ck.Sections[i].Items)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) checkClient(pos record.Pos, ck *record.PopCk) error {
	known := t.clients.byNum[ck.Client]
	if len(ck.ClientName) > 0 {
		if ck.Client == 0 || known != nil || t.clients.byName[string(ck.ClientName)] != nil {
			return corrupt("lease at %d defines client %d as %q, but one of the two is in use", pos, ck.Client, ck.ClientName)
		}
		return nil
	}
	if ck.Client != 0 && (known == nil || known.name == "") {
		return corrupt("lease at %d is for client %d, which is not known", pos, ck.Client)
	}
	if ck.Session && ck.Client == 0 {
		return corrupt("lease at %d is for a session without a client", pos)
	}
	return nil
}

// checkItems says why the items of a section do not fit: offsets rise, known ones are un-done with
// just this lease before, and new ones follow each other from next.
func (t *Table) checkItems(pos record.Pos, k Key, items []record.PopItem) error {
	if len(items) == 0 {
		return nil
	}
	at := cursor{t: t, q: t.recorded(k)}
	next := int64(items[0].Offset)
	if at.q != nil {
		next = at.q.next
	}
	last := int64(-1)
	for _, it := range items {
		off := int64(it.Offset)
		if off <= last || off > next {
			return corrupt("lease at %d names offset %d of %v after %d, next is %d", pos, off, k, last, next)
		}
		last = off
		if off == next {
			if it.Attempt > 1 || it.Attempt == 1 && it.Prev != -1 {
				return corrupt("lease at %d: attempt %d of offset %d of %v, which is new", pos, it.Attempt, off, k)
			}
			next++
			continue
		}
		s, ok := at.find(off)
		if !ok {
			return corrupt("lease at %d hands out offset %d of %v, which is done", pos, off, k)
		}
		if err := checkAgain(pos, k, it, s.node); err != nil {
			return err
		}
	}
	return nil
}

// checkAgain says why an item does not fit the message that was handed out before.
func checkAgain(pos record.Pos, k Key, it record.PopItem, n *node) error {
	if it.Attempt != 0 && (it.Attempt != n.nextAttempt() || it.Prev != n.lease() || pos <= it.Prev) {
		return corrupt("lease at %d: attempt %d after lease %d of offset %d of %v, expected %d after %d",
			pos, it.Attempt, it.Prev, it.Offset, k, n.nextAttempt(), n.lease())
	}
	return nil
}

// cursor finds messages of one queue; neighbours are found without going through the tree again.
type cursor struct {
	t  *Table
	q  *queue
	p  *page  // nil, or page no
	id uint32 // index of p, 0 if only find has set it
	no int64
}

// find returns the spot of an offset below next, false if it is done.
func (c *cursor) find(off int64) (spot, bool) {
	if c.p == nil || c.no != off>>6 {
		c.no, c.id = off>>6, 0
		if c.p = c.t.findPage(c.q, c.no); c.p == nil {
			return spot{}, false
		}
	}
	if c.p.live>>(off&63)&1 == 0 {
		return spot{}, false
	}
	return c.t.spotIn(c.q, c.p, int(off&63)), true
}

// add makes an offset un-done.
func (c *cursor) add(off int64) spot {
	if c.id == 0 || c.no != off>>6 {
		c.no = off >> 6
		c.p, c.id = c.t.makePage(c.q, c.no)
	}
	return c.t.add(c.q, c.p, c.id, int(off&63))
}

// finish makes a message that find found done.
func (c *cursor) finish(s spot) {
	if c.t.finish(s) {
		c.p, c.id = nil, 0
	}
}
