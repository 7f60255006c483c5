package pop

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Hole tells what a hole in the log before a record means for it. What the lost records said is unknown, so
// the table gives the record right and decides for another delivery where nothing is known: what was
// looked at in the hole, and is not known to be done, is as if its lease had ended.
type Hole struct {
	// Lease names leases that are not known: a position in the hole.
	Lease record.Pos
	// Now is the store time of the record, ms since 1970: unknown leases end then.
	Now int64
	// Start is where a group begins in a queue that no record has named.
	Start func(k Key) record.QueueOffset
}

// Behind says that the records from here on stand behind a hole, nil that they do not: a record that does not fit
// is made to. The caller keeps Now up to date.
func (t *Table) Behind(h *Hole) { t.hole = h }

// forceLease is ApplyLease behind a hole.
func (t *Table) forceLease(pos record.Pos, ck *record.PopCk) error {
	for i := range ck.Sections {
		if sec := &ck.Sections[i]; len(sec.Items) > 0 || sec.Next > 0 {
			t.beginLost(Key{ck.Group, ck.Topic, sec.Queue})
		}
	}
	err := t.applyLease(pos, ck)
	if !mqerr.Is(err, mqerr.Corrupt) {
		return err
	}
	if pos < 0 || pos > posMax || pos%record.Align != 0 || ck.Until < 0 || ck.Until > untilMax {
		return err
	}
	t.hashes.n = 0
	c := t.forceClient(ck)
	said := *ck
	said.Session = said.Session && c != nil
	for i := range ck.Sections {
		sec := &ck.Sections[i]
		k := Key{ck.Group, ck.Topic, sec.Queue}
		for _, it := range sec.Items {
			if int64(it.Offset) < 0 {
				return err
			}
			t.forceItem(k, it, pos, &said, c)
		}
		if ck.Ordered {
			t.bring(k, int64(sec.Next))
		}
	}
	return nil
}

// forceItem hands one message out, or ends it, whatever is known of it.
func (t *Table) forceItem(k Key, it record.PopItem, pos record.Pos, ck *record.PopCk, c *client) {
	off := int64(it.Offset)
	q := t.bring(k, off)
	if off == q.next {
		q.next++
		if it.Attempt == 0 {
			return
		}
		t.handOut(t.revive(q, off), pos, ck, it.Attempt, c, 0)
		return
	}
	s, live := t.find(q, off)
	switch {
	case it.Attempt == 0 && live:
		t.finish(s)
		return
	case it.Attempt == 0:
		return
	case live:
		t.detach(s)
	default:
		s = t.revive(q, off)
	}
	t.handOut(s, pos, ck, it.Attempt, c, 0)
}

// forceAck is ApplyAck behind a hole.
func (t *Table) forceAck(a *record.PopAck) error {
	for i := range a.Sections {
		t.beginLost(Key{a.Sections[i].Group, a.Sections[i].Topic, a.Sections[i].Queue})
	}
	err := t.applyAck(a)
	if !mqerr.Is(err, mqerr.Corrupt) {
		return err
	}
	t.hashes.n = 0
	for i := range a.Sections {
		sec := &a.Sections[i]
		for _, off := range sec.Offsets {
			if off < 0 {
				return err
			}
			t.forceItem(Key{sec.Group, sec.Topic, sec.Queue}, record.PopItem{Offset: off}, t.hole.Lease, &record.PopCk{}, nil)
		}
	}
	return nil
}

// forceChange is ApplyChange behind a hole.
func (t *Table) forceChange(c *record.PopChange) error {
	err := t.applyChange(c)
	if !mqerr.Is(err, mqerr.Corrupt) || c.Until < 0 || c.Until > untilMax {
		return err
	}
	t.hashes.n = 0
	for _, ch := range c.Changes {
		if ch.Offset < 0 || ch.Lease < 0 || ch.Lease > posMax || ch.Lease%record.Align != 0 {
			return err
		}
		k, off := Key{c.Group, c.Topic, ch.Queue}, int64(ch.Offset)
		t.beginLost(k)
		q := t.bring(k, off+1)
		s, live := t.find(q, off)
		attempt := uint16(1)
		if live {
			attempt = s.node.attempt()
			t.detach(s)
		} else {
			s = t.revive(q, off)
		}
		s.node.setLease(ch.Lease)
		s.node.setUntil(c.Until, attempt)
		if ch.Keep {
			s.node.set(kept | waits)
			q.waiting++
		} else {
			t.hold(s)
		}
		t.schedule(s.id, s.node, c.Until)
	}
	return nil
}

// forceSkip is ApplySkip behind a hole.
func (t *Table) forceSkip(s *record.Skip) error {
	k := Key{s.Group, s.Topic, s.Queue}
	if s.From >= 0 && s.To >= s.From {
		t.beginLost(k)
		t.hashes.n = 0
		t.bring(k, int64(s.From))
	}
	return t.applySkip(s)
}

// forceSessionEnd is ApplySessionEnd behind a hole: the end of a session that began in it is nothing.
func (t *Table) forceSessionEnd(s *record.SessionEnd) error {
	if err := t.applySessionEnd(s); !mqerr.Is(err, mqerr.Corrupt) {
		return err
	}
	return nil
}

// Ends calls fn for each queue that a record has named with the offset at or above which nothing was handed
// out. fn must not change the table.
func (t *Table) Ends(fn func(k Key, next record.QueueOffset)) {
	for k, q := range t.byKey {
		if q.recorded {
			fn(k, record.QueueOffset(q.next))
		}
	}
}

// beginLost starts a queue that no record has named: where the group began is lost.
func (t *Table) beginLost(k Key) {
	if t.recorded(k) == nil {
		t.record(k, int64(t.hole.Start(k)))
	}
}

// bring makes all offsets below to looked at: those that nothing is known of are un-done and come again, with
// the attempt number that they would have had.
func (t *Table) bring(k Key, to int64) *queue {
	t.beginLost(k)
	q := t.queueOf(k)
	if q.next >= to && (q.locks == nil || q.locks.passed == 0) {
		return q
	}
	t.unpass(q)
	for ; q.next < to; q.next++ {
		t.lapse(t.revive(q, q.next))
	}
	return q
}

// unpass makes what was passed over un-done, since a record may name any of it.
func (t *Table) unpass(q *queue) {
	for q.locks != nil && q.locks.passed > 0 {
		for _, id := range q.locks.byHash {
			l := t.locks.at(id)
			if l.passed == nil {
				continue
			}
			s := t.addTo(&cursor{t: t, q: q}, l.passed.head.first, id)
			t.takePassed(q, id)
			t.lapse(s)
			break // the map may have changed
		}
	}
}

// lapse gives a message that is in no list a lease that nobody knows and that has ended.
func (t *Table) lapse(s spot) {
	s.node.setLease(t.hole.Lease)
	s.node.setUntil(min(max(0, t.hole.Now), untilMax), 1)
	s.node.set(kept | waits)
	s.queue.waiting++
	t.schedule(s.id, s.node, s.node.until())
}

// revive makes an offset un-done that is not. Its node is in no list.
func (t *Table) revive(q *queue, off int64) spot {
	at := cursor{t: t, q: q}
	if !q.ordered {
		return t.addTo(&at, off, 0)
	}
	hash, err := t.hash(q, off)
	if err != nil {
		hash = 0 // its message is not known either
	}
	s := at.add(off)
	t.reset(s.id)
	t.joinInOrder(s, t.lockOf(q, hash))
	return s
}

// joinInOrder is join for a message that may be older than others of the lock.
func (t *Table) joinInOrder(s spot, id uint32) {
	t.join(s, id)
	l, k := t.locks.at(id), t.link(s.id)
	before := k.prev
	for before != 0 && t.spotOf(before).offset() > s.offset() {
		before = t.link(before).prev
	}
	if before == k.prev {
		return
	}
	// Take it from the end and put it behind before.
	l.last = k.prev
	t.link(k.prev).next = 0
	after := l.first
	if before != 0 {
		after = t.link(before).next
		t.link(before).next = s.id
	} else {
		l.first = s.id
	}
	k.prev, k.next = before, after
	t.link(after).prev = s.id
	t.settle(s.queue, id)
}

// disown makes a message nobody's. A session lease becomes a plain one that ends when it would have.
func (t *Table) disown(s spot) {
	num, leased := s.node.client, s.node.is(counted)
	t.release(s)
	if s.node.is(bound) && s.page.ready>>s.bit&1 == 0 {
		until, attempt := t.deadline(s.node), s.node.attempt()
		t.unlink(s.id, s.node)
		s.node.setUntil(until, attempt)
		t.schedule(s.id, s.node, until)
	}
	s.node.client = 0
	s.node.unset(bound)
	if leased {
		t.hold(s)
	}
	t.leave(num)
}

// forceClient is who a lease is for: nil if that is lost, then it lasts as long as it may. A number that was
// given anew in the meantime is free again.
func (t *Table) forceClient(ck *record.PopCk) *client {
	known := t.clients.byNum[ck.Client]
	if len(ck.ClientName) == 0 {
		if known == nil || known.name == "" {
			return nil
		}
		return known
	}
	if ck.Client == 0 {
		return nil
	}
	end := func(c *client) {
		if c == nil {
			return
		}
		if c.name != "" {
			_ = t.applySessionEnd(&record.SessionEnd{Client: c.num, Until: min(max(0, t.hole.Now), untilMax)})
		}
		for _, q := range t.byKey {
			t.eachPage(q, func(p *page) {
				for set := p.live; set != 0; set &= set - 1 {
					if s := t.spotIn(q, p, lowest(set)); s.node.client == c.num {
						t.disown(s)
					}
				}
			})
		}
	}
	if known != nil && known.name == string(ck.ClientName) {
		return known
	}
	end(known)
	end(t.clients.byName[string(ck.ClientName)])
	if t.clients.byNum[ck.Client] != nil {
		return nil
	}
	return t.define(ck.Client, string(ck.ClientName))
}
