package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/record"
)

// TestSessionLeaseNeedsAClient: without one the lease could not stand in a record; it once stopped the
// broker.
func TestSessionLeaseNeedsAClient(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one")
	_, err := wait(t, func(done func(*brokerapi.PopReply, error)) {
		b.proxy.Pop(&brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Max: 1, Session: true}, done)
	})
	require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
	require.NoError(t, b.engine.Failure())
	require.Len(t, b.mustPop(topicSync, groupA), 1)
}

// TestBoundHoldsUntilTheAnswer: requests that the writer has taken and that wait for the disk count, too.
func TestBoundHoldsUntilTheAnswer(t *testing.T) {
	fs := &hookFS{FS: memfs.New()}
	b := newBench(t, Options{PendingRequests: 3})
	b.fs = fs
	b.mustOpen()
	b.define()
	stuck := make(chan struct{})
	release := sync.OnceFunc(func() { close(stuck) })
	defer release()
	fs.set(func(op, name string) error {
		if op == "sync" && strings.Contains(name, "log") {
			<-stuck
		}
		return nil
	})
	free := b.hold()
	answers := make(chan error, 3)
	for _, id := range []record.TopicID{topicSync, topicSync, topicAsync} {
		b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(id), Messages: []brokerapi.Message{message("x")}}, func(_ *brokerapi.SendReply, err error) {
			answers <- err
		})
	}
	free()
	require.NoError(t, <-answers, "the asynchronous one does not wait for the disk")
	b.mustSend(topicAsync, "one more is under way at a time")
	third := make(chan error, 1)
	b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{message("x")}}, func(_ *brokerapi.SendReply, err error) { third <- err })
	_, err := b.send(topicAsync, "too many")
	require.True(t, mqerr.Is(err, mqerr.Exhausted), "%v", err)
	release()
	require.NoError(t, <-answers)
	require.NoError(t, <-answers)
	require.NoError(t, <-third)
	b.mustSend(topicSync, "they are answered: there is room again")
}

// TestStartAndEnd: nothing is taken before Start or after Close; Close may come early and twice.
func TestStartAndEnd(t *testing.T) {
	st, err := store.Open(storeOptions(memfs.New()))
	require.NoError(t, err)
	e, err := Open(Options{Store: st, Clock: newClock()})
	require.NoError(t, err)
	_, err = e.Attach("early", brokerapi.Events{})
	require.True(t, mqerr.Is(err, mqerr.Unavailable), "%v", err)
	_, err = e.Snapshot(t.Context())
	require.True(t, mqerr.Is(err, mqerr.Unavailable), "%v", err)
	_, err = e.Close()
	require.NoError(t, err)
	require.NoError(t, st.Close())

	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one")
	e, b.engine = b.engine, nil
	var at [4]record.Pos
	var closing sync.WaitGroup
	for i := range at {
		closing.Go(func() {
			pos, err := e.Close()
			if err != nil {
				t.Error(err)
			}
			at[i] = pos
		})
	}
	closing.Wait()
	require.Equal(t, e.log.Durable(), at[0])
	for _, pos := range at {
		require.Equal(t, at[0], pos)
	}
	_, err = e.Attach("late", brokerapi.Events{})
	require.True(t, mqerr.Is(err, mqerr.Draining), "%v", err)
	require.NoError(t, b.proxy.Close())
	require.NoError(t, b.store.Close())
}

// TestSmallSegmentsAreRefused: the records of consumers would not fit.
func TestSmallSegmentsAreRefused(t *testing.T) {
	o := storeOptions(memfs.New())
	o.SegmentBytes = 64 << 10
	st, err := store.Open(o)
	require.NoError(t, err)
	_, err = Open(Options{Store: st})
	require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
	require.NoError(t, st.Close())
}

// TestFullDisk: when the next file of the log cannot be made, producers are refused first, then
// consumers; the log does not fail, and all goes on by itself when there is space.
func TestFullDisk(t *testing.T) {
	fs, full := &hookFS{FS: memfs.New()}, atomic.Bool{}
	b := newBench(t, Options{NoSpace: full.Load, SessionTimeout: time.Minute})
	b.fs = fs
	b.mustOpen()
	b.define()
	limit := b.engine.log.Room() // this file and the next
	require.Eventually(t, func() bool { limit = b.engine.log.Room(); return limit > 1<<20 }, 10*time.Second, time.Millisecond)
	full.Store(true)
	fs.set(func(op, name string) error {
		if op == "create" && full.Load() && strings.Contains(name, "/log/") {
			return errors.New("no space")
		}
		return nil
	})
	sent := 0
	for body := strings.Repeat("x", 10_000); ; sent += 20 {
		require.Less(t, sent, 1000, "never refused")
		many := make([]string, 20)
		for i := range many {
			many[i] = fmt.Sprint(sent+i, body)
		}
		if _, err := b.send(topicSync, many...); err != nil {
			require.True(t, mqerr.Is(err, mqerr.DiskFull), "%v", err)
			break
		}
	}
	require.Positive(t, sent)
	held := map[string]got{}
	for i := 0; ; i++ {
		require.Less(t, i, 10_000, "never refused")
		ms, _, err := b.pop(brokerapi.PopRequest{
			Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Client: fmt.Sprint("client", i), AttemptID: strings.Repeat("a", 3000), Session: true,
		})
		if err != nil {
			require.True(t, mqerr.Is(err, mqerr.DiskFull), "%v", err)
			break
		}
		for _, m := range ms {
			held[m.body] = m
		}
		if len(ms) > 1 {
			b.change(topicSync, groupA, 0, brokerapi.ChangeKeep, ms[1:]...)
		}
	}
	require.NotEmpty(t, held)
	for range 10 { // ends of sessions and definitions wait, too, when nothing is left
		b.clock.advance(2 * time.Minute)
		_, err := b.proxy.DescribeTopic(t.Context(), brokerapi.TopicID(topicSync))
		require.NoError(t, err)
	}
	defs := definitions()
	for i := range record.GroupID(3000) {
		defs.Groups = append(defs.Groups, groupFrom(100+i, strings.Repeat("n", 100), 0, 0))
	}
	require.True(t, mqerr.Is(b.engine.Define(t.Context(), defs), mqerr.DiskFull))
	require.NoError(t, b.engine.Failure())

	full.Store(false)
	require.Eventually(t, func() bool { return b.engine.log.Room() > 1<<20 }, 10*time.Second, time.Millisecond)
	require.NoError(t, b.engine.Define(t.Context(), defs))
	b.mustSend(topicSync, "again")
	require.NotEmpty(t, b.mustPop(topicSync, groupA))
	before := b.views()
	b.kill()
	fs.FS.(*memfs.FS).Restart()
	require.Equal(t, before, b.replayed())
}

// TestCloseIsNotKeptOut: too many requests refuse others, not the end, nor the note that a checkpoint is
// done.
func TestCloseIsNotKeptOut(t *testing.T) {
	b := newBench(t, Options{PendingRequests: 1, CheckpointBytes: 1})
	b.mustOpen()
	b.define()
	hold, held := make(chan struct{}), make(chan struct{})
	free := sync.OnceFunc(func() { close(hold) })
	defer free()
	go func() {
		_ = b.engine.call(t.Context(), func(*writer) { close(held); <-hold })
	}()
	<-held
	refused := 0
	var answered sync.WaitGroup
	for range 3 {
		answered.Add(1)
		b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{message("x")}}, func(_ *brokerapi.SendReply, err error) {
			if mqerr.Is(err, mqerr.Exhausted) {
				refused++
			}
			answered.Done()
		})
	}
	require.Equal(t, 2, refused, "one waits, the others are told")
	done := make(chan error, 1)
	go func() { _, err := b.engine.Close(); done <- err }()
	free()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the engine does not close")
	}
	answered.Wait()
	require.NoError(t, b.store.Close())
	b.engine = nil
}

// TestLongNamesAndManyHandlesAreRefused: they stand in records, and a record that does not fit a segment
// would end the log.
func TestLongNamesAndManyHandlesAreRefused(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one")
	long := strings.Repeat("x", 2<<20)
	for _, req := range []brokerapi.PopRequest{{AttemptID: long}, {Client: long}} {
		req.Topic, req.Group = brokerapi.TopicID(topicSync), brokerapi.GroupID(groupA)
		_, _, err := b.pop(req)
		require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
	}
	_, err := wait(t, func(done func(*brokerapi.AckReply, error)) {
		b.proxy.Ack(&brokerapi.AckRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Handles: make([]brokerapi.Handle, handlesMax+1)}, done)
	})
	require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
	ms, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Max: 1 << 30})
	require.NoError(t, err)
	require.Len(t, ms, 1, "the engine goes on")
	require.Equal(t, []error{nil, nil}, b.change(topicSync, groupA, 0, brokerapi.ChangeKeep, ms[0], ms[0]), "the same handle twice")
	ms = b.mustPop(topicSync, groupA)
	require.Len(t, ms, 1)
	require.Equal(t, []error{nil, nil}, b.ack(topicSync, groupA, ms[0], ms[0]))
	before := b.views()
	b.kill()
	b.fs.(*memfs.FS).Restart()
	require.Equal(t, before, b.replayed())
}
