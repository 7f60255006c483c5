package brokerapitest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

func describeTopic(s *session) {
	qs, err := s.DescribeTopic(s.context(), s.Topic)
	require.NoError(s.t, err)
	require.Len(s.t, qs, s.Queues)
	for i, q := range qs {
		require.Equal(s.t, brokerapi.TopicQueue{Queue: brokerapi.QueueID(i)}, q)
	}
	s.send(message(1, 0))
	last := s.send(message(1, 1))[0]
	qs, err = s.DescribeTopic(s.context(), s.Topic)
	require.NoError(s.t, err)
	require.Equal(s.t, brokerapi.TopicQueue{}, qs[0])
	require.Equal(s.t, brokerapi.TopicQueue{Queue: 1, Max: 2, LastMS: last.StoreTime}, qs[1])
}

// The state of a group is exact.
func describeGroup(s *session) {
	first := s.send(message(0, 0))[0]
	for i := range 5 {
		s.send(message(0, i+1))
	}
	queue := func() brokerapi.GroupQueue {
		qs, err := s.DescribeGroup(s.context(), s.Topic, s.Group)
		require.NoError(s.t, err)
		require.Len(s.t, qs, s.Queues)
		require.Equal(s.t, brokerapi.QueueID(0), qs[0].Queue)
		return qs[0]
	}
	require.Equal(s.t, brokerapi.GroupQueue{Max: 6, Ready: 6, OldestMS: first.StoreTime}, queue())

	got := s.pop(s.receive(atMost(4)))
	require.Len(s.t, got, 4)
	s.ok(s.ack(s.Group, handle(got[0]), handle(got[2])))
	q := queue()
	require.Positive(s.t, q.OldestMS)
	q.OldestMS = 0
	require.Equal(s.t, brokerapi.GroupQueue{Max: 6, Floor: 1, Next: 4, InFlight: 2, Ready: 2, Used: true}, q)

	s.ok(s.change(0, brokerapi.ChangeKeep, handle(got[1])))
	s.eventually(func() bool { q = queue(); return q.InFlight == 1 && q.Ready == 3 })
	s.ok(s.ack(s.Group, handle(got[1]), handle(got[3])))
	s.ok(s.ack(s.Group, handles(s.popUntil(2))...))
	require.Equal(s.t, brokerapi.GroupQueue{Max: 6, Floor: 6, Next: 6, Used: true}, queue())
}

// Each kind of refusal arrives as what it is, on every call that may give it.
func refusals(s *session) {
	s.send(message(0, 0))
	const nobody = 999_999
	send := func(req *brokerapi.SendRequest) error {
		_, err := await(s.t, func(done func(*brokerapi.SendReply, error)) { s.Send(req, done) })
		return err
	}
	pop := func(with ...func(*brokerapi.PopRequest)) error {
		_, err := await(s.t, func(done func(*brokerapi.PopReply, error)) { s.Pop(s.receive(with...), done) })
		return err
	}
	ack := func(h brokerapi.Head, topic brokerapi.TopicID, group brokerapi.GroupID) error {
		_, err := await(s.t, func(done func(*brokerapi.AckReply, error)) {
			s.Ack(&brokerapi.AckRequest{Head: h, Topic: topic, Group: group, Handles: make([]brokerapi.Handle, 1)}, done)
		})
		return err
	}
	change := func(h brokerapi.Head, topic brokerapi.TopicID, group brokerapi.GroupID) error {
		_, err := await(s.t, func(done func(*brokerapi.ChangeReply, error)) {
			s.Change(&brokerapi.ChangeRequest{Head: h, Topic: topic, Group: group, Handles: make([]brokerapi.Handle, 1)}, done)
		})
		return err
	}
	one := []brokerapi.Message{message(0, 1)}

	refused(s.t, send(&brokerapi.SendRequest{Head: s.head(), Topic: nobody, Messages: one}), mqerr.TopicNotFound)
	refused(s.t, pop(func(r *brokerapi.PopRequest) { r.Topic = nobody }), mqerr.TopicNotFound)
	refused(s.t, ack(s.head(), nobody, s.Group), mqerr.TopicNotFound)
	refused(s.t, change(s.head(), nobody, s.Group), mqerr.TopicNotFound)
	_, err := s.DescribeTopic(s.context(), nobody)
	refused(s.t, err, mqerr.TopicNotFound)
	_, err = s.DescribeGroup(s.context(), nobody, s.Group)
	refused(s.t, err, mqerr.TopicNotFound)

	refused(s.t, pop(func(r *brokerapi.PopRequest) { r.Group = nobody }), mqerr.GroupNotFound)
	refused(s.t, ack(s.head(), s.Topic, nobody), mqerr.GroupNotFound)
	refused(s.t, change(s.head(), s.Topic, nobody), mqerr.GroupNotFound)
	_, err = s.DescribeGroup(s.context(), s.Topic, nobody)
	refused(s.t, err, mqerr.GroupNotFound)

	later := s.head()
	later.Epoch++
	refused(s.t, send(&brokerapi.SendRequest{Head: later, Topic: s.Topic, Messages: one}), mqerr.Fenced)
	refused(s.t, pop(func(r *brokerapi.PopRequest) { r.Head = later }), mqerr.Fenced)
	refused(s.t, ack(later, s.Topic, s.Group), mqerr.Fenced)
	refused(s.t, change(later, s.Topic, s.Group), mqerr.Fenced)

	refused(s.t, send(&brokerapi.SendRequest{Head: s.head(), Topic: s.Topic}), mqerr.Invalid)
	refused(s.t, send(&brokerapi.SendRequest{Head: s.head(), Topic: s.Topic, Messages: []brokerapi.Message{message(brokerapi.QueueID(s.Queues), 1)}}), mqerr.Invalid)
	refused(s.t, send(&brokerapi.SendRequest{Head: s.head(), Topic: s.Topic, Messages: []brokerapi.Message{message(0, 1), message(brokerapi.QueueID(s.Queues), 2)}}), mqerr.Invalid)

	require.Len(s.t, s.pop(s.receive()), 1, "what was refused left nothing behind")
}

// A request whose deadline has passed does nothing.
func deadline(s *session) {
	past := s.head()
	past.Deadline = time.Now().Add(-time.Second)
	_, err := await(s.t, func(done func(*brokerapi.SendReply, error)) {
		s.Send(&brokerapi.SendRequest{Head: past, Topic: s.Topic, Messages: []brokerapi.Message{message(0, 0)}}, done)
	})
	refused(s.t, err, mqerr.Timeout)
	require.Empty(s.t, s.pop(s.receive()))
	s.send(message(0, 1))
	_, err = await(s.t, func(done func(*brokerapi.PopReply, error)) {
		s.Pop(s.receive(func(r *brokerapi.PopRequest) { r.Head = past }), done)
	})
	refused(s.t, err, mqerr.Timeout)
	require.Len(s.t, s.pop(s.receive()), 1)

	// None is none.
	none := s.head()
	none.Deadline = time.Time{}
	_, err = await(s.t, func(done func(*brokerapi.SendReply, error)) {
		s.Send(&brokerapi.SendRequest{Head: none, Topic: s.Topic, Messages: []brokerapi.Message{message(0, 2)}}, done)
	})
	require.NoError(s.t, err)
}

// A caller that gives up is let go at once, and is told nothing that is not so.
func cancelled(s *session) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, call := range []func() error{
		func() error { return s.Alive(ctx, []string{"client-1"}) },
		func() error { return s.EndSession(ctx, "client-1") },
		func() error { _, err := s.DescribeTopic(ctx, s.Topic); return err },
		func() error { _, err := s.DescribeGroup(ctx, s.Topic, s.Group); return err },
	} {
		if err := call(); err != nil {
			require.Contains(s.t, []mqerr.Kind{mqerr.Cancelled, mqerr.UnknownOutcome}, mqerr.KindOf(err), "error: %v", err)
		}
	}
	s.send(message(0, 0)) // the session goes on
}

// After Close every call is refused; others go on.
func closing(s *session) {
	s.send(message(0, 0))
	other := s.another(brokerapi.Events{})
	require.NoError(s.t, other.Close())
	_, err := await(s.t, func(done func(*brokerapi.SendReply, error)) {
		other.Send(&brokerapi.SendRequest{Head: s.head(), Topic: s.Topic, Messages: []brokerapi.Message{message(0, 1)}}, done)
	})
	refused(s.t, err, mqerr.Unavailable)
	_, err = await(s.t, func(done func(*brokerapi.PopReply, error)) { other.Pop(s.receive(), done) })
	refused(s.t, err, mqerr.Unavailable)
	_, err = await(s.t, func(done func(*brokerapi.AckReply, error)) {
		other.Ack(&brokerapi.AckRequest{Head: s.head(), Topic: s.Topic, Group: s.Group}, done)
	})
	refused(s.t, err, mqerr.Unavailable)
	_, err = await(s.t, func(done func(*brokerapi.ChangeReply, error)) {
		other.Change(&brokerapi.ChangeRequest{Head: s.head(), Topic: s.Topic, Group: s.Group}, done)
	})
	refused(s.t, err, mqerr.Unavailable)
	refused(s.t, other.Alive(s.context(), nil), mqerr.Unavailable)
	refused(s.t, other.EndSession(s.context(), "x"), mqerr.Unavailable)
	_, err = other.DescribeTopic(s.context(), s.Topic)
	refused(s.t, err, mqerr.Unavailable)
	_, err = other.DescribeGroup(s.context(), s.Topic, s.Group)
	refused(s.t, err, mqerr.Unavailable)
	require.NoError(s.t, other.Close(), "closing twice")
	require.Len(s.t, s.pop(s.receive()), 1)

	// Calls in flight are answered, whatever the answer is.
	last := s.another(brokerapi.Events{})
	const n = 50
	answers := make(chan error, n)
	for i := range n {
		last.Send(&brokerapi.SendRequest{Head: s.head(), Topic: s.Topic, Messages: []brokerapi.Message{message(0, 10+i)}},
			func(_ *brokerapi.SendReply, err error) { answers <- err })
	}
	require.NoError(s.t, last.Close())
	for range n {
		select {
		case err := <-answers:
			if err != nil {
				require.Contains(s.t, []mqerr.Kind{mqerr.Unavailable, mqerr.UnknownOutcome}, mqerr.KindOf(err), "error: %v", err)
			}
		case <-time.After(patience):
			s.t.Fatal("a call in flight was not answered")
		}
	}
}

// Many callers at a time get each message once, and every ack holds.
func concurrent(s *session) {
	const senders, each, receivers = 16, 40, 8
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]int{}
	stored := map[string]bool{}
	total := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
	for i := range senders {
		wg.Go(func() {
			for j := range each {
				m := message(brokerapi.AnyQueue, i*each+j)
				if j%10 == 0 {
					m.Body = append(m.Body, body(100_000, byte(j))...)
				}
				r, err := await(s.t, func(done func(*brokerapi.SendReply, error)) {
					s.Send(&brokerapi.SendRequest{Head: s.head(), Topic: s.Topic, Messages: []brokerapi.Message{m}}, done)
				})
				if err != nil {
					s.t.Error(err)
					return
				}
				mu.Lock()
				place := fmt.Sprint(r.Results[0].Queue, "/", r.Results[0].Offset)
				if stored[place] {
					s.t.Errorf("two messages at %s", place)
				}
				stored[place] = true
				mu.Unlock()
			}
		})
	}
	end := time.Now().Add(patience)
	for i := range receivers {
		wg.Go(func() {
			for total() < senders*each && time.Now().Before(end) {
				reply, err := await(s.t, func(done func(*brokerapi.PopReply, error)) {
					s.Pop(s.receive(func(r *brokerapi.PopRequest) { r.Client = fmt.Sprint("client-", i); r.Max = 5 }), done)
				})
				if err != nil {
					s.t.Error(err)
					return
				}
				if len(reply.Messages) == 0 {
					reply.Release()
					s.pause(time.Millisecond)
					continue
				}
				mu.Lock()
				for _, d := range reply.Messages {
					seen[fmt.Sprint(d.Queue, "/", d.Offset)]++
				}
				mu.Unlock()
				hs := handles(reply.Messages)
				reply.Release()
				for _, err := range s.ack(s.Group, hs...) {
					if err != nil {
						s.t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	require.Equal(s.t, senders*each, len(seen))
	for place, n := range seen {
		require.Equal(s.t, 1, n, place)
		require.True(s.t, stored[place], place)
	}
	qs, err := s.DescribeGroup(s.context(), s.Topic, s.Group)
	require.NoError(s.t, err)
	for _, q := range qs {
		require.Equal(s.t, q.Max, q.Floor)
		require.Zero(s.t, q.InFlight)
	}
}
