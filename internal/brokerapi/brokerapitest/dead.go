package brokerapitest

import (
	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// ifDead skips a test of a broker that has neither Forward nor Redrive.
func ifDead(test func(*session)) func(*session) {
	return func(s *session) {
		if s.Dead == 0 {
			s.t.Skip("without dead letters")
		}
		test(s)
	}
}

func (s *session) forward(handles ...brokerapi.Handle) []error {
	s.t.Helper()
	reply, err := await(s.t, func(done func(*brokerapi.ForwardReply, error)) {
		s.Forward(&brokerapi.ForwardRequest{Head: s.head(), Topic: s.Topic, Group: s.Group, Handles: handles}, done)
	})
	require.NoError(s.t, err)
	require.Len(s.t, reply.Errors, len(handles))
	return reply.Errors
}

// A forward ends the message and stores it once as a dead letter; a wrong handle is refused by itself.
func forwards(s *session) {
	s.send(message(0, 0), message(0, 1))
	ms := s.popUntil(2)
	wrong := handle(ms[1])
	wrong.Lease += 8
	errs := s.forward(handle(ms[0]), wrong)
	require.NoError(s.t, errs[0])
	require.True(s.t, mqerr.Is(errs[1], mqerr.HandleInvalid), "%v", errs[1])
	require.NoError(s.t, s.forward(handle(ms[0]))[0], "a repeated forward")
	require.NoError(s.t, s.ack(s.Group, handle(ms[0]))[0], "an ack after it")
	require.NoError(s.t, s.ack(s.Group, handle(ms[1]))[0])
	require.NoError(s.t, s.forward(handle(ms[1]))[0], "a forward after the ack")
	dead := s.popUntil(1, s.fromDead)
	require.Equal(s.t, ms[0].Body, dead[0].Body)
	require.Equal(s.t, ms[0].Digest, dead[0].Digest)
	require.EqualValues(s.t, 1, dead[0].Attempt)
	require.Empty(s.t, s.pop(s.receive(s.fromDead)))
}

// A redrive brings dead letters back, each once, and they are gone from the dead-letter topic.
func redrives(s *session) {
	s.send(message(1, 0), message(1, 1))
	ms := s.popUntil(2)
	for _, err := range s.forward(handles(ms)...) {
		require.NoError(s.t, err)
	}
	ask := func(req brokerapi.RedriveRequest) *brokerapi.RedriveReply {
		req.Dead = s.Dead
		reply, err := s.Redrive(s.context(), &req)
		require.NoError(s.t, err)
		return reply
	}
	s.eventually(func() bool { return ask(brokerapi.RedriveRequest{}).Left == 2 })
	one := ask(brokerapi.RedriveRequest{Max: 1})
	require.Equal(s.t, []any{1, int64(1)}, []any{one.Redriven, one.Left})
	two := ask(brokerapi.RedriveRequest{Max: 10, After: one.Next})
	require.Equal(s.t, []any{1, int64(0)}, []any{two.Redriven, two.Left})
	back := s.popUntil(2)
	for i := range back {
		require.Equal(s.t, ms[i].Body, back[i].Body)
		require.Equal(s.t, ms[i].Queue, back[i].Queue)
		require.EqualValues(s.t, 1, back[i].Attempt)
	}
	require.Empty(s.t, s.pop(s.receive(s.fromDead)))
	_, err := s.Redrive(s.context(), &brokerapi.RedriveRequest{Dead: 9999, Max: 1})
	require.True(s.t, mqerr.Is(err, mqerr.TopicNotFound), "%v", err)
}

// fromDead reads the dead-letter topic as another group.
func (s *session) fromDead(r *brokerapi.PopRequest) { r.Topic, r.Group = s.Dead, s.OtherGroup }
