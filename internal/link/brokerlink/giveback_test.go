package brokerlink_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/brokerapi/brokerapitest/membroker"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/link/brokerlink"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// held is a broker whose answers wait until they are let go.
type held struct {
	*membroker.Broker
	mu      sync.Mutex
	holding bool
	answers []func()
}

func newHeld() *held {
	h := &held{}
	h.Broker = membroker.New(membroker.Options{
		Topics: map[brokerapi.TopicID]int{1: 1}, Groups: []brokerapi.GroupID{7},
		Later: func(answer func()) {
			h.mu.Lock()
			if h.holding {
				h.answers = append(h.answers, answer)
				h.mu.Unlock()
				return
			}
			h.mu.Unlock()
			answer()
		},
	})
	return h
}

func (h *held) hold(on bool) {
	h.mu.Lock()
	h.holding = on
	answers := h.answers
	h.answers = nil
	h.mu.Unlock()
	for _, a := range answers {
		a()
	}
}

func pop(b brokerapi.Broker, within time.Duration) (*brokerapi.PopReply, error) {
	type result struct {
		r   *brokerapi.PopReply
		err error
	}
	done := make(chan result, 1)
	b.Pop(&brokerapi.PopRequest{
		Head:  brokerapi.Head{Deadline: time.Now().Add(within)},
		Topic: 1, Group: 7, Client: "c", Max: 32, Invisible: time.Hour,
	}, func(r *brokerapi.PopReply, err error) { done <- result{r, err} })
	r := <-done
	return r.r, r.err
}

func sendOne(t *testing.T, b brokerapi.Broker, size int) {
	done := make(chan error, 1)
	b.Send(&brokerapi.SendRequest{Topic: 1, Messages: []brokerapi.Message{{ID: []byte("x"), Body: make([]byte, size)}}},
		func(_ *brokerapi.SendReply, err error) { done <- err })
	require.NoError(t, <-done)
}

// slow is a transport that lets packets in with a delay.
type slow struct {
	link.Transport
	delay time.Duration
}

func (s slow) Recv() ([]byte, error) {
	packet, err := s.Transport.Recv()
	time.Sleep(s.delay)
	return packet, err
}

// shut is a transport that lets one packet in for each token, and all when the gate is closed.
type shut struct {
	link.Transport
	gate chan struct{}
}

func (s shut) Recv() ([]byte, error) {
	<-s.gate
	return s.Transport.Recv()
}

// However a pop misses its caller, its messages are there for the next one, in their first attempt.
func TestNoLeaseIsLost(t *testing.T) {
	const size = 2_000_000
	for name, miss := range map[string]func(t *testing.T, h *held){
		"the broker answers after the deadline": func(t *testing.T, h *held) {
			near, far := link.Pipe()
			s, err := brokerlink.NewServer(far, h, "p", link.Options{})
			require.NoError(t, err)
			c := brokerlink.NewClient(near, brokerapi.Events{}, link.Options{})
			h.hold(true)
			_, err = pop(c, time.Second)
			require.True(t, mqerr.Is(err, mqerr.UnknownOutcome), "error: %v", err)
			synctest.Wait()
			h.hold(false)
			synctest.Wait()
			require.NoError(t, c.Close())
			s.Wait()
		},
		"the answer crosses the deadline": func(t *testing.T, h *held) {
			near, far := link.Pipe()
			s, err := brokerlink.NewServer(far, h, "p", link.Options{})
			require.NoError(t, err)
			c := brokerlink.NewClient(slow{near, 2 * time.Second}, brokerapi.Events{}, link.Options{})
			time.Sleep(3 * time.Second)
			_, err = pop(c, time.Second)
			require.True(t, mqerr.Is(err, mqerr.UnknownOutcome), "error: %v", err)
			time.Sleep(time.Minute)
			require.NoError(t, c.Close())
			s.Wait()
		},
		"the link breaks before the broker answers": func(t *testing.T, h *held) {
			near, far := link.Pipe()
			s, err := brokerlink.NewServer(far, h, "p", link.Options{})
			require.NoError(t, err)
			c := brokerlink.NewClient(near, brokerapi.Events{}, link.Options{})
			h.hold(true)
			done := make(chan error, 1)
			go func() { _, err := pop(c, time.Hour); done <- err }()
			synctest.Wait()
			require.NoError(t, c.Close())
			require.True(t, mqerr.Is(<-done, mqerr.UnknownOutcome))
			h.hold(false)
			s.Wait()
		},
		"the link breaks while the answer waits to be sent": func(t *testing.T, h *held) {
			near, far := link.Pipe()
			gate := make(chan struct{})
			s, err := brokerlink.NewServer(far, h, "p", link.Options{})
			require.NoError(t, err)
			c := brokerlink.NewClient(shut{near, gate}, brokerapi.Events{}, link.Options{})
			done := make(chan error, 1)
			go func() { _, err := pop(c, time.Hour); done <- err }()
			gate <- struct{}{} // the windows; then the client reads no more
			synctest.Wait()
			require.Equal(t, 1, h.Held(), "the answer is larger than what the pipe holds")
			s.Close()
			close(gate)
			require.True(t, mqerr.Is(<-done, mqerr.UnknownOutcome))
			require.NoError(t, c.Close())
			s.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHeld()
				b := h.attach(t)
				sendOne(t, b, size)
				miss(t, h)
				r, err := pop(b, time.Minute)
				require.NoError(t, err)
				require.NotEmpty(t, r.Messages)
				require.Equal(t, int32(1), r.Messages[0].Attempt)
				require.Len(t, r.Messages[0].Body, size)
				r.Release()
				require.Zero(t, h.Held())
				h.Stop()
			})
		})
	}
}

func (h *held) attach(t *testing.T) brokerapi.Broker {
	b, err := h.Attach("direct", brokerapi.Events{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}
