package repl

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// duo is a master in epoch 1, alone in S, and a replica that does not follow yet.
func duo(t *testing.T) (a, b *node) {
	t.Helper()
	w := newNetwork()
	a, b = newNode(t, w, 1, memfs.New()), newNode(t, w, 2, memfs.New())
	a.lead(view(1, 1, a), nil)
	return a, b
}

// failed waits until a role ends by itself.
func (n *node) failed() error {
	n.t.Helper()
	var err error
	select {
	case err = <-n.ended:
	case <-time.After(time.Minute):
		n.t.Fatal("it goes on")
	}
	n.stop()
	n.stop, n.follower, n.leader = nil, nil, nil
	return err
}

// TestFollowersDiskIsFull: a follower without room says so, keeps away, and goes on when there is some.
//
//fault:space the disk of a follower gets full while it follows => it gives up its session and says why, nothing ends, it goes on when there is room
func TestFollowersDiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		a, b := duo(t)
		b.follow()
		require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
		inSync(t, b.follower, a.log.Written())
		b.fs.SetBudget(b.fs.Used() + 10_000)
		for range 100 {
			a.write(rng, 2, 4000)
		}
		a.flush()
		eventually(t, "full", func() bool { s, ok := b.follower.Status(); return ok && s.DiskFull })
		sessions := a.leader.sessionsEver(t)
		time.Sleep(time.Minute)
		s, ok := b.follower.Status()
		require.True(t, ok && s.DiskFull)
		require.Equal(t, follower.Connecting, s.State)
		require.Equal(t, sessions+1, a.leader.sessionsEver(t), "it does not take up one again and again")
		require.Equal(t, int64(-1), s.LagBytes)
		require.NoError(t, b.log.Err())
		b.fs.SetBudget(0)
		inSync(t, b.follower, a.log.Written())
		s, _ = b.follower.Status()
		require.False(t, s.DiskFull)
		sameLogs(t, a, b)
		closeAll(a, b)
	})
}

// TestPromiseFails: an epoch that can't be made durable as seen is answered by nobody; it is tried again.
func TestPromiseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := duo(t)
		var fails atomic.Bool
		var kept atomic.Uint64
		fails.Store(true)
		b.options = func(o *FollowerOptions) {
			o.Promise = func(e record.Epoch) error {
				if fails.Load() {
					return fs.ErrInvalid
				}
				kept.Store(uint64(e))
				return nil
			}
		}
		b.follow()
		require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
		time.Sleep(10 * time.Second)
		s, _ := a.leader.Status()
		require.Empty(t, s.Peers, "it has not said hello")
		require.Error(t, b.follower.Seen(1<<40), "it is seen, and not on disk")
		fails.Store(false)
		eventually(t, "promised", func() bool { return kept.Load() == 1<<40 })
		closeAll(a, b)
	})
}

// TestDamageIsNotServed: a record that is damaged at the master gets to no follower, and somebody is told.
//
//fault:damage a record in the master's log is damaged before a follower has it => no follower gets it, the owner of the master is told
func TestDamageIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		w := newNetwork()
		a, b := newNode(t, w, 1, memfs.New()), newNode(t, w, 2, memfs.New())
		told := make(chan error, 100)
		a.lead(view(1, 1, a), func(o *LeaderOptions) { o.Damaged = func(err error) { told <- err } })
		for range 10 {
			a.write(rng, 1, 1000)
		}
		good := a.log.Written()
		a.write(rng, 1, 1000)
		a.write(rng, 1, 1000)
		a.flush()
		f, err := a.fs.Open("log/00000000000000000000")
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{1, 2, 3}, int64(good)+50)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		b.follow()
		require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
		time.Sleep(5 * time.Second)
		require.NotEmpty(t, told)
		require.True(t, mqerr.Is(<-told, mqerr.Corrupt))
		require.Equal(t, good, b.log.Written())
		closeAll(a, b)
	})
}

// TestSlowViews: views that take their time hold up no ack.
func TestSlowViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		a, b, c := trio(t, nil)
		b.views.delay.Store(int64(time.Minute))
		c.views.delay.Store(int64(time.Minute))
		for range 20 {
			a.write(rng, 3, 4000)
			a.flush()
			require.NoError(t, a.leader.Await(t.Context(), a.log.Written()))
			time.Sleep(50 * time.Millisecond)
		}
		require.Zero(t, b.views.Applied())
		time.Sleep(3 * time.Minute)
		require.Equal(t, a.log.Written(), b.views.Applied())
		closeAll(a, b, c)
	})
}

// TestWhoDoesNotBelongHere: strangers are refused with what is wrong, and a replica that does not lead says who does.
func TestWhoDoesNotBelongHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := duo(t)
		for _, change := range []func(*Self){
			func(s *Self) { s.ClusterID = "c2" },
			func(s *Self) { s.Shard = 8 },
			func(s *Self) { s.Member.Replica = 1 },
		} {
			b.options = func(o *FollowerOptions) { change(&o.Self) }
			b.follow()
			require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
			time.Sleep(time.Second)
			s, _ := a.leader.Status()
			require.Empty(t, s.Peers)
			f, ok := b.follower.Status()
			require.True(t, ok, "it goes on trying")
			require.Equal(t, follower.Connecting, f.State)
			require.NoError(t, b.rest())
		}

		heard := make(chan string, 10)
		b.options = func(o *FollowerOptions) { o.Higher = func(e record.Epoch, hint string) { heard <- hint } }
		b.follow()
		require.NoError(t, a.rest())
		a.service.Follow(5, "node-3")
		require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
		require.Equal(t, "node-3", <-heard)
		eventually(t, "promised", func() bool { s, _ := b.follower.Status(); return s.Promised == 5 })
		closeAll(a, b)
	})
}

// TestSilence: a side that hears nothing from the other ends the stream, and the follower opens another one.
//
//fault:network a stream between replicas stands still without breaking => both sides end it, the follower opens another one
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := duo(t)
		b.follow()
		require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
		inSync(t, b.follower, a.log.Written())
		s, _ := a.leader.Status()
		first := s.Peers[0].Session
		hear := a.net.deafen(address(2))
		time.Sleep(4500 * time.Millisecond)
		inSync(t, b.follower, a.log.Written())
		s, _ = a.leader.Status()
		require.Greater(t, s.Peers[0].Session, first)
		hear()
		closeAll(a, b)
	})
}

// TestSuperseded: a second stream of the same replica takes the place of the first.
func TestSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := duo(t)
		b.follow()
		require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
		inSync(t, b.follower, a.log.Written())
		twin := newNode(t, a.net, 2, memfs.New())
		twin.self.Member.Inc = 9
		twin.follow()
		require.NoError(t, twin.follower.Follow(1, a.self.Member, address(1)))
		inSync(t, twin.follower, a.log.Written())
		time.Sleep(5 * time.Second) // the other one tries again and again
		s, _ := a.leader.Status()
		require.Len(t, s.Peers, 1)
		require.Equal(t, quorum.Member{Replica: 2, Inc: 9}, s.Peers[0].Member)
		f, _ := twin.follower.Status()
		require.Equal(t, follower.InSync, f.State)
		closeAll(a, b, twin)
	})
}

// TestAwaitEnds: nobody waits for an epoch that is over, or longer than it wants.
func TestAwaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := trio(t, nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, a.leader.Await(ctx, 1<<40), context.DeadlineExceeded)
		l := a.leader
		waits := make(chan error)
		go func() { waits <- l.Await(context.Background(), 1<<40) }()
		synctest.Wait()
		require.NoError(t, a.rest())
		require.True(t, mqerr.Is(<-waits, mqerr.Draining))
		require.True(t, mqerr.Is(l.Await(context.Background(), 1<<40), mqerr.Draining))
		require.NoError(t, l.Await(context.Background(), l.Confirmed()))
		closeAll(a, b, c)
	})
}

// sessionsEver opens a session of nobody to see how many there were before.
func (l *Leader) sessionsEver(t *testing.T) quorum.Session {
	t.Helper()
	var n quorum.Session
	require.True(t, l.ask(func() {
		s, _, err := l.core.Open(l.now(), quorum.Member{Replica: 99, Inc: 1}, true)
		require.NoError(t, err)
		n = s
		l.core.Close(l.now(), s)
	}))
	return n
}
