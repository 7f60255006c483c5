package brokerapitest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// ifPulls skips a test of a broker without pulls.
func ifPulls(test func(*session)) func(*session) {
	return func(s *session) {
		if !s.Pulls {
			s.t.Skip("this broker has no pulls")
		}
		test(s)
	}
}

// startPull begins a pull from queue 0 and returns what waits for its answer.
func (s *session) startPull(off brokerapi.QueueOffset, wait time.Duration, with ...func(*brokerapi.PullRequest)) func() (*brokerapi.PullReply, error) {
	req := &brokerapi.PullRequest{Head: s.head(), Topic: s.Topic, Group: s.Group, Offset: off, Max: 32, Wait: wait}
	for _, f := range with {
		f(req)
	}
	type answer struct {
		r   *brokerapi.PullReply
		err error
	}
	ch := make(chan answer, 1)
	go func() {
		r, err := await(s.t, func(done func(*brokerapi.PullReply, error)) { s.Pull(req, done) })
		ch <- answer{r, err}
	}()
	return func() (*brokerapi.PullReply, error) {
		a := <-ch
		return a.r, a.err
	}
}

func (s *session) pullBodies(off brokerapi.QueueOffset, with ...func(*brokerapi.PullRequest)) ([]string, *brokerapi.PullReply) {
	s.t.Helper()
	r, err := s.startPull(off, 0, with...)()
	require.NoError(s.t, err)
	var bodies []string
	for i, m := range r.Messages {
		require.Equal(s.t, brokerapi.QueueID(0), m.Queue)
		require.Zero(s.t, m.Lease)
		require.Equal(s.t, int32(1), m.Attempt)
		require.Positive(s.t, m.StoreTime)
		if i > 0 {
			require.Greater(s.t, m.Offset, r.Messages[i-1].Offset)
		}
		bodies = append(bodies, string(m.Body))
	}
	r.Release()
	return bodies, r
}

// A pull reads from an offset on, leases nothing, and says where to go on.
func pulls(s *session) {
	for i := range 5 {
		s.send(message(0, i))
	}
	bodies, r := s.pullBodies(1, func(q *brokerapi.PullRequest) { q.Max = 2 })
	require.Equal(s.t, []string{"body-1", "body-2"}, bodies)
	require.Equal(s.t, []brokerapi.QueueOffset{3, 0, 5}, []brokerapi.QueueOffset{r.Next, r.Min, r.Max})
	bodies, r = s.pullBodies(5)
	require.Empty(s.t, bodies)
	require.Equal(s.t, brokerapi.QueueOffset(5), r.Next)
	bodies, _ = s.pullBodies(0, func(q *brokerapi.PullRequest) { q.Group, q.MaxBytes = 0, 1 })
	require.Equal(s.t, []string{"body-0"}, bodies, "at least one, and a group is not needed")
	require.Len(s.t, s.pop(s.receive()), 5)

	s.send(tagged(5, "x"), tagged(6, "y"), tagged(7, "x"))
	bodies, r = s.pullBodies(0, func(q *brokerapi.PullRequest) {
		q.Filter = brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: []string{"y", "z"}}
	})
	require.Equal(s.t, []string{"body-6"}, bodies)
	require.Equal(s.t, brokerapi.QueueOffset(8), r.Next, "behind the last one that was looked at")
}

// A pull at the end waits for a message, for as long as it said.
func pullWaits(s *session) {
	first := s.startPull(0, patience)
	other := s.startPull(0, short, func(q *brokerapi.PullRequest) { q.Queue = 1 })
	r, err := other()
	require.NoError(s.t, err)
	require.Empty(s.t, r.Messages)
	require.Zero(s.t, r.Next)
	r.Release()
	s.send(message(0, 0))
	r, err = first()
	require.NoError(s.t, err)
	require.Len(s.t, r.Messages, 1)
	require.Equal(s.t, brokerapi.QueueOffset(1), r.Next)
	r.Release()

	last := s.another(brokerapi.Events{})
	waits := last.startPull(1, patience)
	require.NoError(s.t, last.Close())
	_, err = waits()
	refused(s.t, err, mqerr.Unavailable)
}

func pullRefusals(s *session) {
	s.send(message(0, 0))
	for kind, change := range map[mqerr.Kind]func(*brokerapi.PullRequest){
		mqerr.TopicNotFound: func(q *brokerapi.PullRequest) { q.Topic = 999 },
		mqerr.GroupNotFound: func(q *brokerapi.PullRequest) { q.Group = 999 },
		mqerr.NotFound:      func(q *brokerapi.PullRequest) { q.Queue = brokerapi.QueueID(s.Queues) },
		mqerr.Invalid:       func(q *brokerapi.PullRequest) { q.Offset = 2 },
		mqerr.Fenced:        func(q *brokerapi.PullRequest) { q.Epoch = s.Epoch + 1 },
	} {
		_, err := s.startPull(0, 0, change)()
		refused(s.t, err, kind)
	}
}

// Positions are stored and found; begin, end and time are exact.
func offsets(s *session) {
	before := s.send(message(0, 0))[0]
	s.pause(5 * time.Millisecond)
	last := s.send(message(0, 1))[0]
	ask := func(of brokerapi.OffsetOf, ms int64) (brokerapi.QueueOffset, error) {
		r, err := s.Offset(s.context(), &brokerapi.OffsetRequest{User: "suite", Of: of, Topic: s.Topic, Group: s.Group, TimeMS: ms})
		if err != nil {
			return -1, err
		}
		return r.Offset, nil
	}
	set := func(off brokerapi.QueueOffset) error {
		_, err := s.SetOffsets(s.context(), &brokerapi.SetOffsetsRequest{User: "suite", Offsets: []brokerapi.SetOffset{{Topic: s.Topic, Group: s.Group, Offset: off}}})
		return err
	}
	_, err := ask(brokerapi.OffsetOfGroup, 0)
	refused(s.t, err, mqerr.NotFound)
	for _, off := range []brokerapi.QueueOffset{2, 0, 1} {
		require.NoError(s.t, set(off))
		got, err := ask(brokerapi.OffsetOfGroup, 0)
		require.NoError(s.t, err)
		require.Equal(s.t, off, got)
	}
	refused(s.t, set(3), mqerr.Invalid)
	refused(s.t, set(-1), mqerr.Invalid)
	for _, c := range []struct {
		of   brokerapi.OffsetOf
		ms   int64
		want brokerapi.QueueOffset
	}{
		{brokerapi.OffsetBegin, 0, 0},
		{brokerapi.OffsetEnd, 0, 2},
		{brokerapi.OffsetAtTime, before.StoreTime, 0},
		{brokerapi.OffsetAtTime, before.StoreTime + 1, 1},
		{brokerapi.OffsetAtTime, last.StoreTime, 1},
		{brokerapi.OffsetAtTime, last.StoreTime + 1, 2},
	} {
		got, err := ask(c.of, c.ms)
		require.NoError(s.t, err)
		require.Equal(s.t, c.want, got, "%+v", c)
	}
}

// A reset takes effect at once, for leases as for who waits.
func resets(s *session) {
	e := &ears{}
	other := s.another(e.events())
	for i := range 3 {
		s.send(message(0, i))
	}
	old := s.pop(s.receive())
	require.Len(s.t, old, 3)
	s.ok(s.ack(s.Group, handle(old[0])))
	require.Empty(s.t, other.pop(other.receive(func(r *brokerapi.PopRequest) { r.Arm = true })))
	req := &brokerapi.ResetRequest{User: "suite", Topic: s.Topic, Group: s.Group, To: brokerapi.ResetBegin, DryRun: true}
	want := brokerapi.ResetQueue{From: 1, InFlight: 2, Again: 1}
	dry, err := s.Reset(s.context(), req)
	require.NoError(s.t, err)
	require.Equal(s.t, want, dry.Queues[0])
	require.Len(s.t, dry.Queues, s.Queues)
	req.DryRun = false
	done, err := s.Reset(s.context(), req)
	require.NoError(s.t, err)
	require.Equal(s.t, dry, done)
	require.Equal(s.t, 3, s.hears(e, s.Topic, s.Group))
	again := s.pop(s.receive())
	require.Len(s.t, again, 3)
	require.Equal(s.t, int32(1), again[1].Attempt)
	for _, err := range s.ack(s.Group, handles(old)...) {
		refused(s.t, err, mqerr.HandleInvalid)
	}
	s.ok(s.ack(s.Group, handles(again)...))
}
