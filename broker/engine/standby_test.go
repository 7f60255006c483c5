package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// follower is a standby on a file system in memory.
type follower struct {
	fs     *memfs.FS
	store  *store.Store
	engine *Engine
}

func openFollower(t *testing.T, fs *memfs.FS, o Options) *follower {
	t.Helper()
	st, err := store.Open(storeOptions(fs))
	require.NoError(t, err)
	o.Store, o.Standby, o.Replicas = st, true, nil
	e, err := Open(o)
	require.NoError(t, err)
	return &follower{fs: fs, store: st, engine: e}
}

func (f *follower) close(t *testing.T) {
	t.Helper()
	_, err := f.engine.Close()
	require.NoError(t, err)
	require.NoError(t, f.store.Close())
}

// wire is the other replica as a master sees it: one goroutine copies the log to a follower, confirms what both have
// on disk, and lets the follower's views come after, sometimes a little later.
type wire struct {
	from *commitlog.Log
	to   *follower
	rng  *rand.Rand

	master    *Engine
	confirmed atomic.Int64
	more      chan struct{}
	quit      chan struct{}
	ended     chan struct{}
	mu        sync.Mutex
	moved     *sync.Cond
	over      bool
	err       error
}

func newWire(from *commitlog.Log, to *follower, rng *rand.Rand) *wire {
	l := &wire{from: from, to: to, rng: rng, more: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	l.moved = sync.NewCond(&l.mu)
	l.confirmed.Store(int64(min(from.Durable(), to.store.Log().Durable())))
	return l
}

func (l *wire) Confirmed() record.Pos { return record.Pos(l.confirmed.Load()) }
func (l *wire) Memory() bool          { return false }
func (l *wire) Grown()                { ring(l.more) }
func (l *wire) Stuck() error          { return nil }

func (l *wire) Await(ctx context.Context, pos record.Pos) error {
	stop := context.AfterFunc(ctx, l.moved.Broadcast)
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.Confirmed() < pos {
		if l.over || ctx.Err() != nil {
			return mqerr.New(mqerr.Draining, "the wire is cut")
		}
		l.moved.Wait()
	}
	return nil
}

func (l *wire) run() {
	defer close(l.ended)
	for l.err == nil {
		select {
		case <-l.more:
			if l.err = l.copy(); l.err != nil {
				l.mu.Lock()
				l.over = true
				l.moved.Broadcast()
				l.mu.Unlock()
			}
		case <-l.quit:
			return
		}
	}
}

func (l *wire) copy() error {
	to := l.to.store.Log()
	r := l.from.Chunks(to.Written())
	for r.Pos() < l.from.Written() {
		c, err := r.Next(l.from.Written(), l.rng.IntN(1<<16))
		if err != nil {
			return err
		}
		if err := to.AppendChunk(c); err != nil {
			return err
		}
	}
	if err := to.Sync(); err != nil {
		return err
	}
	c := min(to.Durable(), l.from.Durable())
	l.mu.Lock()
	l.confirmed.Store(int64(c))
	l.moved.Broadcast()
	l.mu.Unlock()
	l.master.Confirm()
	if l.rng.IntN(3) > 0 {
		return l.to.engine.Apply(c)
	}
	return nil
}

// cut ends the copying; what was not confirmed will not be.
func (l *wire) cut() {
	close(l.quit)
	<-l.ended
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.moved.Broadcast()
}

// pairOf makes the broker of a world the master of two replicas.
func (w *world) pairOf() *wire {
	w.restart(2)
	e, first := w.b.engine, w.b.store.Log().First()
	_, err := e.Close()
	w.ok(err)
	w.ok(w.b.store.Close())
	fs := w.b.fs.(*memfs.FS)
	other := memfs.New()
	if first > 0 || w.rng.IntN(2) == 0 {
		other = fs.Clone()
	}
	return w.lead(fs, other, nil, nil)
}

// lead makes the engine on one file system the master, of the standby that is there already if there is one, and
// lets the other one follow it, from where the logs are the same.
func (w *world) lead(fs, other *memfs.FS, f *follower, before map[string]string) *wire {
	if f == nil {
		f = openFollower(w.t, fs, w.options())
	}
	w.ok(f.engine.lead())
	if before != nil {
		w.same(before, worldViews(f.engine))
	}
	next := openFollower(w.t, other, w.options())
	if log := next.store.Log(); log.Written() > f.store.Log().Written() {
		require.LessOrEqual(w.t, next.engine.Applied(), f.store.Log().Written(), "views may not know what is not confirmed")
		w.ok(log.Truncate(f.store.Log().Written()))
	}
	l := newWire(f.store.Log(), next, rand.New(rand.NewPCG(w.seed, uint64(w.step))))
	l.master = f.engine
	f.engine.o.Replicas = l
	go l.run()
	w.b.epoch = max(w.b.epoch, f.engine.views.epoch) + 1
	if err := f.engine.Start(Identity{Epoch: w.b.epoch, Incarnation: uint64(w.b.epoch)}); err != nil {
		w.t.Fatalf("seed %d: %v (%v)", w.seed, err, l.err)
	}
	w.b.fs, w.b.store, w.b.engine = f.fs, f.store, f.engine
	var err error
	w.b.proxy, err = f.engine.Attach("model", brokerapi.Events{})
	w.ok(err)
	return l
}

func (w *world) options() Options {
	o := w.b.opt
	o.Clock = w.b.clock
	return o
}

func (w *world) same(before, after map[string]string) {
	for name, data := range before {
		if after[name] != data {
			w.t.Fatalf("seed %d, operation %d: view %q differs on the other replica:\nbefore %.600q\nafter  %.600q", w.seed, w.step, name, data, after[name])
		}
	}
}

// failOver ends the master, killed or stopped, and makes the standby the new one: its views are those of the old
// master, byte for byte. The old one comes back as a standby; now and then it has written what nobody confirmed.
func (w *world) failOver(l *wire) *wire {
	w.settle()
	var before map[string]string
	w.ok(w.b.engine.call(context.Background(), func(wr *writer) {
		wr.flushAcks()
		before = worldViews(wr.e)
	}))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	w.ok(l.Await(ctx, l.from.Written()))
	old, fs := w.b.engine, w.b.fs.(*memfs.FS)
	if w.rng.IntN(2) == 0 {
		_, err := old.Close()
		w.ok(err)
		l.cut()
		w.ok(w.b.store.Close())
	} else {
		l.cut()
		if w.rng.IntN(2) == 0 { // nobody will ever know of this one
			_, _ = ask(canceled(), old, func(done func(struct{}, error)) op {
				return &callOp{do: func(wr *writer) { w.unknown(wr) }, done: func(err error) { done(struct{}{}, err) }}
			})
			w.ok(old.call(context.Background(), func(*writer) {}))
		}
		old.die()
		w.b.kill()
		fs.Restart()
	}
	w.ok(l.err)
	next := w.lead(l.to.fs, fs, l.to, before)
	stamp := int64(0)
	w.ok(w.b.engine.call(context.Background(), func(wr *writer) { stamp = wr.stamp }))
	w.ok(w.m.Restarted(stamp))
	return next
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// unknown writes a record that is never confirmed.
func (w *world) unknown(wr *writer) {
	end := record.SessionEnd{Client: 1 << 30, Until: wr.stamp}
	wr.put(record.TypeSessionEnd, record.SessionEndSize(&end), func(b []byte) { record.PutSessionEnd(b, &end) })
}

// TestStandbyModel drives a master of two replicas with every kind of operation; again and again the master dies
// or stops, and the standby goes on: every answer holds, and all views are those of the old master.
//
//fault:power the master of two replicas dies or stops again and again under operations of every kind; it comes back behind the other one, with records that nobody confirmed => every answer holds, the views of the other replica are the same, byte for byte
func TestStandbyModel(t *testing.T) {
	seeds := max(4, 40/raceSlows)
	if testing.Short() {
		seeds = 4
	}
	first := testseed.First(t)
	if *modelSeed != 0 {
		seeds, first = 1, *modelSeed
	}
	dropped := 0
	for i := range seeds {
		w := newWorld(t, first+uint64(i))
		if w.together() {
			dropped++
		}
		if t.Failed() {
			t.Fatalf("run again with -model.seed %d", first+uint64(i))
		}
	}
	if seeds > 4 {
		require.Positive(t, dropped, "no standby has deleted what the master's retention let go")
	}
}

// together is run with two replicas. It tells whether retention deleted something of the standby.
func (w *world) together() bool {
	w.some(40)
	l := w.pairOf()
	w.paired = true
	for range 5 {
		w.some(40)
		l = w.failOver(l)
	}
	for _, d := range w.topics {
		w.observe(d)
	}
	_, err := w.b.engine.Close()
	w.ok(err)
	l.cut()
	w.ok(l.err)
	dropped := l.to.store.Log().First() > 0
	w.b.engine = nil
	w.ok(w.b.store.Close())
	l.to.close(w.t)
	return dropped
}

// TestStandbyAnew: a replica whose log ends before the master's begins copies that one from its beginning; with the
// SNAPSHOT in it a standby can be made of it, whose views are the master's, byte for byte.
func TestStandbyAnew(t *testing.T) {
	fs, clock := retained(t)
	b := newBench(t, Options{})
	b.fs, b.clock = fs, clock
	fs.Restart()
	b.mustOpen()
	_, err := b.engine.Retain(t.Context(), retain.Limits{Age: 2 * time.Second})
	require.NoError(t, err)
	b.mustSend(topicSync, "behind the SNAPSHOT")
	log := b.store.Log()
	require.Positive(t, log.First())

	other := memfs.New()
	own := &bench{t: t, fs: other, clock: clock, ready: make(chan brokerapi.Ready, 1024)} // it had something else
	own.mustOpen()
	own.define()
	own.mustSend(topicSync, "of another time")
	_, err = own.engine.Close()
	require.NoError(t, err)
	require.NoError(t, own.store.CloseClean(1))

	require.NoError(t, store.Anew(storeOptions(other), log.First()))
	st, err := store.Open(storeOptions(other))
	require.NoError(t, err)
	_, is := st.Copying()
	require.True(t, is)
	_, err = st.Log().Recover(log.First(), func(record.Record) error { return nil })
	require.NoError(t, err)
	for r := log.Chunks(log.First()); r.Pos() < log.Written(); {
		c, err := r.Next(log.Written(), 100_000)
		require.NoError(t, err)
		require.NoError(t, st.Log().AppendChunk(c))
	}
	require.NoError(t, st.Copied())
	require.NoError(t, st.Close())

	f := openFollower(t, other, Options{Clock: clock})
	require.NoError(t, f.engine.Apply(log.Written()))
	require.Equal(t, log.Written(), f.engine.Applied())
	var before map[string]string
	require.NoError(t, b.engine.call(t.Context(), func(wr *writer) {
		wr.flushAcks()
		before = worldViews(wr.e)
	}))
	after := worldViews(f.engine)
	delete(before, sectionDups) // ids of messages that are gone are not in the log
	for name, data := range before {
		require.Equal(t, data, after[name], "view %s", name)
	}
	f.close(t)
}
