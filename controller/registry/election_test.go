package registry

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigee-mq/perigee/controller/election"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/lease"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// trio is a group of three replicas in a bubble: 1 leads, 1 and 2 are the SyncStateSet. Silence is a second.
type trio struct {
	*world
	beats    [4]Beat
	sessions [4]*Session
}

func newTrio(t *testing.T) *trio {
	began := time.Now()
	w := &trio{world: newWorld(t, Options{Silence: time.Second, Boot: func() time.Duration { return time.Since(began) }})}
	w.r.Start()
	for id := state.ReplicaID(1); id <= 3; id++ {
		h := w.apply(state.Enroll{RegisterReplica: state.RegisterReplica{Shard: "a", Replica: id, UUID: state.UUID{byte(id)}, Address: "127.0.0.1:1"}}).Shard
		w.beats[id] = Beat{Shard: h.ID, Replica: id, Inc: h.Replica(id).Incarnation, Follows: true}
		w.r.Registered(h.ID, id, w.beats[id].Inc)
	}
	h := w.apply(state.Elect{Shard: 1, Winner: 1, Inc: w.beats[1].Inc}).Shard
	w.beats[1].Epoch = h.Epoch
	w.apply(state.AlterS{Shard: 1, Epoch: 1, Master: state.Member{ID: 1, Inc: w.beats[1].Inc}, SetVersion: h.SetVersion, Set: []state.Member{{ID: 1, Inc: w.beats[1].Inc}, {ID: 2, Inc: w.beats[2].Inc}}})
	for id := 1; id <= 3; id++ {
		w.sessions[id] = w.open(w.beats[id])
		w.lease(id) // takes the first update
	}
	return w
}

func (w *trio) close() {
	for id := 1; id <= 3; id++ {
		w.sessions[id].Close()
	}
}

// lease returns the lease that a replica gets now, nil if none.
func (w *trio) lease(id int) *Grant {
	ctx, cancel := context.WithCancel(w.t.Context())
	cancel()
	u, _ := w.sessions[id].Next(ctx)
	return u.Lease
}

// alive lets time pass in which these replicas are heard from, and returns the election that is due then.
func (w *trio) alive(d time.Duration, ids ...int) (Election, bool) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		for _, id := range ids {
			w.beat(w.sessions[id], w.beats[id], 0)
		}
		w.r.Tick()
	}
	for _, id := range w.r.Elections() {
		return w.r.Election(id)
	}
	return Election{}, false
}

func TestSilentMasterKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrio(t)
		defer w.close()
		w.alive(5*time.Second, 1, 2, 3) // the leases of the last leader are over
		w.sessions[1].Grant(7)
		if g := w.lease(1); g == nil || g.Number != 7 || g.Epoch != 1 || g.Length != 3*time.Second {
			t.Fatalf("lease %+v", g)
		}
		wrong := w.beats[2]
		wrong.Epoch = 1 // it takes itself for the master
		w.beat(w.sessions[2], wrong, 0)
		w.sessions[2].Grant(8)
		if g := w.lease(2); g != nil {
			t.Errorf("a follower has a lease: %+v", g)
		}
		if e, ok := w.alive(lease.Terms{}.Kept()-100*time.Millisecond, 2, 3); ok {
			t.Fatalf("%+v while the lease may last", e)
		}
		e, ok := w.alive(200*time.Millisecond, 2, 3)
		if !ok || e.Winner != 2 || e.Reason != election.Silent || e.Inc != w.beats[2].Inc {
			t.Fatalf("%+v", e)
		}
	})
}

func TestNewLeaderWaitsForLeasesThatItCantSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrio(t)
		defer w.close()
		if e, ok := w.alive(lease.Terms{}.Kept()-100*time.Millisecond, 2, 3); ok {
			t.Fatalf("%+v", e)
		}
		if e, ok := w.alive(200*time.Millisecond, 2, 3); !ok || e.Winner != 2 {
			t.Fatalf("%+v", e)
		}
	})
}

// From the moment in which an election is proposed the old master gets no lease, until it is certain that the
// election will never be carried out: no outcome is no certainty.
func TestNoLeaseBesideAnElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrio(t)
		defer w.close()
		e, ok := w.alive(5*time.Second, 2, 3)
		if !ok {
			t.Fatal("no election")
		}
		granted := func() bool {
			w.sessions[1].Grant(9)
			return w.lease(1) != nil
		}
		w.beat(w.sessions[1], w.beats[1], 0) // it is back
		if granted() {
			t.Error("a lease beside an election")
		}
		w.r.Elected(e, mqerr.New(mqerr.UnknownOutcome, "nobody knows"))
		if granted() {
			t.Error("a lease beside an election of which nobody knows")
		}
		if again, ok := w.alive(100*time.Millisecond, 1, 2, 3); !ok || again != e {
			t.Errorf("%+v, not the same again", again)
		}
		w.r.Elected(e, mqerr.New(mqerr.Fenced, "too late"))
		if !granted() {
			t.Error("no lease though the election was refused")
		}
		if again, ok := w.alive(100*time.Millisecond, 1, 2, 3); ok {
			t.Errorf("%+v for a master that is well", again)
		}
	})
}

// A broker that can't follow is told to go when its epoch is over; one that can hears who leads.
func TestEpochIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrio(t)
		defer w.close()
		h := w.apply(state.Elect{Shard: 1, Epoch: 1, Winner: 2, Inc: w.beats[2].Inc}).Shard
		if err := w.sessions[1].Beat(w.beats[1]); err != nil {
			t.Errorf("it could follow: %v", err)
		}
		u, err := w.sessions[1].Next(t.Context())
		if err != nil || u.Shard != h || !u.Bare {
			t.Errorf("%+v, %v", u, err)
		}
		old := w.beats[2]
		old.Epoch, old.Follows = h.Epoch, false
		w.beat(w.sessions[2], old, 0)
		w.apply(state.Elect{Shard: 1, Epoch: h.Epoch, Winner: 2, Inc: old.Inc})
		if err := w.sessions[2].Beat(old); !mqerr.Is(err, mqerr.Fenced) {
			t.Errorf("it can't follow: %v", err)
		}
	})
}

// An operator is told of a group that nobody can lead, once, and not of one that finds somebody in a moment.
func TestAlarmHasPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrio(t)
		defer w.close()
		var log strings.Builder
		w.r.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		alarms := func() int { return strings.Count(log.String(), "broker group without a master") }
		w.alive(3*time.Second, 3) // the lease is over, and nobody of the set was heard from
		for w.r.Elections(); !w.r.shards[1].stuck; w.r.Elections() {
			w.alive(100*time.Millisecond, 3)
		}
		w.alive(alarmAfter-200*time.Millisecond, 3)
		if alarms() != 0 {
			t.Fatalf("too early: %s", log.String())
		}
		for range 3 {
			w.alive(time.Second, 3)
		}
		if alarms() != 1 {
			t.Fatalf("%d alarms: %s", alarms(), log.String())
		}
	})
}

// A master that answers a probe is asked again until it is heard from; one that does not is replaced. A new leader asks
// those that it has not heard yet.
func TestProbesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrio(t)
		defer w.close()
		w.r.o.FastFailover = true
		if p := w.r.Probes(); len(p) != 0 {
			t.Fatalf("%+v while the stream is there", p)
		}
		w.sessions[1].Close()
		for range 3 {
			p := w.r.Probes()
			if len(p) != 1 || p[0].Replica != 1 || p[0].Inc != w.beats[1].Inc {
				t.Fatalf("%+v", p)
			}
			if p := w.r.Probes(); len(p) != 0 {
				t.Fatalf("%+v while it is being asked", p)
			}
			w.r.Probed(p[0], true)
		}
		w.sessions[1] = w.open(w.beats[1])
		if p := w.r.Probes(); len(p) != 0 {
			t.Fatalf("%+v when it was heard again", p)
		}
		w.sessions[1].Close()
		w.r.Probed(w.r.Probes()[0], false)
		if e, ok := w.alive(100*time.Millisecond, 2, 3); !ok || e.Winner != 2 || e.Reason != election.Gone {
			t.Fatalf("%+v", e)
		}
		w.r.Stop()
		w.r.Start()
		if p := w.r.Probes(); len(p) != 1 || p[0].Replica != 1 {
			t.Fatalf("%+v by a new leader", p)
		}
		w.sessions[1] = w.open(w.beats[1])
	})
}
