package model

import (
	"cmp"
	"slices"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// Popped is what a receive was answered with.
type Popped struct {
	Topic     brokerapi.TopicID
	Group     brokerapi.GroupID
	Client    string
	Max       int
	Invisible int64 // ms, above 0
	Session   bool
	Lite      map[string]bool // lite topics that the client subscribes to; nil: this is no lite group
	More      bool
	Messages  []brokerapi.Delivery
	IDs       []string // of the messages
}

// Popped checks a receive: all that came may come, and if the broker says that there is nothing more, nothing
// is left.
func (m *Model) Popped(p *Popped) error {
	g, sub := m.groups[p.Group], m.sub(p.Topic, p.Group)
	if len(p.Messages) > p.Max {
		return wrong("%d messages, asked for %d", len(p.Messages), p.Max)
	}
	var s *session
	if len(p.Messages) > 0 && p.Client != "" {
		if s = m.sessions[p.Client]; s == nil {
			s = &session{client: p.Client, ended: forever}
			m.sessions[p.Client] = s
		}
	}
	if s := m.sessions[p.Client]; s != nil {
		s.heard = m.now
	}
	if g.Ordered {
		if err := m.inOrder(p, g, sub); err != nil {
			return err
		}
	}
	for i := range p.Messages {
		if err := m.leased(p, g, sub, s, i); err != nil {
			return err
		}
	}
	if len(p.Messages) < p.Max && !p.More {
		left := slices.DeleteFunc(m.Ready(p.Topic, p.Group), func(x *Message) bool { return p.Lite != nil && !p.Lite[x.Lite] })
		if len(left) > 0 {
			return wrong("nothing more, but %d are ready, %s for one (queue %d offset %d)", len(left), left[0].ID, left[0].Queue, left[0].Offset)
		}
	}
	return nil
}

// leased checks and notes one delivery.
func (m *Model) leased(p *Popped, g *Group, sub map[*Message]*lease, s *session, i int) error {
	d := &p.Messages[i]
	x := m.at(p.Topic, d.Queue, d.Offset)
	switch {
	case x == nil:
		return wrong("queue %d offset %d holds no message that may be seen", d.Queue, d.Offset)
	case x.ID != p.IDs[i] || x.Body != string(d.Body):
		return wrong("queue %d offset %d is %s, not %s", d.Queue, d.Offset, p.IDs[i], x.ID)
	case p.Lite != nil && !p.Lite[x.Lite]:
		return wrong("%s is of lite topic %s, to which the client does not subscribe", x.ID, x.Lite)
	case !g.Match(x):
		return wrong("%s does not match the filter", x.ID)
	}
	l, attempt := sub[x], int32(1)
	if l == nil && (x.Trimmed || x.Hole) {
		return wrong("%s was handed out, it was deleted", x.ID)
	}
	if l != nil {
		switch {
		case l.done:
			return wrong("%s is done and was handed out again", x.ID)
		case !l.ended(m.now):
			return wrong("%s was handed out during its lease, which has %d ms left", x.ID, l.until-m.now)
		}
		if attempt = l.attempt + 1; l.kept {
			attempt = l.attempt
		}
	}
	if d.Attempt != attempt {
		return wrong("%s has attempt %d, not %d", x.ID, d.Attempt, attempt)
	}
	n := &lease{pos: d.Lease, attempt: attempt, until: m.now + p.Invisible + 1}
	if p.Session {
		n.until, n.session = m.now+m.SessionMax, s
	}
	sub[x] = n
	return nil
}

// lock is what the messages of one message group share.
type lock struct {
	queue brokerapi.QueueID
	group uint64
}

// inOrder checks the deliveries of an ordered group: for each message group nothing is out, and they are the
// oldest un-done messages, in order, without a gap.
func (m *Model) inOrder(p *Popped, g *Group, sub map[*Message]*lease) error {
	got := map[lock][]*Message{}
	for i := range p.Messages {
		d := &p.Messages[i]
		x := m.at(p.Topic, d.Queue, d.Offset)
		if x == nil {
			return wrong("queue %d offset %d holds no message that may be seen", d.Queue, d.Offset)
		}
		k := lock{x.Queue, x.Group}
		got[k] = append(got[k], x)
	}
	for k, ms := range got {
		undone, out := m.undone(p.Topic, g, sub, k)
		switch {
		case out != nil:
			return wrong("%s was handed out while %s of its message group is out", ms[0].ID, out.ID)
		case len(ms) > len(undone) || !slices.Equal(ms, undone[:len(ms)]):
			return wrong("message group %x of queue %d: %d messages from %s on, the oldest un-done one is %s", k.group, k.queue, len(ms), ms[0].ID, undone[0].ID)
		}
	}
	return nil
}

// undone are the un-done messages of a message group, oldest first, and one whose lease is not over.
func (m *Model) undone(t brokerapi.TopicID, g *Group, sub map[*Message]*lease, k lock) (all []*Message, out *Message) {
	for _, x := range m.in(t) {
		if x.Offset < 0 || (lock{x.Queue, x.Group}) != k || !g.Match(x) {
			continue
		}
		l := sub[x]
		if isOver(x, l) {
			continue
		}
		if l != nil && !l.ended(m.now) {
			out = x
		}
		all = append(all, x)
	}
	return all, out
}

// Ready are the messages that a group could get on a topic right now.
func (m *Model) Ready(t brokerapi.TopicID, group brokerapi.GroupID) []*Message {
	g, sub := m.groups[group], m.sub(t, group)
	locked := map[lock]bool{}
	var all []*Message
	for _, x := range m.in(t) {
		if x.Offset < 0 || !g.Match(x) {
			continue
		}
		l := sub[x]
		switch {
		case isOver(x, l):
		case l != nil && !l.ended(m.now):
			locked[lock{x.Queue, x.Group}] = true
		default:
			all = append(all, x)
		}
	}
	if g.Ordered {
		all = slices.DeleteFunc(all, func(x *Message) bool { return locked[lock{x.Queue, x.Group}] })
	}
	return all
}

// find returns the message that a handle names, and its lease if the handle is of the latest one.
func (m *Model) find(t brokerapi.TopicID, g brokerapi.GroupID, h brokerapi.Handle) (*lease, bool) {
	x := m.at(t, h.Queue, h.Offset)
	if x == nil {
		return nil, false
	}
	l := m.sub(t, g)[x]
	if l == nil {
		return nil, false
	}
	return l, l.pos == h.Lease
}

// Acked checks the answer to one handle of an ack.
func (m *Model) Acked(t brokerapi.TopicID, g brokerapi.GroupID, h brokerapi.Handle, ok bool) error {
	l, latest := m.find(t, g, h)
	if l != nil && l.done {
		return nil // done is done, whoever says so
	}
	if latest != ok {
		return wrong("ack of queue %d offset %d lease %d: accepted: %v, latest: %v", h.Queue, h.Offset, h.Lease, ok, latest)
	}
	if ok {
		l.done = true
	}
	return nil
}

// Forwarded checks the answer to one handle of a forward to the dead letters.
func (m *Model) Forwarded(t brokerapi.TopicID, g brokerapi.GroupID, h brokerapi.Handle, ok bool) error {
	l, latest := m.find(t, g, h)
	if l != nil && l.done {
		return nil
	}
	if latest != ok {
		return wrong("forward of queue %d offset %d lease %d: accepted: %v, latest: %v", h.Queue, h.Offset, h.Lease, ok, latest)
	}
	if ok {
		l.done = true
		m.Deaths = append(m.Deaths, Death{Group: g, Of: m.at(t, h.Queue, h.Offset)})
	}
	return nil
}

// Changed checks the answer to one handle of a change to invisible ms from now.
func (m *Model) Changed(t brokerapi.TopicID, g brokerapi.GroupID, h brokerapi.Handle, invisible int64, keep, ok bool) error {
	l, latest := m.find(t, g, h)
	may := latest && !l.done
	if may != ok {
		return wrong("change of queue %d offset %d lease %d: accepted: %v, should be %v", h.Queue, h.Offset, h.Lease, ok, may)
	}
	if !ok {
		return nil
	}
	l.session, l.kept, l.until = nil, keep, m.now
	if invisible > 0 {
		l.until = m.now + invisible + 1
	}
	m.kill()
	return nil
}

// Reset moves a group on a topic to an offset in each queue: below it all is done, from it on nothing was
// ever handed out.
func (m *Model) Reset(t brokerapi.TopicID, g brokerapi.GroupID, to map[brokerapi.QueueID]brokerapi.QueueOffset) {
	sub := m.sub(t, g)
	for _, x := range m.in(t) {
		switch {
		case x.Offset < 0:
		case x.Offset < to[x.Queue]:
			sub[x] = &lease{done: true}
		default:
			delete(sub, x)
		}
	}
}

// Handles are what a consumer may still hold: one for each message that was handed out to the group and is
// not reset since, latest leases, done ones too, by place.
func (m *Model) Handles(t brokerapi.TopicID, g brokerapi.GroupID) []brokerapi.Handle {
	var all []brokerapi.Handle
	for x, l := range m.sub(t, g) {
		if l.pos > 0 {
			all = append(all, brokerapi.Handle{Queue: x.Queue, Offset: x.Offset, Lease: l.pos})
		}
	}
	slices.SortFunc(all, func(a, b brokerapi.Handle) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}

// Held are the handles of messages whose latest lease is not done.
func (m *Model) Held(t brokerapi.TopicID, g brokerapi.GroupID) []brokerapi.Handle {
	return slices.DeleteFunc(m.Handles(t, g), func(h brokerapi.Handle) bool {
		l, _ := m.find(t, g, h)
		return l.done
	})
}

// Deadlines are the times after now at which leases of a group on a topic end, at the latest, in order.
func (m *Model) Deadlines(t brokerapi.TopicID, g brokerapi.GroupID) []int64 {
	var all []int64
	for _, l := range m.sub(t, g) {
		if !l.done && l.until > m.now {
			all = append(all, l.until)
		}
	}
	slices.Sort(all)
	return all
}
