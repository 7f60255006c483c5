package history

import "slices"

// wasReset tells whether a reset of a group may have happened in a time.
func (c *checker) wasReset(group, topic string, from, to Time) bool {
	for _, r := range c.resetsOf[Sub{group, topic}] {
		if r.Outcome != Fail && r.Began < to && r.over() > from {
			return true
		}
	}
	return false
}

// resets checks that what a reset has left behind does not come.
func (c *checker) resets() {
	for _, r := range c.all[Reset] {
		if r.Outcome != OK {
			continue
		}
		for _, q := range r.Queues {
			for _, d := range c.came {
				p := d.item.Place
				if d.op.Group != r.Group || p.queue() != q.bare() || p.Offset >= q.To || d.op.Began < r.Ended {
					continue
				}
				if !slices.ContainsFunc(c.all[Reset], func(o *Op) bool {
					return o != r && o.Group == r.Group && o.Topic == r.Topic && o.Outcome != Fail && o.Began < d.item.At && o.over() > r.Began
				}) {
					c.violate("nothing comes from behind a reset", "%s came to %s, which was reset to %d", p, r.Group, q.To)
				}
			}
		}
	}
}

// offsets checks positions that pull consumers have stored, which only grow, and what they pull.
func (c *checker) offsets() {
	for _, g := range c.all[GetOffset] {
		if g.Outcome != OK || len(g.Queues) == 0 {
			continue
		}
		low, high := int64(-1), int64(-1)
		for _, s := range c.all[SetOffset] {
			if s.Group != g.Group || s.Queues[0] != g.Queues[0] || s.Outcome == Fail {
				continue
			}
			if s.Outcome == OK && s.Ended <= g.Began {
				low = max(low, s.N)
			}
			if s.Began < g.Ended {
				high = max(high, s.N)
			}
		}
		if g.N < low || g.N > high {
			c.violate("stored positions never go back", "%s of %v is %d; %d was stored, up to %d was asked for", g.Group, g.Queues[0], g.N, low, high)
		}
	}
	for _, p := range c.all[Pull] {
		next := p.N
		if _, letters := c.origin[p.Topic]; letters {
			continue // those that were moved back are left out
		}
		for i := range p.Items {
			at := p.Items[i].Place
			if c.rules.Retention {
				next = max(next, at.Offset)
			}
			if at.queue() != p.Queues[0] || at.Offset != next {
				c.violate("a pull goes through its queue in order", "from %d of %v came %s, not offset %d", p.N, p.Queues[0], at, next)
				break
			}
			next++
		}
	}
}
