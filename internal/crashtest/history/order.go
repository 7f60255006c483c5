package history

import (
	"cmp"
	"slices"
)

// line is what must be in order: the messages of one message group, or of one lite topic.
type line struct{ topic, key string }

// order checks messages that have a message group or a lite topic: they stand in the order in which they
// were sent, and come one after the other.
func (c *checker) order() {
	lines := map[line][]*message{}
	for _, m := range c.sent {
		if m.key != "" && len(m.tries) > 0 {
			l := line{m.topic, m.key}
			lines[l] = append(lines[l], m)
		}
	}
	for l, all := range lines {
		c.standing(l, all)
	}
	type stream struct {
		line
		group string
	}
	came := map[stream][]*delivery{}
	for _, d := range c.came {
		if d.item.Key != "" && !c.letter(d) {
			s := stream{line{d.item.Place.Topic, d.item.Key}, d.op.Group}
			came[s] = append(came[s], d)
		}
	}
	for s, all := range came {
		c.inTurn(s.group, all)
	}
}

// standing checks where the messages of one line stand.
func (c *checker) standing(l line, all []*message) {
	var placed []*message
	for _, m := range all {
		if len(m.places) > 0 {
			placed = append(placed, m)
		}
	}
	for _, m := range placed {
		if a, b := m.places[0].queue(), placed[0].places[0].queue(); a != b {
			c.violate("a message group has one queue", "%s of %q is at %v, others at %v", m.id, l.key, a, b)
			return
		}
	}
	// Sorted by place, each must have begun to be sent before all those behind it were over.
	slices.SortFunc(placed, func(a, b *message) int { return cmp.Compare(a.places[0].Offset, b.places[0].Offset) })
	var before *message // the one that was sent last so far
	for _, m := range placed {
		if len(m.places) > 1 {
			continue
		}
		if before != nil && m.sentBy() < before.tries[0].op.Began {
			c.violate("what is sent later stands behind", "%s stands behind %s, which was sent after it", m.id, before.id)
		}
		if before == nil || m.tries[0].op.Began > before.tries[0].op.Began {
			before = m
		}
	}
	for _, m := range placed {
		c.together(m)
	}
}

// sentBy is when the last try to send a message was over.
func (m *message) sentBy() (t Time) {
	for _, try := range m.tries {
		t = max(t, try.op.over())
	}
	return t
}

// together checks that messages of one call stand in the order in which they are in it.
func (c *checker) together(m *message) {
	i := slices.Index(m.mates, m.name)
	if i < 1 {
		return
	}
	if o := c.messages[m.mates[i-1]]; len(o.places) == 1 && len(m.places) == 1 && o.key == m.key && o.places[0].Offset > m.places[0].Offset {
		c.violate("what is sent later stands behind", "%s and %s were sent in one call and stand the other way round", o.id, m.id)
	}
}

// inTurn checks that a group gets the messages of one line one after the other.
func (c *checker) inTurn(group string, all []*delivery) {
	slices.SortStableFunc(all, func(a, b *delivery) int { return cmp.Compare(a.item.At, b.item.At) })
	var places []Place // of all messages that are known by now or later
	for _, d := range all {
		places = append(places, d.item.Place)
	}
	slices.SortFunc(places, comparePlaces)
	places = slices.Compact(places)
	doneBy := map[Place]Time{} // the begin of the first ack that may have counted
	for _, p := range places {
		doneBy[p] = c.tracks[trackKey{group, p}].doneSince()
	}
	for i, d := range all {
		same := map[Place]bool{}
		for j := range d.op.Items {
			if o := &d.op.Items[j]; o.Key == d.item.Key && o.At <= d.item.At {
				same[o.Place] = true
			}
		}
		for _, p := range places {
			if p == d.item.Place || p.queue() != d.item.Place.queue() || p.Offset > d.item.Place.Offset {
				break
			}
			if !same[p] && doneBy[p] >= d.item.At {
				c.violate("a message group comes in order", "%s at %s came to %s at %d ms, and what stands at %d is not done", d.item.ID, d.item.Place, group, d.item.At/1e6, p.Offset)
				break
			}
		}
		for _, before := range all[:i] {
			if before.op == d.op || before.item.Place == d.item.Place || doneBy[before.item.Place] < d.item.At {
				continue
			}
			if until := c.until(before, d.item.At); d.item.At+c.rules.Slack < until {
				c.violate("of a message group one delivery is out", "%s came to %s at %d ms while %s is out until %d ms at least",
					d.item.ID, group, d.item.At/1e6, before.item.ID, until/1e6)
			}
		}
	}
}

// doneSince is the begin of the first call that may have ended what stands at the place.
func (t *track) doneSince() Time {
	first := Never
	for _, d := range t.deliveries {
		for _, u := range d.ends {
			if u.item.Outcome != Fail {
				first = min(first, u.op.Began)
			}
		}
	}
	return first
}

func comparePlaces(a, b Place) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Broker, b.Broker), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Offset, b.Offset))
}
