package history

import "slices"

// names checks that changes of topics and groups that were answered stand.
func (c *checker) names() {
	topics, groups := c.aged(c.all[Topics]), c.aged(c.all[Groups])
	c.named(c.all[PutTopic], c.all[DelTopic], topics)
	c.named(c.all[PutGroup], nil, groups)
	for _, l := range groups {
		for i, n := range l.Names {
			if l.Outcome == OK && !c.value(n, l.Values[i], l) {
				c.violate("changes of groups stand", "%s has the value %d at %d ms", n, l.Values[i], l.Ended/1e6)
			}
		}
	}
}

// aged are lists as if they had been asked for as early as what they show may be from.
func (c *checker) aged(lists []*Op) (out []*Op) {
	for _, l := range lists {
		old := *l
		old.Began -= c.rules.Stale
		out = append(out, &old)
	}
	return out
}

// named checks lists of what was made and deleted.
func (c *checker) named(puts, deletes, lists []*Op) {
	made, gone := byName(puts), byName(deletes)
	for _, l := range lists {
		if l.Outcome != OK {
			continue
		}
		for _, n := range l.Names {
			if !stands(made[n], gone[n], l) {
				c.violate("changes of topics and groups stand", "%s is there at %d ms, and was not made or was deleted", n, l.Ended/1e6)
			}
		}
		for n := range made {
			if !slices.Contains(l.Names, n) && certain(made[n], gone[n], l) {
				c.violate("changes of topics and groups stand", "%s was made and is not there at %d ms", n, l.Ended/1e6)
			}
		}
	}
}

func byName(ops []*Op) map[string][]*Op {
	m := map[string][]*Op{}
	for _, op := range ops {
		m[op.Names[0]] = append(m[op.Names[0]], op)
	}
	return m
}

// stands tells whether a name may be there when it is listed: one of the calls that make it may have
// come after every deletion.
func stands(made, gone []*Op, l *Op) bool {
	return slices.ContainsFunc(made, func(p *Op) bool {
		return p.Outcome != Fail && p.Began < l.Ended && !slices.ContainsFunc(gone, func(d *Op) bool {
			return d.Outcome == OK && d.Began > p.over() && d.Ended <= l.Began
		})
	})
}

// certain tells whether a name must be there when it is listed: a call made it, and no deletion may have
// come after that.
func certain(made, gone []*Op, l *Op) bool {
	return slices.ContainsFunc(made, func(p *Op) bool {
		return p.Outcome == OK && p.Ended <= l.Began && !slices.ContainsFunc(gone, func(d *Op) bool {
			return d.Outcome != Fail && d.over() > p.Began && d.Began < l.Ended
		})
	})
}

// value tells whether a group may have a value when it is listed.
func (c *checker) value(n string, v int64, l *Op) bool {
	puts := byName(c.all[PutGroup])[n]
	return slices.ContainsFunc(puts, func(p *Op) bool {
		return p.N == v && p.Outcome != Fail && p.Began < l.Ended && !slices.ContainsFunc(puts, func(o *Op) bool {
			return o.Outcome == OK && o.Began > p.over() && o.Ended <= l.Began
		})
	})
}
