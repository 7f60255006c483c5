package pop

import "github.com/perigee-mq/perigee/store/record"

// ApplyAck takes a record of messages that are done. One that is done already stays so.
func (t *Table) ApplyAck(a *record.PopAck) error {
	if t.hole != nil {
		return t.forceAck(a)
	}
	return t.applyAck(a)
}

func (t *Table) applyAck(a *record.PopAck) error {
	for i := range a.Sections {
		sec := &a.Sections[i]
		k := Key{sec.Group, sec.Topic, sec.Queue}
		q := t.recorded(k)
		if q == nil {
			return corrupt("ack of %v, of which nothing was handed out", k)
		}
		for _, off := range sec.Offsets {
			if off < 0 || int64(off) >= q.next {
				return corrupt("ack of offset %d of %v, which was not handed out: next is %d", off, k, q.next)
			}
		}
	}
	for i := range a.Sections {
		sec := &a.Sections[i]
		at := cursor{t: t, q: t.queueOf(Key{sec.Group, sec.Topic, sec.Queue})}
		for _, off := range sec.Offsets {
			if s, ok := at.find(int64(off)); ok {
				at.finish(s)
			}
		}
	}
	return nil
}

// ApplyChange takes a record that gives messages a new deadline, under the lease they have; a session
// lease becomes a plain one. A deadline that has passed makes a message ready at the next Advance.
func (t *Table) ApplyChange(c *record.PopChange) error {
	if t.hole != nil {
		return t.forceChange(c)
	}
	return t.applyChange(c)
}

func (t *Table) applyChange(c *record.PopChange) error {
	if c.Until < 0 || c.Until > untilMax {
		return corrupt("change of a deadline to %d ms", c.Until)
	}
	for _, ch := range c.Changes {
		k := Key{c.Group, c.Topic, ch.Queue}
		q := t.recorded(k)
		if q == nil || ch.Offset < 0 || int64(ch.Offset) >= q.next {
			return corrupt("change of offset %d of %v, which was not handed out", ch.Offset, k)
		}
		s, ok := t.find(q, int64(ch.Offset))
		if !ok {
			return corrupt("change of offset %d of %v, which is done", ch.Offset, k)
		}
		if s.node.lease() != ch.Lease {
			return corrupt("change of lease %d of offset %d of %v, the latest is %d", ch.Lease, ch.Offset, k, s.node.lease())
		}
	}
	for _, ch := range c.Changes {
		q := t.queueOf(Key{c.Group, c.Topic, ch.Queue})
		s, _ := t.find(q, int64(ch.Offset))
		holder := t.clients.byNum[s.node.client]
		t.detach(s)
		s.node.setUntil(c.Until, s.node.attempt())
		s.node.unset(kept)
		if ch.Keep {
			s.node.set(kept | waits)
			q.waiting++
		} else {
			t.keepHolder(s, holder)
		}
		t.schedule(s.id, s.node, c.Until)
	}
	return nil
}

// keepHolder makes a message whose lease was moved, and which is in no list, its client's again. Not if the
// client's session is over: whether its last message keeps its number known then depends on acks, which may
// stand in the log before or after.
func (t *Table) keepHolder(s spot, c *client) {
	if c != nil && c.name != "" {
		s.node.client = c.num
		c.held++
	}
	t.hold(s)
}

// ApplySkip takes a record of offsets that were never handed out and are done: those of [From, To)
// that are at or above next. An empty range only starts the queue, at From.
func (t *Table) ApplySkip(s *record.Skip) error {
	if t.hole != nil {
		return t.forceSkip(s)
	}
	return t.applySkip(s)
}

func (t *Table) applySkip(s *record.Skip) error {
	k := Key{s.Group, s.Topic, s.Queue}
	q := t.recorded(k)
	if s.From < 0 || s.To < s.From || q != nil && int64(s.From) > q.next {
		return corrupt("skip of [%d, %d) of %v", s.From, s.To, k)
	}
	q = t.record(k, int64(s.From))
	q.next = max(q.next, int64(s.To))
	return nil
}
