package model

import (
	"slices"
	"strings"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// Sent checks the answer to a send that was accepted. window is how long a message id is remembered, ms.
func (m *Model) Sent(req *brokerapi.SendRequest, r *brokerapi.SendReply, window int64) error {
	if len(r.Results) != len(req.Messages) {
		return wrong("%d results for %d messages", len(r.Results), len(req.Messages))
	}
	for i := range req.Messages {
		if err := m.sentOne(req.Topic, &req.Messages[i], r.Results[i], window); err != nil {
			return wrong("message %d (%s): %w", i, req.Messages[i].ID, err)
		}
	}
	return nil
}

func (m *Model) sentOne(t brokerapi.TopicID, s *brokerapi.Message, r brokerapi.SendResult, window int64) error {
	if first := m.duplicate(t, s, window); first != nil {
		switch {
		case !r.Duplicate && m.mayBeLost(first):
			first.lost = true
			return m.sentOne(t, s, r, window)
		case !r.Duplicate:
			return wrong("stored again at %d, it was stored at %d", r.Pos, first.Pos)
		case r.Pos != first.Pos:
			return wrong("answered with position %d of the first copy, which is at %d", r.Pos, first.Pos)
		}
		return nil
	}
	x := &Message{
		Topic: t, origin: t, ID: string(s.ID), Body: string(s.Body), Type: s.Type, Group: s.GroupHash, Priority: s.Priority, Lite: s.Lite,
		DeliverAt: s.DeliverAt, Pos: r.Pos, Queue: r.Queue, Offset: r.Offset, sent: m.count, stored: m.wall,
	}
	m.count++
	x.Tag, _, _ = strings.Cut(x.Body, " ")
	switch {
	case r.Duplicate:
		return wrong("taken for a duplicate, it is none")
	case s.Type == brokerapi.Transaction:
		x.State, x.next = Half, m.wall+m.CheckAfter
		if s.CheckAfter > 0 {
			x.next = m.wall + s.CheckAfter.Milliseconds()
		}
	case s.DeliverAt > m.wall:
		x.State = Waiting
	}
	if x.State != Visible {
		if r.Offset != -1 {
			return wrong("offset %d of a message that is not visible yet", r.Offset)
		}
		m.messages = append(m.messages, x)
		return nil
	}
	if r.Queue < 0 || r.Offset < 0 {
		return wrong("stored in queue %d at offset %d", r.Queue, r.Offset)
	}
	if at := m.at(t, r.Queue, r.Offset); at != nil {
		return wrong("stored in queue %d at offset %d, where %s is", r.Queue, r.Offset, at.ID)
	}
	for _, o := range m.messages {
		if o.Topic == t && o.State == Visible && o.Queue == r.Queue && o.Offset > r.Offset {
			return wrong("stored in queue %d at offset %d, behind which is %s already", r.Queue, r.Offset, o.ID)
		}
	}
	m.messages = append(m.messages, x)
	return nil
}

// duplicate finds the first copy of a message within the window. A half message that was rolled back is none:
// who sends it again begins a new transaction.
func (m *Model) duplicate(t brokerapi.TopicID, s *brokerapi.Message, window int64) *Message {
	i := slices.IndexFunc(m.messages, func(x *Message) bool {
		return x.origin == t && !x.lost && x.ID == string(s.ID) && x.Body == string(s.Body) && (x.stored+window > m.wall || x.State == Half) && x.State != RolledBack
	})
	if i < 0 {
		return nil
	}
	return m.messages[i]
}

// Observed checks one message that was read from its queue, behind those observed before.
func (m *Model) Observed(t brokerapi.TopicID, d *brokerapi.Delivery, id string) error {
	top := m.topics[t]
	for int(d.Queue) >= len(top.Seen) {
		top.Seen = append(top.Seen, 0)
	}
	if d.Offset != top.Seen[d.Queue] {
		return wrong("queue %d of topic %d: offset %d after %d: offsets are not dense", d.Queue, t, d.Offset, top.Seen[d.Queue])
	}
	top.Seen[d.Queue]++
	if x := m.at(t, d.Queue, d.Offset); x != nil {
		if x.ID != id || x.Body != string(d.Body) {
			return wrong("queue %d offset %d of topic %d holds %s, not %s", d.Queue, d.Offset, t, id, x.ID)
		}
		return nil
	}
	if m.died(t, d, id) {
		return nil
	}
	for _, x := range m.messages {
		if x.Topic != t || x.ID != id || x.Body != string(d.Body) || x.Offset >= 0 {
			continue
		}
		switch {
		case x.State == Waiting && x.DeliverAt > m.wall:
			return wrong("%s is visible %d ms early", id, x.DeliverAt-m.wall)
		case x.State == Waiting || x.State == Visible:
			x.State, x.Queue, x.Offset = Visible, d.Queue, d.Offset
			return nil
		}
	}
	return wrong("queue %d offset %d of topic %d holds %s, which should not be there", d.Queue, d.Offset, t, id)
}

// died checks whether a message in a dead-letter topic is one of those that must show up there.
func (m *Model) died(t brokerapi.TopicID, d *brokerapi.Delivery, id string) bool {
	for i, death := range m.Deaths {
		if m.groups[death.Group].Dead != t || death.Of.ID != id || death.Of.Body != string(d.Body) {
			continue
		}
		m.Deaths = slices.Delete(m.Deaths, i, i+1)
		x := *death.Of
		x.Topic, x.origin, x.Queue, x.Offset, x.State, x.sent, x.Pos = t, 0, d.Queue, d.Offset, Visible, m.count, -1
		m.count++
		m.messages = append(m.messages, &x)
		return true
	}
	return false
}

// Missing names a message that should be in its queue by now and was not observed, "" if there is none.
func (m *Model) Missing(t brokerapi.TopicID) string {
	if m.topics[t].Lite {
		return ""
	}
	for _, x := range m.messages {
		if x.Topic != t {
			continue
		}
		if x.State == Waiting && x.DeliverAt <= m.wall || x.State == Visible && (x.Offset < 0 || x.Offset >= m.topics[t].Seen[x.Queue]) {
			return x.ID
		}
	}
	return ""
}

// Recalled checks the answer to a recall: ok, or refused.
func (m *Model) Recalled(x *Message, ok bool) error {
	if !ok && x.State == Recalled && m.mayBeLost(x) {
		return nil
	}
	if may := x.State == Waiting || x.State == Recalled; may != ok {
		return wrong("recall of %s in state %d: accepted: %v", x.ID, x.State, ok)
	}
	if ok {
		x.State = Recalled
	}
	return nil
}

// Newest is the newest message that was sent to the topic of x with its id: a verdict that names the id is about
// that one, wherever it is by now.
func (m *Model) Newest(x *Message) *Message {
	for _, o := range m.messages {
		if o.origin == x.origin && o.ID == x.ID {
			x = o
		}
	}
	return x
}

// Ended checks the answer to a verdict: ok, or refused.
func (m *Model) Ended(x *Message, commit, ok bool) error {
	if may := x.State == Half || commit == (x.State == Visible); may != ok {
		return wrong("verdict (commit: %v) of %s in state %d: accepted: %v", commit, x.ID, x.State, ok)
	}
	if x.State == Half {
		x.State = RolledBack
		if commit {
			x.State = Visible
		}
	}
	return nil
}

// Checked checks a check of a half message that was handed out.
func (m *Model) Checked(pos brokerapi.LogPos, checks int) error {
	i := slices.IndexFunc(m.messages, func(x *Message) bool { return x.Pos == pos })
	if i < 0 {
		return wrong("check of an unknown message at %d", pos)
	}
	x := m.messages[i]
	switch {
	case x.State != Half:
		return wrong("check of %s, which is no half message any more", x.ID)
	case x.next > m.wall:
		return wrong("check of %s %d ms early", x.ID, x.next-m.wall)
	case checks != x.checks+1:
		return wrong("check %d of %s after %d", checks, x.ID, x.checks)
	}
	x.checks, x.next = checks, m.wall+m.CheckInterval
	return nil
}

// ToCheck names a half message whose check is due, "" if there is none.
func (m *Model) ToCheck(topics ...brokerapi.TopicID) string {
	for _, x := range m.messages {
		if x.State == Half && x.next <= m.wall && x.checks < m.ChecksMax && slices.Contains(topics, x.Topic) {
			return x.ID
		}
	}
	return ""
}

// GivenUp are the half messages of a topic whose last check had no answer in time.
func (m *Model) GivenUp(t brokerapi.TopicID) []*Message {
	var all []*Message
	for _, x := range m.messages {
		if x.Topic == t && x.State == Half && x.checks >= m.ChecksMax && x.next <= m.wall {
			all = append(all, x)
		}
	}
	return all
}

// GiveUp tells that a half message must show up in another topic now.
func (m *Model) GiveUp(x *Message, to brokerapi.TopicID) {
	x.Topic, x.State, x.Queue, x.Offset = to, Visible, 0, -1
}
