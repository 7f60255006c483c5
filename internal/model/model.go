// Package model is what a broker should do, said as simply as possible: the reference for the model test
// of broker/engine.
//
// It decides nothing. It is told every request with its answer, in order, and says what is wrong with the
// answer: a message that must not be there, one that is missing, a wrong attempt, a broken order. It
// knows nothing of logs, queues' files or tables (internal/archtest holds that), holds everything in plain
// maps and looks through all of it for every question. Time stands still between two calls of Step.
package model

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// State is where a message is in its life, for all groups.
type State uint8

// States.
const (
	Visible    State = iota // in its queue
	Waiting                 // for its time
	Half                    // for a verdict
	Recalled                // will never be delivered
	RolledBack              // will never be delivered
)

// Message is one stored message.
type Message struct {
	Topic     brokerapi.TopicID
	ID, Body  string
	Type      brokerapi.MessageType
	Group     uint64 // hash of the message group, 0: none
	Tag       string
	Priority  int32
	Lite      string
	DeliverAt int64
	Pos       brokerapi.LogPos
	State     State
	Queue     brokerapi.QueueID
	Offset    brokerapi.QueueOffset // -1 until it was seen in its queue
	Trimmed   bool                  // its queue begins behind it: only who has it goes on with it
	Hole      bool                  // it is deleted: nobody gets it any more

	origin brokerapi.TopicID // the topic it was sent to, 0 if no client sent it
	sent   int               // order of its send among all
	next   int64
	checks int
	stored int64 // store clock at its send
	lost   bool  // its record is deleted: sent again it is a new message
}

// Topic is a topic of the model.
type Topic struct {
	ID     brokerapi.TopicID
	Queues int
	Seen   []brokerapi.QueueOffset                     // per queue: messages below were observed
	First  map[brokerapi.QueueID]brokerapi.QueueOffset // where queues begin, if not at 0
	Lite   bool                                        // its messages are in lite topics, which are not observed
}

// Group is a consumer group of the model. It always asks with the same filter.
type Group struct {
	ID          brokerapi.GroupID
	Ordered     bool
	MaxAttempts int
	Match       func(*Message) bool
	Dead        brokerapi.TopicID // where dead letters go, 0 while there is no such topic
}

// session is a client from its first lease until its end.
type session struct {
	client string
	heard  int64
	ended  int64 // lease clock; forever while it lives
}

const forever = int64(1) << 62

// lease is what a group has done with one message.
type lease struct {
	done    bool
	pos     brokerapi.LogPos
	attempt int32
	until   int64
	session *session // nil for a plain lease
	kept    bool     // the next delivery has the same attempt number
}

// ended tells whether the lease is over.
func (l *lease) ended(now int64) bool {
	if l.session != nil {
		return min(l.until, l.session.ended) <= now
	}
	return l.until <= now
}

type subKey struct {
	topic brokerapi.TopicID
	group brokerapi.GroupID
}

// Model is the reference.
type Model struct {
	SessionTimeout, GoodbyeDelay, SessionMax int64 // ms
	CheckAfter, CheckInterval                int64 // ms
	ChecksMax                                int

	now, wall int64
	count     int
	topics    map[brokerapi.TopicID]*Topic
	groups    map[brokerapi.GroupID]*Group
	messages  []*Message
	leases    map[subKey]map[*Message]*lease
	sessions  map[string]*session
	Begins    brokerapi.LogPos // of the log: records below are deleted
	Deaths    []Death          // dead letters that are still to be seen
}

// Death is a message that must show up in a dead-letter topic.
type Death struct {
	Group brokerapi.GroupID
	Of    *Message
}

// New returns an empty model at a time in ms since 1970.
func New(now int64) *Model {
	return &Model{
		SessionTimeout: 60_000, GoodbyeDelay: 1000, SessionMax: 3 * 3600_000, CheckAfter: 6000, CheckInterval: 30_000, ChecksMax: 15,
		now: now, wall: now,
		topics: map[brokerapi.TopicID]*Topic{}, groups: map[brokerapi.GroupID]*Group{},
		leases: map[subKey]map[*Message]*lease{}, sessions: map[string]*session{},
	}
}

// Now is the lease clock in ms.
func (m *Model) Now() int64 { return m.now }

// Wall is the store clock in ms since 1970, which never goes back.
func (m *Model) Wall() int64 { return m.wall }

// Define makes a topic or group, or changes one.
func (m *Model) Define(t *Topic, g *Group) {
	if t != nil {
		t.Seen = make([]brokerapi.QueueOffset, t.Queues)
		m.topics[t.ID] = t
	}
	if g != nil {
		m.groups[g.ID] = g
	}
}

// Group returns a group.
func (m *Model) Group(id brokerapi.GroupID) *Group { return m.groups[id] }

// Seen is the offset behind what was observed of a queue.
func (m *Model) Seen(t brokerapi.TopicID, q brokerapi.QueueID) brokerapi.QueueOffset {
	if top := m.topics[t]; int(q) < len(top.Seen) {
		return top.Seen[q]
	}
	return 0
}

// DropTopic forgets a topic with all that was in it.
func (m *Model) DropTopic(id brokerapi.TopicID) {
	delete(m.topics, id)
	m.messages = slices.DeleteFunc(m.messages, func(x *Message) bool { return x.Topic == id })
	for k := range m.leases {
		if k.topic == id {
			delete(m.leases, k)
		}
	}
	m.Deaths = slices.DeleteFunc(m.Deaths, func(d Death) bool { return d.Of.Topic == id || m.groups[d.Group].Dead == id })
}

// DropGroup forgets a group with all that it has done.
func (m *Model) DropGroup(id brokerapi.GroupID) {
	delete(m.groups, id)
	for k := range m.leases {
		if k.group == id {
			delete(m.leases, k)
		}
	}
	m.Deaths = slices.DeleteFunc(m.Deaths, func(d Death) bool { return d.Group == id })
}

// Step moves the clocks and ends what time ends.
func (m *Model) Step(now, wall int64) {
	m.now, m.wall = now, max(m.wall, wall)
	for _, s := range m.sessions {
		if s.heard+m.SessionTimeout <= m.now {
			m.endSession(s, m.now)
		}
	}
	m.kill()
}

// endSession ends a client's session at a time.
func (m *Model) endSession(s *session, at int64) {
	s.ended = min(s.ended, at)
	delete(m.sessions, s.client)
}

// kill finds messages whose last delivery has ended.
func (m *Model) kill() {
	for k, all := range m.leases {
		g := m.groups[k.group]
		for _, x := range m.messages { // in order of their sends
			l := all[x]
			if l == nil || l.done || l.kept || !l.ended(m.now) || int(l.attempt) < g.MaxAttempts {
				continue
			}
			l.done = true
			m.Deaths = append(m.Deaths, Death{Group: k.group, Of: x})
		}
	}
}

// Restarted tells that the broker came back: every client gets a fresh time, and the store clock is what the
// newest record and the wall clock say.
func (m *Model) Restarted(wall int64) error {
	for _, x := range m.messages {
		if x.stored > wall {
			return wrong("the store clock is at %d, %s was stored at %d", wall, x.ID, x.stored)
		}
	}
	m.wall = wall
	for _, s := range m.sessions {
		s.heard = m.now
	}
	return nil
}

// Alive reports clients.
func (m *Model) Alive(clients ...string) {
	for _, c := range clients {
		if s := m.sessions[c]; s != nil {
			s.heard = m.now
		}
	}
}

// Goodbye ends a client's session soon.
func (m *Model) Goodbye(client string) {
	if s := m.sessions[client]; s != nil {
		m.endSession(s, m.now+m.GoodbyeDelay)
	}
}

// sub is what a group has done on a topic.
func (m *Model) sub(t brokerapi.TopicID, g brokerapi.GroupID) map[*Message]*lease {
	k := subKey{t, g}
	if m.leases[k] == nil {
		m.leases[k] = map[*Message]*lease{}
	}
	return m.leases[k]
}

// in returns the visible messages of a topic by queue and offset; those not observed yet come last.
func (m *Model) in(t brokerapi.TopicID) []*Message {
	var all []*Message
	for _, x := range m.messages {
		if x.Topic == t && x.State == Visible {
			all = append(all, x)
		}
	}
	slices.SortStableFunc(all, func(a, b *Message) int {
		if (a.Offset < 0) != (b.Offset < 0) {
			return cmp.Compare(b.Offset, a.Offset)
		}
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}

// at returns the message at a place, nil if none was seen there.
func (m *Model) at(t brokerapi.TopicID, q brokerapi.QueueID, off brokerapi.QueueOffset) *Message {
	for _, x := range m.messages {
		if x.Topic == t && x.State == Visible && x.Queue == q && x.Offset == off {
			return x
		}
	}
	return nil
}

// Messages returns the messages of a topic in a state, in the order of their sends.
func (m *Model) Messages(t brokerapi.TopicID, s State) []*Message {
	var all []*Message
	for _, x := range m.messages {
		if x.Topic == t && x.State == s {
			all = append(all, x)
		}
	}
	return all
}

func wrong(format string, args ...any) error { return fmt.Errorf(format, args...) }
