package engine

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

// hold stops the writer until the returned function is called.
func (b *bench) hold() (free func()) {
	hold, held := make(chan struct{}), make(chan struct{})
	b.engine.submitOwn(&callOp{do: func(*writer) { close(held); <-hold }, done: func(error) {}})
	<-held
	return func() { close(hold) }
}

// TestSyncFailsAtClose: who waits for the disk when the last sync fails is told, and the engine says once
// that it failed.
//
//fault:storage the last fdatasync of a clean stop fails => who waits for it is told so, and the end is no clean one
func TestSyncFailsAtClose(t *testing.T) {
	b := newBench(t, Options{})
	f := faultfs.Wrap(memfs.New())
	b.fs = f
	var failed atomic.Int32
	b.opt.Events.Failed = func(error) { failed.Add(1) }
	b.mustOpen()
	b.define()
	free := b.hold()
	answers := make(chan error, 2)
	for _, id := range []brokerapi.TopicID{brokerapi.TopicID(topicAsync), brokerapi.TopicID(topicSync)} {
		b.proxy.Send(&brokerapi.SendRequest{Topic: id, Messages: []brokerapi.Message{message("x")}}, func(_ *brokerapi.SendReply, err error) { answers <- err })
	}
	e, closed := b.engine, make(chan error, 1)
	b.engine = nil
	go func() { _, err := e.Close(); closed <- err }()
	for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		e.inbox.mu.Lock()
		n := len(e.inbox.ops)
		e.inbox.mu.Unlock()
		if n == 3 {
			break
		}
		require.True(t, time.Now().Before(deadline), "the end does not come in")
	}
	f.Set(faultfs.Fault{Op: faultfs.OpSync, Nth: 1, Always: true})
	free()
	require.Error(t, <-closed)
	require.True(t, f.Hit())
	unknown := 0
	for range 2 {
		if mqerr.Is(<-answers, mqerr.UnknownOutcome) {
			unknown++
		}
	}
	require.Equal(t, 1, unknown, "the asynchronous one was written, the outcome of the other is unknown")
	require.EqualValues(t, 1, failed.Load())
	_ = b.store.Close()
}

// TestLongScanLetsOthersGoFirst: a filter that matches nothing looks at a bounded number of entries
// before requests that came meanwhile get their turn.
func TestLongScanLetsOthersGoFirst(t *testing.T) {
	b := newBench(t, Options{ScanEntries: 10})
	b.mustOpen()
	b.define()
	many := make([]string, 1000)
	for i := range many {
		many[i] = "x"
	}
	b.mustSend(topicAsync, many...)
	order := make(chan string, 2)
	free := b.hold()
	e := b.engine
	e.submit(&callOp{ // comes in while the scan is under way
		do:   func(*writer) { e.submit(&callOp{do: func(*writer) { order <- "other" }, done: func(error) {}}) },
		done: func(error) {},
	})
	b.proxy.Pop(&brokerapi.PopRequest{
		Topic: brokerapi.TopicID(topicAsync), Group: brokerapi.GroupID(groupA), Client: "c", Max: 1, Invisible: time.Second,
		Filter: brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: []string{"none"}},
	}, func(*brokerapi.PopReply, error) { order <- "pop" })
	free()
	require.Equal(t, "other", <-order)
	require.Equal(t, "pop", <-order)
}
