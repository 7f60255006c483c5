package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/record"
)

// byHand is other replicas whose confirm offset a test sets: to the end of the log each time it is asked, until it
// holds.
type byHand struct {
	mu    sync.Mutex
	store *store.Store
	at    record.Pos
	held  bool
	moved chan struct{} // closed when it changed
	stuck atomic.Pointer[error]
	over  error // why nothing will be confirmed any more
}

func (h *byHand) Confirmed() record.Pos {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.held {
		h.at = max(h.at, h.store.Log().Durable())
	}
	return h.at
}

func (h *byHand) Memory() bool { return false }

func (h *byHand) Grown() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tellLocked()
}

// tellLocked wakes those who wait.
func (h *byHand) tellLocked() {
	close(h.moved)
	h.moved = make(chan struct{})
}

func (h *byHand) hold(on bool) {
	h.Confirmed()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = on
	h.tellLocked()
}

// Stuck tells what the test has put in.
func (h *byHand) Stuck() error {
	if err := h.stuck.Load(); err != nil {
		return *err
	}
	return nil
}

func (h *byHand) Await(ctx context.Context, pos record.Pos) error {
	for {
		h.mu.Lock()
		moved, over := h.moved, h.over
		h.mu.Unlock()
		if h.Confirmed() >= pos {
			return nil
		}
		if over != nil {
			return over
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// openReplicated opens a bench as the master of several replicas.
func openReplicated(t *testing.T, o Options) (*bench, *byHand) {
	b := newBench(t, o)
	h := &byHand{moved: make(chan struct{})}
	b.opt.Replicas = h
	b.took = func(st *store.Store) { h.store = st }
	b.mustOpen()
	b.define()
	return b, h
}

// TestStuckReplicasRefuse: while nothing can be confirmed requests are refused with the reason, before anything is
// written; the engine's own work goes on.
func TestStuckReplicasRefuse(t *testing.T) {
	b, h := openReplicated(t, Options{})
	var why error = mqerr.New(mqerr.NotEnoughReplicas, "nobody there")
	h.stuck.Store(&why)
	end := b.store.Log().Written()
	done := make(chan error, 1)
	b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{message("refused")}}, func(_ *brokerapi.SendReply, err error) { done <- err })
	require.ErrorIs(t, <-done, why)
	_, err := b.engine.Views(t.Context())
	require.NoError(t, err, "questions are answered")
	require.Equal(t, end, b.store.Log().Written())
	h.stuck.Store(nil)
	b.sendAll(topicSync, message("taken"))
}

// TestNothingAboveTheConfirmOffset: what the other replicas have not confirmed is not answered and not seen by
// anybody, whatever the flush policy says; it is when they have.
func TestNothingAboveTheConfirmOffset(t *testing.T) {
	b, h := openReplicated(t, Options{})
	for _, id := range []record.TopicID{topicSync, topicAsync} {
		b.sendAll(id, message("before"))
	}
	leased := b.mustPop(topicSync, groupA)
	require.Len(t, leased, 1)
	h.hold(true)

	late := message("late")
	late.Sys = sysKeys("k")
	var answers sync.WaitGroup
	answered := make(chan string, 16)
	call := func(name string, f func(done func(error))) {
		answers.Add(1)
		f(func(err error) {
			defer answers.Done()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			answered <- name
		})
	}
	for _, id := range []record.TopicID{topicSync, topicAsync} {
		call(fmt.Sprintf("send to %d", id), func(done func(error)) {
			b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(id), Messages: []brokerapi.Message{late}}, func(_ *brokerapi.SendReply, err error) { done(err) })
		})
		call(fmt.Sprintf("receive of %d", id), func(done func(error)) {
			b.proxy.Pop(&brokerapi.PopRequest{Topic: brokerapi.TopicID(id), Group: brokerapi.GroupID(groupB), Max: 32, Invisible: time.Minute, Client: "c"}, func(r *brokerapi.PopReply, err error) {
				if err == nil {
					if len(r.Messages) != 1 || string(r.Messages[0].Body) != "before" {
						t.Errorf("topic %d: what is not confirmed was received: %v", id, r.Messages)
					}
					r.Release()
				}
				done(err)
			})
		})
	}
	call("ack", func(done func(error)) {
		b.proxy.Ack(&brokerapi.AckRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Handles: []brokerapi.Handle{leased[0].handle()}}, func(_ *brokerapi.AckReply, err error) { done(err) })
	})
	for range 20 { // turns of the writer, and of the syncer
		require.NoError(t, b.engine.call(t.Context(), func(*writer) {}))
	}
	require.NoError(t, b.store.Log().Sync())
	require.NoError(t, b.engine.call(t.Context(), func(*writer) {}))
	select {
	case name := <-answered:
		t.Errorf("%s was answered before it was confirmed", name)
	default:
	}
	for _, id := range []record.TopicID{topicSync, topicAsync} {
		require.Empty(t, b.find(brokerapi.FindRequest{Topic: brokerapi.TopicID(id), Key: "k"}).Messages, "of topic %d", id)
		for q := range 2 {
			r, err := wait(t, func(done func(*brokerapi.PullReply, error)) {
				b.proxy.Pull(&brokerapi.PullRequest{Topic: brokerapi.TopicID(id), Queue: brokerapi.QueueID(q), Max: 32}, done)
			})
			require.NoError(t, err)
			for _, m := range r.Messages {
				require.Equal(t, "before", string(m.Body))
			}
			r.Release()
		}
	}

	h.hold(false)
	b.engine.Confirm()
	answers.Wait()
	require.Len(t, b.find(brokerapi.FindRequest{Topic: brokerapi.TopicID(topicAsync), Key: "k"}).Messages, 1)
}

// TestCheckpointIsConfirmed: no checkpoint stands for what other replicas have not confirmed.
func TestCheckpointIsConfirmed(t *testing.T) {
	b, h := openReplicated(t, Options{CheckpointBytes: 32 << 10})
	h.hold(true)
	held := h.Confirmed()
	var answers sync.WaitGroup
	for range 20 {
		answers.Add(1)
		b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{message(string(make([]byte, 8<<10)))}},
			func(*brokerapi.SendReply, error) { answers.Done() })
	}
	b.clock.advance(time.Hour)
	for range 20 {
		require.NoError(t, b.engine.call(t.Context(), func(*writer) {}))
	}
	saved := record.Pos(0)
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) { saved = w.saved.at }))
	require.LessOrEqual(t, saved, held)
	h.hold(false)
	b.engine.Confirm()
	answers.Wait()
	b.until("a checkpoint", func() bool {
		b.clock.advance(time.Minute)
		require.NoError(t, b.engine.call(t.Context(), func(w *writer) { saved = w.saved.at }))
		return saved > held
	})
}

// TestCheckpointOfAnEpochThatIsOver: a checkpoint that is given up, since the replica leads no more, is no failure of the
// disk.
func TestCheckpointOfAnEpochThatIsOver(t *testing.T) {
	b, h := openReplicated(t, Options{})
	h.hold(true)
	b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{message("waits")}}, func(*brokerapi.SendReply, error) {})
	b.until("a checkpoint that waits", func() (busy bool) {
		b.clock.advance(time.Minute)
		require.NoError(t, b.engine.call(t.Context(), func(w *writer) { busy = w.saved.busy }))
		return busy
	})
	h.mu.Lock()
	h.over = mqerr.New(mqerr.Draining, "it leads no more")
	h.tellLocked()
	h.mu.Unlock()
	b.until("the end of the checkpoint", func() (over bool) {
		require.NoError(t, b.engine.call(t.Context(), func(w *writer) { over = !w.saved.busy }))
		return over
	})
	require.Zero(t, b.engine.counts.CheckpointFailures.Load())
}

// TestStopUnconfirmed: a master that stops while the other replicas do not answer tells who waits that the outcome is
// unknown, and leaves no checkpoint of what they may not have.
func TestStopUnconfirmed(t *testing.T) {
	b, h := openReplicated(t, Options{HandOver: time.Millisecond})
	b.sendAll(topicSync, message("before"))
	h.hold(true)
	outcome := make(chan error, 1)
	b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{message("late")}},
		func(_ *brokerapi.SendReply, err error) { outcome <- err })
	require.NoError(t, b.engine.call(t.Context(), func(*writer) {}))
	_, err := b.engine.Close()
	require.NoError(t, err)
	require.True(t, mqerr.Is(<-outcome, mqerr.UnknownOutcome))
	require.NoError(t, b.store.Close())
	b.engine = nil

	st := b.openStore()
	defer st.Close()
	if c := st.Checkpoint(); c != nil {
		require.LessOrEqual(t, c.Pos, h.at)
	}
}
