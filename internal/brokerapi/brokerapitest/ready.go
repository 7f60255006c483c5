package brokerapitest

import (
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// ears collects events.
type ears struct {
	mu  sync.Mutex
	all []brokerapi.Ready
}

func (e *ears) events() brokerapi.Events {
	return brokerapi.Events{Ready: func(r []brokerapi.Ready) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, r...)
	}}
}

// heard takes what was heard so far.
func (e *ears) heard() []brokerapi.Ready {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

// hears waits for one event for the group and returns its count.
func (s *session) hears(e *ears, topic brokerapi.TopicID, group brokerapi.GroupID) int {
	s.t.Helper()
	var got []brokerapi.Ready
	s.eventually(func() bool {
		got = append(got, e.heard()...)
		return len(got) > 0
	})
	require.Len(s.t, got, 1)
	require.Equal(s.t, topic, got[0].Topic)
	require.Equal(s.t, group, got[0].Group)
	require.GreaterOrEqual(s.t, got[0].Count, 1)
	return got[0].Count
}

// hearsNothing gives events time to come.
func (s *session) hearsNothing(e *ears) {
	s.t.Helper()
	s.pause(100 * time.Millisecond)
	require.Empty(s.t, e.heard())
}

// A reply tells whether there is more to have.
func more(s *session) {
	reply := s.popReply(s.receive())
	require.Empty(s.t, reply.Messages)
	require.False(s.t, reply.More)
	reply.Release()
	s.send(message(0, 0), message(0, 1))
	reply = s.popReply(s.receive(atMost(1)))
	require.Len(s.t, reply.Messages, 1)
	require.True(s.t, reply.More)
	reply.Release()
	reply = s.popReply(s.receive(atMost(1)))
	require.Len(s.t, reply.Messages, 1)
	require.False(s.t, reply.More)
	reply.Release()
}

// An armed group hears once of something new; an unarmed one, and other groups, nothing.
func arm(s *session) {
	var e ears
	s = s.another(e.events())
	require.Empty(s.t, s.pop(s.receive()))
	s.send(message(0, 0))
	s.hearsNothing(&e)
	require.Len(s.t, s.pop(s.receive()), 1)

	require.Empty(s.t, s.pop(s.receive(armed)))
	elsewhere := func(r *brokerapi.PopRequest) { r.Topic, r.Arm = s.OtherTopic, true }
	require.Empty(s.t, s.pop(s.receive(elsewhere)))
	s.hearsNothing(&e)
	s.send(message(0, 1), message(0, 2))
	require.LessOrEqual(s.t, s.hears(&e, s.Topic, s.Group), 2)
	s.send(message(0, 3))
	s.hearsNothing(&e)

	require.Len(s.t, s.pop(s.receive()), 3)
	for i := range 20 {
		require.Empty(s.t, s.pop(s.receive(armed)))
		s.send(message(brokerapi.AnyQueue, 10+i))
		s.hears(&e, s.Topic, s.Group)
		require.Len(s.t, s.pop(s.receive()), 1)
	}
}

// A pop that found messages arms as well, unless there is more.
func armAfterMessages(s *session) {
	var e ears
	s = s.another(e.events())
	s.send(message(0, 0), message(0, 1), message(0, 2))
	reply := s.popReply(s.receive(armed, atMost(2)))
	require.Len(s.t, reply.Messages, 2)
	require.True(s.t, reply.More)
	reply.Release()
	s.send(message(0, 3))
	s.hearsNothing(&e)

	reply = s.popReply(s.receive(armed))
	require.Len(s.t, reply.Messages, 2)
	require.False(s.t, reply.More)
	reply.Release()
	s.send(message(0, 4))
	require.Equal(s.t, 1, s.hears(&e, s.Topic, s.Group))
}

// An event comes also for a message that is visible again.
func armForRedelivery(s *session) {
	var e ears
	s = s.another(e.events())
	s.send(message(0, 0))
	start := time.Now()
	got := s.pop(s.receive(visibleAfter(short), armed))
	require.Len(s.t, got, 1)
	s.hears(&e, s.Topic, s.Group)
	require.GreaterOrEqual(s.t, time.Since(start), short-10*time.Millisecond)
	got = s.pop(s.receive(armed))
	require.Len(s.t, got, 1)
	s.ok(s.change(0, brokerapi.ChangeKeep, handle(got[0])))
	s.hears(&e, s.Topic, s.Group)
	require.Len(s.t, s.pop(s.receive()), 1)
}

// Each proxy hears of what it armed; one that has gone hears nothing.
func armTwoProxies(s *session) {
	var one, two, three ears
	a, b, c := s.another(one.events()), s.another(two.events()), s.another(three.events())
	for _, p := range []*session{a, b, c} {
		require.Empty(s.t, p.pop(p.receive(armed)))
	}
	require.NoError(s.t, c.Close())
	s.send(message(0, 0))
	a.hears(&one, s.Topic, s.Group)
	b.hears(&two, s.Topic, s.Group)
	s.hearsNothing(&three)
}
