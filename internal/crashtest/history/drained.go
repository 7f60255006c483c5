package history

import "slices"

// drained checks that all that was promised is there, once everything was read.
func (c *checker) drained() {
	letters := map[name]int{}
	for p, id := range c.at {
		if from, is := c.origin[p.Topic]; is {
			letters[name{from, id}]++
		}
	}
	for _, m := range c.sent {
		c.copies(m)
		c.whole(m)
	}
	for _, r := range c.rules.Reads {
		_, dies := c.rules.Letters[r.Topic]
		for _, m := range c.sent {
			switch {
			case m.topic != r.Topic:
			case dies:
				c.deaths(r.Group, m, letters[m.name])
			default:
				c.finished(r.Group, m)
			}
		}
	}
	c.redriven()
}

// copies checks how often a message is stored.
func (c *checker) copies(m *message) {
	n := len(m.places)
	switch recalled, rolled := some(m.recalls, OK) != nil, some(m.rollbacks, OK) != nil; {
	case !m.must():
	case half(m) && some(m.commits, OK) != nil && n == 0:
		c.violate("what was committed is there", "%s", m.id)
	case half(m), recalled, rolled, slices.ContainsFunc(m.recalls, func(o *Op) bool { return o.Outcome != Fail }):
		// Judged when it came.
	case n == 0 && !c.mayBeGone(m.topic):
		c.violate("what was answered is stored", "%s of %s is lost; recalls: %d", m.id, m.topic, len(m.recalls))
	}
	for _, t := range m.tries {
		if t.item.Outcome != OK || t.item.Offset < 0 || n == 0 {
			continue
		}
		if !slices.ContainsFunc(m.places, func(p Place) bool { return p.Offset == t.item.Offset }) {
			c.violate("a message is where its send was answered", "%s is at %v, answered was offset %d", m.id, m.places, t.item.Offset)
		}
	}
}

// mayBeGone tells whether messages of a topic may go before anybody has seen them: a reset has done with them.
func (c *checker) mayBeGone(topic string) bool {
	return c.rules.Retention && slices.ContainsFunc(c.all[Reset], func(r *Op) bool { return r.Topic == topic && r.Outcome != Fail })
}

// whole checks that of one call all messages are there or none.
func (c *checker) whole(m *message) {
	if len(m.recalls) > 0 || half(m) || c.mayBeGone(m.topic) {
		return
	}
	for _, n := range m.mates {
		o := c.messages[n]
		if len(o.recalls) == 0 && (len(o.places) > 0) != (len(m.places) > 0) {
			c.violate("a call stores all or nothing", "%s is stored, %s of the same call is not", m.id, o.id)
		}
	}
}

// finished checks that a group has done with every place of a message.
func (c *checker) finished(group string, m *message) {
	for _, p := range m.places {
		t := c.tracks[trackKey{group, p}]
		switch reset := c.lastReset(group, m.topic); {
		case t == nil && reset == nil:
			c.violate("everything comes until it is acknowledged", "%s at %s never came to %s", m.id, p, group)
		case reset == nil:
			if !t.done(Never) {
				c.violate("everything comes until it is acknowledged", "%s at %s came to %s, was not acknowledged, and comes no more", m.id, p, group)
			}
		case reset.Outcome == OK && reset.moved(p) && (t == nil || !t.doneAfter(reset.Began)):
			c.violate("a reset brings things back", "%s at %s is not done by %s since its reset", m.id, p, group)
		}
	}
}

// lastReset is the last reset of a group that may have happened.
func (c *checker) lastReset(group, topic string) (last *Op) {
	for _, r := range c.all[Reset] {
		if r.Group == group && r.Topic == topic && r.Outcome != Fail && (last == nil || r.Began > last.Began) {
			last = r
		}
	}
	return last
}

// moved tells whether a reset makes its group read a place.
func (o *Op) moved(p Place) bool {
	return slices.ContainsFunc(o.Queues, func(q Queue) bool { return q.bare() == p.queue() && q.To <= p.Offset })
}

func (t *track) doneAfter(at Time) bool {
	for _, d := range t.deliveries {
		for _, u := range d.ends {
			if u.item.Outcome != Fail && u.op.over() > at {
				return true
			}
		}
	}
	return false
}

// deaths checks the dead letters of one message against what was done with its copies. Each copy dies at
// most once; a letter that was moved back is another copy, and no letter any more.
func (c *checker) deaths(group string, m *message, letters int) {
	acked, forwarded, open := 0, 0, 0
	for _, p := range m.places {
		switch t := c.tracks[trackKey{group, p}]; {
		case t == nil || !t.done(Never):
			open++
		case c.acked(t):
			acked++
		case t.surely(Forward):
			forwarded++
		}
	}
	switch n := len(m.places); {
	case n == 0:
	case letters+n-1 < forwarded+open:
		c.violate("what is not acknowledged is a dead letter", "%s: %d copies, %d forwarded, %d not done, and %d dead letters", m.id, n, forwarded, open, letters)
	case letters > m.allowed(c.rules.OneHome)-acked:
		c.violate("each dead letter is there once", "%s: %d copies, %d acknowledged, and %d dead letters", m.id, n, acked, letters)
	}
}

// redriven checks how many dead letters came back.
func (c *checker) redriven() {
	sure, most := map[string]int64{}, map[string]int64{}
	for _, r := range c.all[Redrive] {
		switch r.Outcome {
		case OK:
			sure[r.Topic] += r.N
			most[r.Topic] += r.N
		case Unknown:
			most[r.Topic] += r.Most
		}
	}
	again := map[string]int64{}
	for _, m := range c.sent {
		if dead, dies := c.rules.Letters[m.topic]; dies {
			again[dead] += int64(max(0, len(m.places)-1))
		}
	}
	for _, dead := range c.rules.Letters {
		if again[dead] < sure[dead] || c.rules.OneHome && again[dead] > most[dead] {
			c.violate("a dead letter comes back once", "%d messages of %s came back; %d were answered, %d asked for", again[dead], dead, sure[dead], most[dead])
		}
	}
}
