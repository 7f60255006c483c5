package engine

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// slowDisk is an engine whose log does not become durable while the disk is stopped.
func slowDisk(t *testing.T) (b *bench, stop func() (release func())) {
	fs := &hookFS{FS: memfs.New()}
	b = newBench(t, Options{})
	b.fs = fs
	b.mustOpen()
	b.define()
	return b, func() func() {
		c := make(chan struct{})
		release := sync.OnceFunc(func() { close(c) })
		t.Cleanup(release)
		fs.set(func(op, name string) error {
			if op == "sync" && strings.Contains(name, "/log/") {
				<-c
			}
			return nil
		})
		return release
	}
}

// turn makes calls in one turn of the writer, which does not wait for the disk by itself: an asynchronous
// message is in it, and its answer says that the turn is over.
func (b *bench) turn(calls func()) {
	b.t.Helper()
	free := b.hold()
	over := make(chan error, 1)
	calls()
	b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicAsync), Messages: []brokerapi.Message{message("x")}}, func(_ *brokerapi.SendReply, err error) { over <- err })
	free()
	require.NoError(b.t, <-over)
}

// quiet checks that nothing comes for a while.
func quiet[R any](t *testing.T, c <-chan R) {
	t.Helper()
	select {
	case <-c:
		t.Fatal("answered before the disk has it")
	case <-time.After(50 * time.Millisecond):
	}
}

func (b *bench) popLater(req *brokerapi.PopRequest) <-chan []got {
	out := make(chan []got, 1)
	b.proxy.Pop(req, func(r *brokerapi.PopReply, err error) {
		if err != nil {
			b.t.Error(err)
		}
		defer r.Release()
		var ms []got
		for _, m := range r.Messages {
			ms = append(ms, got{m, string(m.Body)})
		}
		out <- ms
	})
	return out
}

func (b *bench) ackLater(m got) <-chan error {
	out := make(chan error, 1)
	req := &brokerapi.AckRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Handles: []brokerapi.Handle{m.handle()}}
	b.proxy.Ack(req, func(r *brokerapi.AckReply, err error) {
		if err == nil {
			err = r.Errors[0]
		}
		out <- err
	})
	return out
}

// TestRepeatedReceiveWaitsForTheDisk: the lease that it repeats may not be there yet.
func TestRepeatedReceiveWaitsForTheDisk(t *testing.T) {
	b, stop := slowDisk(t)
	b.mustSend(topicSync, "one")
	req := &brokerapi.PopRequest{
		Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Client: "c", AttemptID: "a", Max: 1, Invisible: time.Minute,
	}
	release := stop()
	var first <-chan []got
	b.turn(func() { first = b.popLater(req) })
	second := b.popLater(req)
	quiet(t, first)
	quiet(t, second)
	release()
	require.Equal(t, (<-first)[0].Lease, (<-second)[0].Lease)
}

// TestRepeatedAckWaitsForTheDisk: that the message is done may not be there yet.
func TestRepeatedAckWaitsForTheDisk(t *testing.T) {
	b, stop := slowDisk(t)
	b.mustSend(topicSync, "one")
	m := b.mustPop(topicSync, groupA)[0]
	release := stop()
	var first <-chan error
	b.turn(func() { first = b.ackLater(m) })
	second := b.ackLater(m)
	quiet(t, first)
	quiet(t, second)
	release()
	require.NoError(t, <-first)
	require.NoError(t, <-second)
}

// TestRepeatedSendWaitsForTheDisk: the message that it repeats may not be there yet.
func TestRepeatedSendWaitsForTheDisk(t *testing.T) {
	b, stop := slowDisk(t)
	release := stop()
	send := func() <-chan brokerapi.SendResult {
		out := make(chan brokerapi.SendResult, 1)
		b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{named("id", "one")}}, func(r *brokerapi.SendReply, err error) {
			if err != nil {
				t.Error(err)
				return
			}
			out <- r.Results[0]
		})
		return out
	}
	var first <-chan brokerapi.SendResult
	b.turn(func() { first = send() })
	second := send()
	quiet(t, first)
	quiet(t, second)
	release()
	require.Equal(t, again(<-first), <-second)
}

// TestHiddenUntilDurable: a message of a sync topic is neither handed out nor counted before the disk has
// it, one of an async topic is.
func TestHiddenUntilDurable(t *testing.T) {
	b, stop := slowDisk(t)
	release := stop()
	sent := make(chan error, 1)
	b.turn(func() {
		b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{message("x")}}, func(_ *brokerapi.SendReply, err error) { sent <- err })
	})
	require.Empty(t, b.mustPop(topicSync, groupA))
	require.Len(t, b.mustPop(topicAsync, groupA), 1)
	quiet(t, sent)
	qs, err := b.proxy.DescribeTopic(t.Context(), brokerapi.TopicID(topicSync))
	require.NoError(t, err)
	for _, q := range qs {
		require.Zero(t, q.Max)
		r, err := wait(t, func(done func(*brokerapi.PullReply, error)) {
			b.proxy.Pull(&brokerapi.PullRequest{Topic: brokerapi.TopicID(topicSync), Queue: q.Queue, Max: 32}, done)
		})
		require.NoError(t, err)
		require.Empty(t, r.Messages)
		require.Zero(t, r.Max)
		r.Release()
	}
	release()
	require.NoError(t, <-sent)
	require.Len(t, b.mustPop(topicSync, groupA), 1)
}

// TestAckAndEndOfItsGroup: an ack stands in the log before the deletion of its group, of the same turn.
func TestAckAndEndOfItsGroup(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one", "two")
	m := b.mustPop(topicSync, groupA)[0]
	defs := &Definitions{DeletedGroups: []record.GroupID{groupA}, Version: 9}
	var acked <-chan error
	var gone error
	b.turn(func() {
		acked = b.ackLater(m)
		b.engine.submitOwn(&callOp{do: func(w *writer) { gone = w.define(defs) }, done: func(error) {}})
	})
	require.NoError(t, <-acked)
	require.NoError(t, gone)
	before := b.views()
	b.kill()
	b.fs.(*memfs.FS).Restart()
	require.Equal(t, before, b.replayed())
}
