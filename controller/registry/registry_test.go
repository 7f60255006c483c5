package registry

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// world is a state with the registry that follows it.
type world struct {
	t *testing.T
	s *state.State
	r *Registry
}

func newWorld(t *testing.T, o Options) *world {
	w := &world{t: t, s: state.New(), r: New(o)}
	w.apply(state.Init{Cluster: "c1", Key: state.Secret{1}})
	return w
}

func (w *world) apply(c state.Command) state.Result {
	w.t.Helper()
	r, events := w.s.Apply(w.s.Version()+1, c)
	if r.Err != nil {
		w.t.Fatal(r.Err)
	}
	w.r.Applied(w.s.Version(), events)
	return r
}

// broker registers and elects replica 1 of a shard.
func (w *world) broker(name string) Beat {
	w.t.Helper()
	h := w.apply(state.RegisterReplica{Shard: name, Replica: 1, UUID: state.UUID{name[0]}, Address: "127.0.0.1:1"}).Shard
	h = w.apply(state.Elect{Shard: h.ID, Epoch: h.Epoch, Winner: 1, Inc: h.Replicas[0].Incarnation}).Shard
	return Beat{Shard: h.ID, Replica: 1, Inc: h.MasterInc, Epoch: h.Epoch}
}

func (w *world) open(b Beat) *Session {
	w.t.Helper()
	s, err := w.r.Open(b)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// beat says that everything is logged.
func (w *world) beat(s *Session, b Beat, applied state.Version) {
	w.t.Helper()
	b.Applied = applied
	if err := s.Beat(b); err != nil {
		w.t.Fatal(err)
	}
}

// next returns what a reader gets now, as text, or "-" if it would wait.
func next(t *testing.T, read func(context.Context) (Update, error)) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // an update that is there is taken without looking at the context
	u, err := read(ctx)
	if err == context.Canceled { //nolint:errorlint // returned bare
		return "-"
	}
	if err != nil {
		return mqerr.KindOf(err).String()
	}
	var parts []string
	if u.Full {
		parts = append(parts, "full")
	}
	for _, x := range u.Topics {
		parts = append(parts, fmt.Sprintf("%s/%d", x.Name, x.Queues()))
	}
	for _, x := range u.Groups {
		parts = append(parts, "group:"+x.Name)
	}
	for _, id := range u.DeletedTopics {
		parts = append(parts, fmt.Sprintf("-topic%d", id))
	}
	for _, id := range u.DeletedGroups {
		parts = append(parts, fmt.Sprintf("-group%d", id))
	}
	for _, h := range u.Shards {
		live := ""
		if h.Live {
			live = " live"
		}
		parts = append(parts, fmt.Sprintf("%s:e%d m%d%s", h.Name, h.Epoch, h.Master, live))
	}
	if u.Keys != nil {
		parts = append(parts, fmt.Sprintf("%d keys", len(u.Keys)))
	}
	return strings.Join(parts, ", ")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s; want %s", what, got, want)
	}
}

// Proxies see a topic when all brokers of its placement have logged it, brokers see it at once, and
// only those that serve it.
func TestConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		w.r.Start()
		p := w.r.Watch(Viewer{})
		defer p.Close()
		expect(t, "first", next(t, p.Next), "full, 1 keys")
		a, b := w.broker("a"), w.broker("b")
		expect(t, "shards", next(t, p.Next), "a:e1 m1, b:e1 m1")
		sa, sb := w.open(a), w.open(b)
		defer sa.Close()
		defer sb.Close()
		expect(t, "live", next(t, p.Next), "a:e1 m1 live, b:e1 m1 live")
		expect(t, "a", next(t, sa.Next), "full")
		expect(t, "b", next(t, sb.Next), "full")

		orders := w.apply(state.PutTopic{Name: "orders", Queues: 2}).Topic
		expect(t, "hidden", next(t, p.Next), "-")
		expect(t, "a", next(t, sa.Next), "orders/2")
		expect(t, "b", next(t, sb.Next), "orders/2")
		w.beat(sa, a, orders.Version)
		expect(t, "half", next(t, p.Next), "-")
		w.beat(sb, b, orders.Version)
		expect(t, "shown", next(t, p.Next), "orders/2")

		// A change that is not confirmed leaves what proxies have.
		more := w.apply(state.PutTopic{Name: "orders", Queues: 3, Mode: state.Upsert}).Topic
		expect(t, "old", next(t, p.Next), "-")
		late := w.r.Watch(Viewer{})
		expect(t, "late watcher", next(t, late.Next), "full, orders/2, a:e1 m1 live, b:e1 m1 live, 1 keys")
		late.Close()
		w.beat(sa, a, more.Version)
		w.beat(sb, b, more.Version)
		expect(t, "new", next(t, p.Next), "orders/3")

		// A topic of one shard is not sent to the other one, which still hears of the version.
		one := w.apply(state.PutTopic{Name: "one", Queues: 1}).Topic
		other, otherBeat, own, ownBeat := sa, a, sb, b
		if one.On(a.Shard) > 0 {
			other, otherBeat, own, ownBeat = sb, b, sa, a
		}
		expect(t, "own", next(t, own.Next), "orders/3, one/1")
		expect(t, "other", next(t, other.Next), "orders/3")
		w.beat(own, ownBeat, one.Version)
		expect(t, "shown by its own", next(t, p.Next), "one/1")
		w.beat(other, otherBeat, one.Version)

		// Groups are everywhere. A delete is seen at once.
		g := w.apply(state.PutGroup{Name: "g"}).Group
		w.beat(sa, a, g.Version)
		expect(t, "group", next(t, p.Next), "-")
		w.beat(sb, b, g.Version)
		expect(t, "group", next(t, p.Next), "group:g")
		w.apply(state.DeleteTopic{Name: "orders"})
		w.apply(state.DeleteGroup{Name: "g"})
		expect(t, "gone", next(t, p.Next), "-topic1, -group1")
		expect(t, "broker", next(t, sa.Next), "-topic1, -group1")
	})
}

// Silence marks a master and takes nothing away; nobody waits for it; it is live again only when it
// has what it missed.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		w.r.Start()
		a, b := w.broker("a"), w.broker("b")
		sa, sb := w.open(a), w.open(b)
		p := w.r.Watch(Viewer{})
		orders := w.apply(state.PutTopic{Name: "orders", Queues: 2}).Topic
		w.beat(sa, a, orders.Version)
		w.beat(sb, b, orders.Version)
		next(t, p.Next)
		for range 8 {
			time.Sleep(500 * time.Millisecond)
			w.beat(sa, a, orders.Version)
			w.r.Tick()
		}
		expect(t, "b is silent", next(t, p.Next), "b:e1 m1")
		g := w.apply(state.PutGroup{Name: "g"}).Group
		w.beat(sa, a, g.Version)
		expect(t, "not waited for", next(t, p.Next), "group:g")
		full := w.r.Watch(Viewer{})
		expect(t, "all there", next(t, full.Next), "full, orders/2, group:g, a:e1 m1 live, b:e1 m1, 1 keys")
		w.beat(sb, b, orders.Version)
		expect(t, "back, but behind", next(t, p.Next), "-")
		w.beat(sb, b, g.Version)
		expect(t, "back", next(t, p.Next), "b:e1 m1 live")

		// A broker that leaves is not waited for either.
		b.Resigning = true
		w.beat(sb, b, g.Version)
		expect(t, "leaves", next(t, p.Next), "b:e1 m1")
		w.apply(state.Resign{Shard: b.Shard, Epoch: b.Epoch, Replica: 1, Inc: b.Inc})
		expect(t, "left", next(t, p.Next), "b:e1 m0")
		expect(t, "its session goes on", next(t, sb.Next), "full, orders/2, group:g")
	})
}

// A new leader holds the first snapshot back until the brokers have reported, at most for the
// silence, and then shows what was there before.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, late := range []bool{false, true} {
			w := newWorld(t, Options{})
			w.r.Start()
			a := w.broker("a")
			s := w.open(a)
			topic := w.apply(state.PutTopic{Name: "orders", Queues: 1}).Topic
			w.beat(s, a, topic.Version)
			if got := w.r.Progress(); len(got) != 1 || got[0].Applied != topic.Version {
				t.Errorf("progress %+v", got)
			}

			w.r = New(Options{}) // the process is another one
			if err := w.r.Watch(Viewer{}).r.await(canceled(t), func() (bool, error) { return w.r.leading, nil }); err == nil {
				t.Error("it leads")
			}
			w.r.Restore(w.s)
			w.r.Start()
			p := w.r.Watch(Viewer{})
			expect(t, "held back", next(t, p.Next), "-")
			if late {
				for range 7 {
					time.Sleep(500 * time.Millisecond)
					w.r.Tick()
				}
				expect(t, "after the silence", next(t, p.Next), "full, orders/1, a:e1 m1, 1 keys")
				continue
			}
			a.Applied = 0
			s = w.open(a) // no new registration
			expect(t, "not yet", next(t, p.Next), "-")
			w.beat(s, a, topic.Version)
			expect(t, "settled", next(t, p.Next), "full, orders/1, a:e1 m1 live, 1 keys")
		}
	})
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// Sessions of an incarnation or an epoch that is over end with Fenced, and can't be opened.
func TestFencing(t *testing.T) {
	w := newWorld(t, Options{})
	w.r.Start()
	a := w.broker("a")
	s := w.open(a)
	next(t, s.Next)
	again := w.open(a)
	expect(t, "older session", next(t, s.Next), "cancelled")
	old := a
	a = w.broker("a")
	expect(t, "older incarnation", next(t, again.Next), "fenced")
	if err := again.Beat(old); !mqerr.Is(err, mqerr.Fenced) {
		t.Errorf("beat: %v", err)
	}
	for name, b := range map[string]Beat{
		"incarnation": old,
		"epoch":       {Shard: a.Shard, Replica: 1, Inc: a.Inc, Epoch: a.Epoch - 1},
		"shard":       {Shard: 9, Replica: 1, Inc: 1},
		"replica":     {Shard: a.Shard, Replica: 2, Inc: a.Inc},
	} {
		if _, err := w.r.Open(b); !mqerr.Is(err, mqerr.Fenced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.r.Open(Beat{Shard: a.Shard, Replica: 1, Inc: a.Inc, Epoch: a.Epoch + 1}); !mqerr.Is(err, mqerr.Unavailable) {
		t.Errorf("a higher epoch: %v", err)
	}
	s = w.open(a)
	if err := s.Beat(Beat{Shard: a.Shard, Replica: 1, Inc: a.Inc + 1}); !mqerr.Is(err, mqerr.Invalid) {
		t.Errorf("another broker on the same session: %v", err)
	}
	s = w.open(a)
	w.r.Stop()
	expect(t, "no leader", next(t, s.Next), "not leader")
	expect(t, "no leader, a proxy", next(t, w.r.Watch(Viewer{}).Next), "full, a:e3 m1 live, 1 keys")
	expect(t, "no leader, a controller", next(t, w.r.Watch(Viewer{Controller: true}).Next), "not leader")
	w.r.Close()
	expect(t, "stopping", next(t, s.Next), "draining")
}

// A reader that is too far behind gets everything, once, and costs nothing meanwhile.
func TestSlowReaders(t *testing.T) {
	w := newWorld(t, Options{Ring: 8})
	w.r.Start()
	a := w.broker("a")
	s := w.open(a)
	p := w.r.Watch(Viewer{})
	next(t, s.Next)
	next(t, p.Next)
	for i := range 5 {
		w.apply(state.PutGroup{Name: fmt.Sprint("g", i)})
	}
	n := 7
	version := w.apply(state.PutGroup{Name: "g4", MaxAttempts: &n, Mode: state.Upsert}).Group.Version
	w.beat(s, a, version)
	expect(t, "coalesced", next(t, s.Next), "group:g0, group:g1, group:g2, group:g3, group:g4")
	for i := range 9 {
		w.apply(state.PutGroup{Name: fmt.Sprint("h", i)})
	}
	w.apply(state.DeleteGroup{Name: "g0"})
	w.beat(s, a, w.r.Stats().Version)
	for _, read := range []func(context.Context) (Update, error){s.Next, p.Next} {
		got := next(t, read)
		if !strings.HasPrefix(got, "full, group:g1, ") || strings.Count(got, "group:") != 13 {
			t.Errorf("too slow: %s", got)
		}
		expect(t, "then nothing", next(t, read), "-")
	}
}

// Whoever changed something can wait for it, and learns who is missing.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		w.r.Start()
		a, b := w.broker("a"), w.broker("b")
		sa, sb := w.open(a), w.open(b)
		topic := w.apply(state.PutTopic{Name: "orders", Queues: 2}).Topic
		wait := func(f func(context.Context) error) <-chan error {
			done := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				done <- f(ctx)
			}()
			synctest.Wait()
			return done
		}
		everywhere := wait(func(ctx context.Context) error { return w.r.AwaitTopic(ctx, topic, topic.Version, true) })
		live := wait(func(ctx context.Context) error { return w.r.AwaitTopic(ctx, topic, topic.Created, false) })
		w.beat(sa, a, topic.Version)
		synctest.Wait()
		if len(everywhere)+len(live) != 0 {
			t.Fatal("one broker is enough?")
		}
		for range 8 { // b says nothing more
			time.Sleep(500 * time.Millisecond)
			w.beat(sa, a, topic.Version)
			w.r.Tick()
		}
		synctest.Wait()
		if err := <-live; err != nil {
			t.Error(err)
		}
		if err := <-everywhere; !mqerr.Is(err, mqerr.Unavailable) || !strings.Contains(err.Error(), "not yet confirmed by broker group b") {
			t.Errorf("%v", err)
		}
		w.beat(sb, b, topic.Version)
		if err := <-wait(func(ctx context.Context) error { return w.r.AwaitTopic(ctx, topic, topic.Version, true) }); err != nil {
			t.Error(err)
		}

		g := w.apply(state.PutGroup{Name: "g"}).Group
		group := wait(func(ctx context.Context) error { return w.r.AwaitGroup(ctx, g, g.Version) })
		w.beat(sa, a, g.Version)
		w.beat(sb, b, g.Version)
		if err := <-group; err != nil {
			t.Error(err)
		}

		del := w.apply(state.DeleteGroup{Name: "g"})
		gone := wait(func(ctx context.Context) error {
			return w.r.AwaitGone(ctx, state.GroupDeleted{Group: del.Group, Version: del.Version})
		})
		w.beat(sa, a, del.Version)
		synctest.Wait()
		if len(gone) != 0 {
			t.Error("gone before b logged it")
		}
		w.beat(sb, b, del.Version)
		if err := <-gone; err != nil {
			t.Error(err)
		}
		if err := <-wait(func(ctx context.Context) error { return w.r.AwaitGroup(ctx, g, g.Version) }); !mqerr.Is(err, mqerr.GroupNotFound) {
			t.Errorf("%v", err)
		}

		stuck := w.apply(state.PutTopic{Name: "stuck", Queues: 2}).Topic
		open := wait(func(ctx context.Context) error { return w.r.AwaitTopic(ctx, stuck, stuck.Version, true) })
		w.r.Close()
		if err := <-open; !mqerr.Is(err, mqerr.UnknownOutcome) {
			t.Errorf("%v", err)
		}
	})
}
