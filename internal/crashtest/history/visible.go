package history

import "slices"

// places checks what stands where: each place holds one message for ever, each message was sent, and
// none is stored more often than its tries allow.
func (c *checker) places() {
	for _, d := range slices.Concat(c.came, c.pulled) {
		it := d.item
		if id, is := c.at[it.Place]; is && id != it.ID {
			c.violate("a place holds one message", "%s was %s and is %s", it.Place, id, it.ID)
		} else if !is {
			c.at[it.Place] = it.ID
			if d.message != nil && !c.letter(d) {
				d.message.places = append(d.message.places, it.Place)
			}
		}
		switch m := d.message; {
		case m == nil || len(m.tries) == 0:
			c.violate("what comes was sent", "%s at %s was never sent", it.ID, it.Place)
		case m.body != it.Body:
			c.violate("what comes was sent", "%s at %s has another body", it.ID, it.Place)
		case it.Key != m.key && !c.letter(d):
			c.violate("what comes was sent", "%s at %s has the group %q, it was sent with %q", it.ID, it.Place, it.Key, m.key)
		case it.At < m.tries[0].op.Began:
			c.violate("what comes was sent", "%s came before it was sent", it.ID)
		case m.allowed(false) == 0:
			c.violate("what was refused is not stored", "%s at %s", it.ID, it.Place)
		}
	}
	for _, m := range c.sent {
		most := m.allowed(c.rules.OneHome)
		if _, dead := c.rules.Letters[m.topic]; dead {
			continue // copies that came back from the dead letters are counted at the end
		}
		if most > 0 && len(m.places) > most {
			c.violate("a message is stored once for each try", "%s is at %v after %d tries", m.id, m.places, len(m.tries))
		}
	}
}

// allowed is how often a message may be stored.
func (m *message) allowed(once bool) (n int) {
	for _, t := range m.tries {
		if t.item.Outcome != Fail {
			n++
		}
	}
	if once {
		n = min(n, 1)
	}
	return n
}

// must tells whether a message was answered to be stored.
func (m *message) must() bool {
	return slices.ContainsFunc(m.tries, func(t try) bool { return t.item.Outcome == OK })
}

// some returns the first call of these with an outcome, nil if there is none.
func some(ops []*Op, o Outcome) *Op {
	if i := slices.IndexFunc(ops, func(op *Op) bool { return op.Outcome == o }); i >= 0 {
		return ops[i]
	}
	return nil
}

// maybe tells whether one of the calls may have happened by a time.
func maybe(ops []*Op, by Time) bool {
	return slices.ContainsFunc(ops, func(op *Op) bool { return op.Outcome != Fail && op.Began < by })
}

// visible checks that nothing comes before its time, nothing that was recalled, and nothing that was not
// committed.
func (c *checker) visible() {
	for _, d := range slices.Concat(c.came, c.pulled) {
		m := d.message
		if m == nil || c.letter(d) {
			continue
		}
		if d.item.At+c.rules.Slack < m.due {
			c.violate("nothing comes before its time", "%s came %d ms early", m.id, (m.due-d.item.At)/1e6)
		}
		if r := some(m.recalls, OK); r != nil && m.allowed(c.rules.OneHome) <= 1 {
			c.violate("what was recalled never comes", "%s came at %d ms, recalled at %d ms", m.id, d.item.At/1e6, r.Ended/1e6)
		}
		if r := some(m.rollbacks, OK); r != nil && m.allowed(c.rules.OneHome) <= 1 {
			c.violate("what was rolled back never comes", "%s came at %d ms, rolled back at %d ms", m.id, d.item.At/1e6, r.Ended/1e6)
		}
		if half(m) && !maybe(m.commits, d.item.At) {
			c.violate("only what was committed comes", "%s came at %d ms", m.id, d.item.At/1e6)
		}
	}
	for _, m := range c.sent {
		for _, r := range m.recalls {
			others := slices.ContainsFunc(m.recalls, func(o *Op) bool { return o != r && o.Outcome != Fail })
			if r.Items[0].Invalid && r.Ended+c.rules.Slack < m.due && !others && m.must() && m.allowed(false) == 1 {
				c.violate("a recall in time succeeds", "%s was refused %d ms before its time (%s)", m.id, (m.due-r.Ended)/1e6, r.Code)
			}
		}
	}
}

// half tells whether a message was sent in a transaction.
func half(m *message) bool {
	return slices.ContainsFunc(m.tries, func(t try) bool { return t.op.N == HalfMessage })
}

// HalfMessage is the N of a send of half messages.
const HalfMessage = 1
