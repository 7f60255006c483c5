package registry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// pair is a leader and a follower of the same state.
type pair struct {
	*world
	follower *Registry
}

func newPair(t *testing.T) *pair {
	p := &pair{world: newWorld(t, Options{}), follower: New(Options{})}
	p.follower.Restore(p.s.Clone())
	p.r.Start()
	return p
}

// both applies a command on both.
func (p *pair) both(c state.Command) state.Result {
	p.t.Helper()
	r, events := p.s.Apply(p.s.Version()+1, c)
	if r.Err != nil {
		p.t.Fatal(r.Err)
	}
	p.r.Applied(p.s.Version(), events)
	p.follower.Applied(p.s.Version(), events)
	return r
}

func (p *pair) broker(name string) Beat {
	p.t.Helper()
	h := p.both(state.RegisterReplica{Shard: name, Replica: 1, UUID: state.UUID{name[0]}, Address: "127.0.0.1:1"}).Shard
	h = p.both(state.Elect{Shard: h.ID, Epoch: h.Epoch, Winner: 1, Inc: h.Replicas[0].Incarnation}).Shard
	return Beat{Shard: h.ID, Replica: 1, Inc: h.MasterInc, Epoch: h.Epoch}
}

// relay hands on what the leader has to say now.
func (p *pair) relay(w *Watcher) {
	p.t.Helper()
	u, err := w.Next(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	p.follower.Relay(u)
}

// A follower shows what the leader shows, also when the leader is gone, and nothing before it has heard
// from one. When it leads, nothing vanishes and no broker is said to be away that was not.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		a := p.broker("a")
		s := p.open(a)
		p.beat(s, a, p.s.Version())
		topic := p.both(state.PutTopic{Name: "t", Queues: 1}).Topic
		w := p.follower.Watch(Viewer{})
		expect(t, "never heard from a leader", next(t, w.Next), "-")
		if err := w.Behind(); !mqerr.Is(err, mqerr.Unavailable) {
			t.Error(err)
		}
		link := p.r.Watch(Viewer{Controller: true})
		p.relay(link)
		expect(t, "not confirmed yet", next(t, w.Next), "full, a:e1 m1 live, 1 keys")
		p.beat(s, a, topic.Version)
		p.relay(link)
		expect(t, "confirmed", next(t, w.Next), "t/1")
		expect(t, "nothing new", next(t, w.Next), "-")

		// The leader hears no more of the broker, and says so.
		time.Sleep(4 * time.Second)
		p.r.Tick()
		p.relay(link)
		expect(t, "away", next(t, w.Next), "a:e1 m1")
		p.beat(s, a, topic.Version)
		p.relay(link)
		expect(t, "back", next(t, w.Next), "a:e1 m1 live")

		// A topic is deleted, and the leader dies before it can say so.
		p.both(state.DeleteTopic{Name: "t"})
		g := p.both(state.PutGroup{Name: "g"}).Group
		p.r.Stop()
		expect(t, "leader gone: a controller", next(t, link.Next), "not leader")
		expect(t, "leader gone: a proxy goes on", next(t, p.follower.Watch(Viewer{}).Next), "full, a:e1 m1 live, 1 keys")

		p.follower.Start()
		expect(t, "the new leader has heard no broker", next(t, p.follower.Watch(Viewer{}).Next), "full, a:e1 m1 live, 1 keys")
		p.world.r = p.follower
		s = p.open(a)
		p.beat(s, a, g.Version)
		late := p.follower.Watch(Viewer{SeenVersion: g.Version, SeenIndex: p.s.Version()})
		expect(t, "all is confirmed", next(t, late.Next), "full, group:g, a:e1 m1 live, 1 keys")
	})
}

// Whoever has seen more elsewhere waits until this node knows it too.
func TestNothingGoesBack(t *testing.T) {
	p := newPair(t)
	link := p.r.Watch(Viewer{Controller: true})
	p.relay(link)
	g := p.both(state.PutGroup{Name: "g"}).Group
	w := p.follower.Watch(Viewer{SeenVersion: g.Version})
	expect(t, "behind", next(t, w.Next), "-")
	if err := w.Behind(); !mqerr.Is(err, mqerr.Unavailable) {
		t.Error(err)
	}
	byIndex := p.follower.Watch(Viewer{SeenIndex: p.s.Version() + 1})
	p.relay(link)
	expect(t, "level", next(t, w.Next), "full, group:g, 1 keys")
	expect(t, "behind in the log", next(t, byIndex.Next), "-")
	p.both(state.Init{Cluster: "c1"})
	expect(t, "level in the log", next(t, byIndex.Next), "full, group:g, 1 keys")
	if got := p.follower.Viewers(); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

// What the leader said before the state had it, and a snapshot, change nothing that is shown.
func TestRelayBeforeState(t *testing.T) {
	p := newPair(t)
	r, events := p.s.Apply(p.s.Version()+1, state.PutGroup{Name: "g"})
	p.r.Applied(p.s.Version(), events)
	link := p.r.Watch(Viewer{Controller: true})
	p.relay(link)
	w := p.follower.Watch(Viewer{})
	expect(t, "relayed", next(t, w.Next), "full, group:g, 1 keys")
	p.follower.Applied(r.Version, events)
	expect(t, "applied later", next(t, w.Next), "-")
	if n := p.follower.Stats().Pending; n != 0 {
		t.Errorf("%d are pending", n)
	}
	p.follower.Restore(p.s.Clone())
	expect(t, "a snapshot", next(t, w.Next), "1 keys")
	if got := p.follower.Stats(); got.Version != r.Group.Version || got.Pending != 0 || !got.Known {
		t.Errorf("%+v", got)
	}

	// A new link begins with everything: what is not in it is gone.
	p.follower.Relay(Update{Full: true, Version: r.Version})
	expect(t, "gone", next(t, w.Next), "-group1")
}
