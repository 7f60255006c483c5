package engine

import (
	"crypto/md5"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeClock tells the time that a test sets; step is how far the wall clock was set forward.
type fakeClock struct{ ms, step atomic.Int64 }

func newClock() *fakeClock {
	c := new(fakeClock)
	c.ms.Store(1_700_000_000_000)
	return c
}

func (c *fakeClock) Wall() int64              { return c.ms.Load() + c.step.Load() }
func (c *fakeClock) Lease() int64             { return c.ms.Load() }
func (c *fakeClock) advance(by time.Duration) { c.ms.Add(by.Milliseconds()) }

// bench is an engine on a file system in memory, with one proxy attached.
type bench struct {
	t     *testing.T
	fs    vfs.FS
	clock *fakeClock
	opt   Options // a Clock there goes before clock
	epoch record.Epoch
	skip  bool // starts go on behind damage
	took  func(*store.Store)

	store  *store.Store
	engine *Engine
	proxy  brokerapi.Broker
	ready  chan brokerapi.Ready
}

const (
	topicSync  record.TopicID = 1
	topicAsync record.TopicID = 2
	groupA     record.GroupID = 1
	groupB     record.GroupID = 2
)

func newBench(t *testing.T, o Options) *bench {
	t.Helper()
	b := &bench{t: t, fs: memfs.New(), clock: newClock(), opt: o, ready: make(chan brokerapi.Ready, 1024)}
	t.Cleanup(func() {
		if b.engine != nil {
			b.kill()
		}
	})
	return b
}

// open recovers the engine and begins its next epoch.
func (b *bench) open() error {
	so := storeOptions(b.fs)
	so.SkipDamage = b.skip
	st, err := store.Open(so)
	if err != nil {
		return err
	}
	if b.took != nil {
		b.took(st)
	}
	o := b.opt
	o.Store = st
	if o.Clock == nil {
		o.Clock = b.clock
	}
	e, err := Open(o)
	if err != nil {
		_ = st.Close()
		return err
	}
	if _, err := e.Epochs(); err != nil { // as every broker asks that begins an epoch
		return err
	}
	b.epoch = max(b.epoch, e.views.epoch) + 1
	if err := e.Start(Identity{Epoch: b.epoch, Incarnation: uint64(b.epoch)}); err != nil {
		_ = st.Close()
		return err
	}
	b.store, b.engine = st, e
	b.proxy, err = e.Attach("test", brokerapi.Events{Ready: func(r []brokerapi.Ready) {
		for _, one := range r {
			select {
			case b.ready <- one:
			default:
			}
		}
	}})
	return err
}

func storeOptions(fs vfs.FS) store.Options {
	return store.Options{FS: fs, Dir: "data", SegmentBytes: 1 << 20, QueueFileBytes: 64 << 10, IndexRunEntries: 100}
}

func (b *bench) openStore() *store.Store {
	b.t.Helper()
	st, err := store.Open(storeOptions(b.fs))
	require.NoError(b.t, err)
	return st
}

func (b *bench) mustOpen() {
	b.t.Helper()
	require.NoError(b.t, b.open())
}

// define makes the test's topics and groups.
func (b *bench) define() {
	b.t.Helper()
	require.NoError(b.t, b.engine.Define(b.t.Context(), definitions()))
}

func definitions() *Definitions {
	return &Definitions{
		Topics: []topic.Definition{
			{ID: topicSync, Name: "sync", Queues: 4, Flush: topic.FlushSync, Version: 1},
			{ID: topicAsync, Name: "async", Queues: 2, Flush: topic.FlushAsync, Version: 2},
		},
		Groups: []group.Definition{
			{ID: groupA, Name: "a", MaxAttempts: 17, Version: 3},
			{ID: groupB, Name: "b", MaxAttempts: 2, BackoffMS: []int64{1000, 60_000}, Version: 4},
		},
		Full: true, Version: 4,
	}
}

// kill ends the engine without saving anything: goroutines end, files stay as they are.
func (b *bench) kill() {
	e := b.engine
	b.engine = nil
	e.die() // who waits for other replicas
	e.submitOwn(&callOp{do: func(w *writer) { w.closed = true }, done: func(error) {}})
	<-e.done
	for _, o := range slices.Concat(e.backlog, e.later, e.inbox.shut(errClosed)) {
		if o != nil {
			o.finish(nil, errClosed)
		}
	}
	e.syncer.stop()
	e.keeper.stop()
	e.mender.stop()
	e.indexer.stop(false)
	e.saves.Wait()
	e.reads.Wait()
	_ = b.store.Close()
}

// again kills the engine and opens it on what the process left.
func (b *bench) again() {
	b.t.Helper()
	b.kill()
	if m, ok := b.fs.(*memfs.FS); ok {
		m.Restart()
	}
	b.mustOpen()
}

// answer is what a call was answered with.
type answer[R any] struct {
	r   R
	err error
}

// wait makes a call and waits for its answer.
func wait[R any](t *testing.T, call func(done func(R, error))) (R, error) {
	t.Helper()
	c := make(chan answer[R], 1)
	var once atomic.Int32
	call(func(r R, err error) {
		if once.Add(1) > 1 {
			t.Error("a call was answered twice")
			return
		}
		c <- answer[R]{r, err}
	})
	select {
	case a := <-c:
		return a.r, a.err
	case <-time.After(20 * time.Second):
		t.Fatal("no answer within 20 s")
		panic("unreachable")
	}
}

var ids atomic.Int64

// message is a message with a fresh id.
func message(body string) brokerapi.Message {
	return brokerapi.Message{
		Queue: brokerapi.AnyQueue, Type: brokerapi.Normal, ID: fmt.Appendf(nil, "id-%d", ids.Add(1)), Body: []byte(body), Digest: md5.Sum([]byte(body)),
	}
}

func (b *bench) send(t record.TopicID, bodies ...string) (*brokerapi.SendReply, error) {
	b.t.Helper()
	req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(t)}
	for _, body := range bodies {
		req.Messages = append(req.Messages, message(body))
	}
	return wait(b.t, func(done func(*brokerapi.SendReply, error)) { b.proxy.Send(req, done) })
}

func (b *bench) mustSend(t record.TopicID, bodies ...string) []brokerapi.SendResult {
	b.t.Helper()
	r, err := b.send(t, bodies...)
	require.NoError(b.t, err)
	return r.Results
}

// got is a delivery with bytes of its own.
type got struct {
	brokerapi.Delivery
	body string
}

func (g got) handle() brokerapi.Handle {
	return brokerapi.Handle{Queue: g.Queue, Offset: g.Offset, Lease: g.Lease, Epoch: g.Epoch}
}

func (b *bench) pop(req brokerapi.PopRequest) ([]got, bool, error) {
	b.t.Helper()
	if req.Max == 0 {
		req.Max = 32
	}
	if req.Invisible == 0 {
		req.Invisible = 30 * time.Second
	}
	if req.Client == "" {
		req.Client = "client"
	}
	r, err := wait(b.t, func(done func(*brokerapi.PopReply, error)) { b.proxy.Pop(&req, done) })
	if err != nil {
		return nil, false, err
	}
	defer r.Release()
	var out []got
	for _, m := range r.Messages {
		out = append(out, got{m, string(m.Body)})
	}
	return out, r.More, nil
}

func (b *bench) mustPop(t record.TopicID, g record.GroupID) []got {
	b.t.Helper()
	out, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(t), Group: brokerapi.GroupID(g)})
	require.NoError(b.t, err)
	return out
}

func bodies(ms []got) []string {
	var out []string
	for _, m := range ms {
		out = append(out, m.body)
	}
	return out
}

func (b *bench) ack(t record.TopicID, g record.GroupID, ms ...got) []error {
	b.t.Helper()
	req := &brokerapi.AckRequest{Topic: brokerapi.TopicID(t), Group: brokerapi.GroupID(g)}
	for _, m := range ms {
		req.Handles = append(req.Handles, m.handle())
	}
	r, err := wait(b.t, func(done func(*brokerapi.AckReply, error)) { b.proxy.Ack(req, done) })
	require.NoError(b.t, err)
	return r.Errors
}

func (b *bench) change(t record.TopicID, g record.GroupID, d time.Duration, mode brokerapi.ChangeMode, ms ...got) []error {
	b.t.Helper()
	req := &brokerapi.ChangeRequest{Topic: brokerapi.TopicID(t), Group: brokerapi.GroupID(g), Invisible: d, Mode: mode}
	for _, m := range ms {
		req.Handles = append(req.Handles, m.handle())
	}
	r, err := wait(b.t, func(done func(*brokerapi.ChangeReply, error)) { b.proxy.Change(req, done) })
	require.NoError(b.t, err)
	return r.Errors
}

// state is the bytes of all views, at rest.
func (b *bench) state() map[string]string {
	b.t.Helper()
	out := map[string]string{}
	var mu sync.Mutex
	require.NoError(b.t, b.engine.call(b.t.Context(), func(w *writer) {
		mu.Lock()
		defer mu.Unlock()
		w.flushAcks()
		w.flushEndings()
		sections, err := w.views.encode()
		if err != nil {
			b.t.Error(err)
		}
		for _, s := range sections {
			out[s.Name] = string(s.Bytes())
		}
	}))
	return out
}

func groupFrom(id record.GroupID, name string, from group.From, ms int64) group.Definition {
	return group.Definition{ID: id, Name: name, MaxAttempts: 17, From: from, FromMS: ms, Version: 5}
}
