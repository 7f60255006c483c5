package trace

import (
	"fmt"
	"slices"

	"github.com/perigee-mq/perigee/store/record"
)

// consumed is what records of consumers say.
func (t *Tracer) consumed(out []Event, r *record.Record) ([]Event, error) {
	switch r.Type {
	case record.TypePopCk:
		if err := record.DecodePopCk(r.Body, &t.ck); err != nil {
			return out, err
		}
		return t.leased(out, r.Pos, &t.ck), nil
	case record.TypePopAck:
		a, err := record.DecodePopAck(r.Body)
		for i := range a.Sections {
			out = t.acked(out, &a.Sections[i])
		}
		return out, err
	case record.TypePopChange:
		c, err := record.DecodePopChange(r.Body)
		for _, one := range c.Changes {
			if t.here(c.Topic, one.Queue, one.Offset) {
				out = append(out, t.changed(&c, one.Keep, r.Time))
			}
		}
		return out, err
	case record.TypeSkip:
		s, err := record.DecodeSkip(r.Body)
		if t.Offset >= s.From && t.Offset < s.To && t.here(s.Topic, s.Queue, t.Offset) {
			if _, held := t.Held[s.Group]; !held {
				out = append(out, Event{What: Filtered, Group: s.Group})
			}
		}
		return out, err
	case record.TypeSessionEnd:
		e, err := record.DecodeSessionEnd(r.Body)
		return t.ended(out, &e), err
	case record.TypeOffset:
		o, err := record.DecodeOffsets(r.Body)
		for _, i := range o.Items {
			if i.Kind == record.OffsetReset && t.Offset >= 0 && i.Topic == t.Topic && i.Queue == t.Queue {
				out = append(out, t.reset(&i))
			}
		}
		return out, err
	}
	return out, nil
}

// leased notes a lease, and the name of its client, which may be met again without.
func (t *Tracer) leased(out []Event, pos record.Pos, ck *record.PopCk) []Event {
	if len(ck.ClientName) > 0 {
		t.Clients[ck.Client] = string(ck.ClientName)
	}
	if t.Offset < 0 || ck.Topic != t.Topic {
		return out
	}
	for i := range ck.Sections {
		sec := &ck.Sections[i]
		if sec.Queue != t.Queue {
			continue
		}
		n, is := slices.BinarySearchFunc(sec.Items, t.Offset, func(it record.PopItem, off record.QueueOffset) int { return int(it.Offset - off) })
		if !is {
			continue
		}
		if sec.Items[n].Attempt == 0 {
			delete(t.Held, ck.Group)
			out = append(out, Event{What: Filtered, Group: ck.Group})
			continue
		}
		l := Lease{Pos: pos, Client: ck.Client, Name: t.Clients[ck.Client], Attempt: sec.Items[n].Attempt, Session: ck.Session}
		t.Held[ck.Group] = l
		e := event(Leased, ck.Group, l, "")
		if e.Until = ck.Until; ck.Session {
			e.Text = "as long as its client lives"
		}
		out = append(out, e)
	}
	return out
}

func (t *Tracer) acked(out []Event, a *record.AckSection) []Event {
	if a.Topic != t.Topic || a.Queue != t.Queue || t.Offset < 0 {
		return out
	}
	if _, is := slices.BinarySearch(a.Offsets, t.Offset); !is {
		return out
	}
	held := t.Held[a.Group]
	delete(t.Held, a.Group)
	return append(out, event(Acked, a.Group, held, ""))
}

// sameMoment is how far the clocks of store times and of leases may be apart, ms: within it a lease that is
// changed to end now counts as given back.
const sameMoment = 50

func (t *Tracer) changed(c *record.PopChange, keep bool, now int64) Event {
	e := event(Changed, c.Group, t.Held[c.Group], "")
	if e.Until = c.Until; c.Until <= now+sameMoment {
		e.What = Nacked
	}
	if keep {
		e.Text = "the next delivery counts as the same attempt"
	}
	return e
}

// ended says whose leases a session that ends gives back. Its number means another client from then on.
func (t *Tracer) ended(out []Event, e *record.SessionEnd) []Event {
	var groups []record.GroupID
	for g, l := range t.Held {
		if l.Session && l.Client == e.Client {
			groups = append(groups, g)
		}
	}
	slices.Sort(groups)
	for _, g := range groups {
		one := event(Ended, g, t.Held[g], "its client is gone")
		one.Until = e.Until
		out = append(out, one)
	}
	if t.Clients[e.Client] == "" {
		t.Clients[e.Client] = Unnamed(e.Client) // leases before this are of a client that is gone
	}
	return out
}

func (t *Tracer) reset(i *record.OffsetItem) Event {
	delete(t.Held, i.Group)
	e := Event{What: Reset, Group: i.Group, Text: fmt.Sprintf("to offset %d: done for the group", i.Offset)}
	if i.Offset <= t.Offset {
		e.Text = fmt.Sprintf("to offset %d: to be delivered again", i.Offset)
	}
	return e
}
