package brokerapitest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// A message that was not acked comes again after its invisible time; then the first handle is over.
func redelivery(s *session) {
	s.send(message(0, 0))
	start := time.Now()
	first := s.pop(s.receive(visibleAfter(short)))
	require.Len(s.t, first, 1)
	again := s.popUntil(1)
	require.GreaterOrEqual(s.t, time.Since(start), short-10*time.Millisecond)
	require.Equal(s.t, first[0].Offset, again[0].Offset)
	require.Equal(s.t, string(first[0].Body), string(again[0].Body))
	require.Equal(s.t, int32(2), again[0].Attempt)
	require.NotEqual(s.t, first[0].Lease, again[0].Lease)

	refused(s.t, s.ack(s.Group, handle(first[0]))[0], mqerr.HandleInvalid)
	refused(s.t, s.change(time.Minute, brokerapi.ChangeLease, handle(first[0]))[0], mqerr.HandleInvalid)
	s.ok(s.ack(s.Group, handle(again[0])))
}

// Acks take effect on the exact message, in any order, any number of times, and until the message is
// handed out again.
func acks(s *session) {
	for i := range 6 {
		s.send(message(0, i))
	}
	got := s.pop(s.receive(visibleAfter(short)))
	require.Len(s.t, got, 6)
	s.ok(s.ack(s.Group, handle(got[4]), handle(got[1])))
	s.ok(s.ack(s.Group, handle(got[1])))
	forged := handle(got[0])
	forged.Lease++
	errs := s.ack(s.Group, forged, handle(got[2]), brokerapi.Handle{Queue: 1, Offset: 0, Lease: got[0].Lease}, brokerapi.Handle{Queue: 99, Offset: -5})
	refused(s.t, errs[0], mqerr.HandleInvalid)
	require.NoError(s.t, errs[1])
	refused(s.t, errs[2], mqerr.HandleInvalid)
	refused(s.t, errs[3], mqerr.HandleInvalid)

	s.pause(short + 100*time.Millisecond)
	s.ok(s.ack(s.Group, handle(got[0]))) // expired, but nobody else has it
	again := s.popUntil(2)
	require.Equal(s.t, brokerapi.QueueOffset(3), again[0].Offset)
	require.Equal(s.t, brokerapi.QueueOffset(5), again[1].Offset)
	require.Empty(s.t, s.ack(s.Group))
}

// Groups do not touch each other.
func groups(s *session) {
	s.send(message(0, 0))
	other := func(r *brokerapi.PopRequest) { r.Group = s.OtherGroup }
	first, second := s.pop(s.receive()), s.pop(s.receive(other))
	require.Len(s.t, first, 1)
	require.Len(s.t, second, 1)
	refused(s.t, s.ack(s.Group, handle(second[0]))[0], mqerr.HandleInvalid)
	s.ok(s.ack(s.OtherGroup, handle(second[0])))
	s.ok(s.ack(s.Group, handle(first[0])))
}

// A change moves the end of a lease; the handles stay valid.
func change(s *session) {
	for i := range 3 {
		s.send(message(0, i))
	}
	got := s.pop(s.receive(visibleAfter(short)))
	require.Len(s.t, got, 3)
	s.ok(s.change(time.Minute, brokerapi.ChangeLease, handle(got[0])))
	s.ok(s.change(0, brokerapi.ChangeLease, handle(got[1])))
	s.ok(s.ack(s.Group, handle(got[2])))
	refused(s.t, s.change(time.Minute, brokerapi.ChangeLease, handle(got[2]))[0], mqerr.HandleInvalid)

	nacked := s.popUntil(1)
	require.Equal(s.t, got[1].Offset, nacked[0].Offset)
	require.Equal(s.t, int32(2), nacked[0].Attempt)
	s.pause(short + 100*time.Millisecond)
	require.Empty(s.t, s.pop(s.receive()), "the first lease was made longer")
	s.ok(s.ack(s.Group, handle(got[0])))

	errs := s.change(time.Minute, brokerapi.ChangeLease, handle(got[1]), handle(nacked[0]))
	refused(s.t, errs[0], mqerr.HandleInvalid)
	require.NoError(s.t, errs[1])
}

// What was given back comes again at once with the same attempt number.
func giveBack(s *session) {
	s.send(message(0, 0))
	got := s.pop(s.receive())
	require.Len(s.t, got, 1)
	s.ok(s.change(0, brokerapi.ChangeKeep, handle(got[0])))
	again := s.popUntil(1)
	require.Equal(s.t, int32(1), again[0].Attempt)
	require.NotEqual(s.t, got[0].Lease, again[0].Lease)
	start := time.Now() // before the change, whose answer may come late
	s.ok(s.change(short, brokerapi.ChangeKeep, handle(again[0])))
	third := s.popUntil(1)
	require.GreaterOrEqual(s.t, time.Since(start), short-50*time.Millisecond)
	require.Equal(s.t, int32(1), third[0].Attempt)
	s.ok(s.change(0, brokerapi.ChangeLease, handle(third[0])))
	require.Equal(s.t, int32(2), s.popUntil(1)[0].Attempt)
}

// A pop that is repeated under the same attempt id gets what it had got, as far as that is not done.
func attemptID(s *session) {
	for i := range 4 {
		s.send(message(0, i))
	}
	attempt := func(id string) func(*brokerapi.PopRequest) {
		return func(r *brokerapi.PopRequest) { r.AttemptID, r.Max = id, 3 }
	}
	first := s.pop(s.receive(attempt("one")))
	require.Len(s.t, first, 3)
	require.Equal(s.t, first, s.pop(s.receive(attempt("one"))))
	s.ok(s.ack(s.Group, handle(first[1])))
	rest := s.pop(s.receive(attempt("one")))
	require.Equal(s.t, []brokerapi.Delivery{first[0], first[2]}, rest)

	another := func(r *brokerapi.PopRequest) { r.AttemptID, r.Client = "one", "client-2" }
	fourth := s.pop(s.receive(another))
	require.Len(s.t, fourth, 1, "another client's attempt")
	require.Equal(s.t, brokerapi.QueueOffset(3), fourth[0].Offset)
	require.Empty(s.t, s.pop(s.receive(attempt("two"))))
}

func inSession(client string) func(*brokerapi.PopRequest) {
	return func(r *brokerapi.PopRequest) { r.Session, r.Client, r.Invisible = true, client, short }
}

// A session lease outlives its invisible time and ends soon after the client has said goodbye.
func sessionLease(s *session) {
	s.send(message(0, 0), message(0, 1))
	got := s.pop(s.receive(inSession("client-1"), atMost(1)))
	require.Len(s.t, got, 1)
	other := s.pop(s.receive(inSession("client-2")))
	require.Len(s.t, other, 1)
	s.pause(short + 200*time.Millisecond)
	require.Empty(s.t, s.pop(s.receive()))

	require.NoError(s.t, s.Alive(s.context(), []string{"client-1", "client-2", "never seen"}))
	require.NoError(s.t, s.Alive(s.context(), nil))
	require.NoError(s.t, s.EndSession(s.context(), "client-1"))
	require.NoError(s.t, s.EndSession(s.context(), "never seen"))
	again := s.popUntil(1)
	require.Equal(s.t, got[0].Offset, again[0].Offset)
	require.Equal(s.t, int32(2), again[0].Attempt)
	s.ok(s.ack(s.Group, handle(other[0]), handle(again[0])))

	// A change makes a session lease a plain one.
	s.send(message(0, 2))
	got = s.pop(s.receive(inSession("client-2")))
	require.Len(s.t, got, 1)
	s.ok(s.change(0, brokerapi.ChangeLease, handle(got[0])))
	require.Len(s.t, s.popUntil(1), 1)
}

// The session of a client that nobody reports ends; a report keeps it.
func sessionTimeout(s *session) {
	if s.SessionTimeout == 0 || s.SessionTimeout > 2*time.Second {
		s.t.Skip("the session timeout is too long to wait for")
	}
	s.send(message(0, 0), message(0, 1))
	silent := s.pop(s.receive(inSession("silent"), atMost(1)))
	require.Len(s.t, silent, 1)
	require.Len(s.t, s.pop(s.receive(inSession("living"))), 1)
	var again []brokerapi.Delivery
	for end := time.Now().Add(2 * s.SessionTimeout); time.Now().Before(end); s.pause(s.SessionTimeout / 10) {
		require.NoError(s.t, s.Alive(s.context(), []string{"living"}))
		again = append(again, s.pop(s.receive())...)
	}
	require.Len(s.t, again, 1)
	require.Equal(s.t, silent[0].Offset, again[0].Offset)
}
