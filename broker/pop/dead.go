package pop

import "github.com/perigee-mq/perigee/store/record"

// A message whose lease has ended and that was handed out as often as its group allows (Options.Dead) is
// dying: it is not handed out again, but waits for the record that moves it to the dead-letter topic. It
// counts as waiting, and its handle is good until then. Like all that follows from the time, this is
// derived and never encoded.

// Dying is one dying message.
type Dying struct {
	Key     Key
	Offset  record.QueueOffset
	Lease   record.Pos // of its last delivery
	Attempt uint16     // of its last delivery
}

// TakeDying takes up to limit dying messages, the oldest first, appends them to dst and returns it. They
// stay un-done and are told again only after Postpone, Park and Unpark, or another change of their lease.
// One that is not dead by now, since its group's attempts were raised, becomes ready instead: due hears
// of it and must not call the table. It looks at no more messages than it may take.
func (t *Table) TakeDying(limit int, due func(k Key, n int), dst []Dying) []Dying {
	for range limit {
		id := t.node(dying).next
		if id == dying {
			break
		}
		s := t.spotOf(id)
		t.unlink(id, s.node)
		if !t.isDead(s) {
			t.unsetWaits(s)
			before := t.readyIn(s.queue)
			t.setReady(s)
			if n := int(t.readyIn(s.queue) - before); n > 0 && due != nil {
				due(s.queue.key, n)
			}
			continue
		}
		t.insert(t.node(taken).prev, id, s.node)
		dst = append(dst, Dying{s.queue.key, record.QueueOffset(s.offset()), s.node.lease(), s.node.attempt()})
	}
	return dst
}

// HasDying reports whether TakeDying has something to do.
func (t *Table) HasDying() bool { return !t.alone(dying) }

// HasParked reports whether messages are parked.
func (t *Table) HasParked() bool { return !t.alone(parked) }

// Park puts a message that was taken aside until Unpark. It does nothing if the message is done, or has
// got another lease or deadline since.
func (t *Table) Park(d Dying) {
	if s, ok := t.taken(d); ok {
		t.unlink(s.id, s.node)
		t.insert(t.node(parked).prev, s.id, s.node)
	}
}

// Unpark makes all parked messages dying again.
func (t *Table) Unpark() { t.splice(dying, parked) }

// Postpone lets a message that was taken be dying again at the given time, in ms. It does nothing where
// Park does nothing.
func (t *Table) Postpone(d Dying, until int64) {
	if s, ok := t.taken(d); ok {
		t.unlink(s.id, s.node)
		t.schedule(s.id, s.node, min(until, untilMax))
	}
}

// IsTaken reports whether a message is still as TakeDying has told.
func (t *Table) IsTaken(d Dying) bool {
	_, ok := t.taken(d)
	return ok
}

// taken finds a message that is still as TakeDying has told: its lease is the same and it waits. That
// a renewal which has run out may have made it dying a second time does no harm.
func (t *Table) taken(d Dying) (spot, bool) {
	q := t.queueOf(d.Key)
	if q == nil || d.Offset < 0 || int64(d.Offset) >= q.next {
		return spot{}, false
	}
	s, ok := t.find(q, int64(d.Offset))
	ok = ok && s.node.lease() == d.Lease && s.node.is(waits) && !s.node.is(kept) && t.deadline(s.node) <= t.wheel.now
	return s, ok
}

// isDead reports whether a message whose lease has ended is not to be handed out again.
func (t *Table) isDead(s spot) bool {
	return t.o.Dead != nil && !s.node.is(kept) && t.o.Dead(s.queue.key, s.node.attempt())
}

// die makes a message in no list dying.
func (t *Table) die(s spot) {
	t.release(s)
	if !s.node.is(waits) {
		s.node.set(waits)
		s.queue.waiting++
	}
	t.insert(t.node(dying).prev, s.id, s.node)
}

func (t *Table) unsetWaits(s spot) {
	if s.node.is(waits) {
		s.node.unset(waits)
		s.queue.waiting--
	}
}

// ApplyDead takes a record that moves a message to the dead-letter topic: it is done.
func (t *Table) ApplyDead(d *record.Dead) error {
	return t.ApplyAck(&record.PopAck{Sections: []record.AckSection{
		{Topic: d.Topic, Group: d.Group, Queue: d.Queue, Offsets: []record.QueueOffset{d.Offset}},
	}})
}

// Attempt is the number of an un-done message's last delivery, 0 if it is done or was not handed out.
func (t *Table) Attempt(k Key, off record.QueueOffset) uint16 {
	if q := t.queueOf(k); q != nil && off >= 0 && int64(off) < q.next {
		if s, ok := t.find(q, int64(off)); ok {
			return s.node.attempt()
		}
	}
	return 0
}
