package repl

import (
	"context"
	"math/rand/v2"
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

// trio is a master in epoch 1 and two followers that are members of S.
func trio(t *testing.T, change func(*LeaderOptions)) (a, b, c *node) {
	t.Helper()
	w := newNetwork()
	a, b, c = newNode(t, w, 1, memfs.New()), newNode(t, w, 2, memfs.New()), newNode(t, w, 3, memfs.New())
	b.follow()
	c.follow()
	a.lead(view(1, 1, a, b, c), change)
	for _, n := range []*node{b, c} {
		require.NoError(t, n.follower.Follow(1, a.self.Member, address(1)))
	}
	return a, b, c
}

func closeAll(nodes ...*node) {
	for _, n := range nodes {
		n.close()
	}
}

func TestReplication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		a, b, c := trio(t, nil)
		for range 200 {
			a.write(rng, 1+rng.IntN(3), 4000)
		}
		a.flush()
		end := a.log.Written()
		require.NoError(t, a.leader.Await(t.Context(), end))
		require.Equal(t, end, a.leader.Confirmed())
		inSync(t, b.follower, end)
		inSync(t, c.follower, end)
		sameLogs(t, a, b)
		sameLogs(t, a, c)
		eventually(t, "followers know what is confirmed", func() bool {
			return b.follower.Confirmed() == end && c.follower.Confirmed() == end && b.views.Applied() == end
		})
		s, ok := a.leader.Status()
		require.True(t, ok)
		require.Empty(t, s.Waits)
		require.Len(t, s.Peers, 2)
		for _, p := range s.Peers {
			require.Zero(t, p.LagBytes)
			require.Zero(t, p.Lag)
			require.Zero(t, p.InFlight)
			require.True(t, p.InSet)
		}

		// What is not durable here is durable there, and is not confirmed.
		a.write(rng, 1, 4000)
		more := a.log.Written()
		inSync(t, b.follower, more)
		inSync(t, c.follower, more)
		time.Sleep(time.Second)
		require.Equal(t, end, a.leader.Confirmed())
		s, _ = a.leader.Status()
		require.Equal(t, quorum.OwnFlush, s.Waits[0].Reason)
		a.flush()
		require.NoError(t, a.leader.Await(t.Context(), more))
		closeAll(a, b, c)
	})
}

// TestConfirmMovesAtOnce: nobody waits for a beat.
func TestConfirmMovesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		a, b, c := trio(t, nil)
		require.NoError(t, a.leader.Await(t.Context(), a.log.Written()))
		synctest.Wait()
		began := time.Now()
		a.write(rng, 1, 1000)
		a.flush()
		synctest.Wait()
		require.Equal(t, a.log.Written(), a.leader.Confirmed())
		require.Equal(t, a.log.Written(), b.follower.Confirmed())
		require.Equal(t, a.log.Written(), c.follower.Confirmed())
		require.Zero(t, time.Since(began))
		closeAll(a, b, c)
	})
}

func TestMemoryMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		w := newNetwork()
		a, b := newNode(t, w, 1, memfs.New()), newNode(t, w, 2, memfs.New())
		b.options = func(o *FollowerOptions) { o.FlushInterval = 500 * time.Millisecond }
		b.follow()
		a.lead(view(1, 1, a, b), func(o *LeaderOptions) { o.Mode = quorum.Memory })
		require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
		require.NoError(t, a.leader.Await(t.Context(), a.log.Written()))
		time.Sleep(1200 * time.Millisecond)
		durable := a.log.Durable()
		a.write(rng, 1, 1000)
		synctest.Wait()
		require.Equal(t, a.log.Written(), a.leader.Confirmed())
		require.Equal(t, durable, b.log.Durable(), "nobody waits for the disk")
		time.Sleep(501 * time.Millisecond)
		require.Equal(t, a.log.Written(), b.log.Durable())
		closeAll(a, b)
	})
}

// TestSlowFollower: a follower that reads nothing holds up nobody but itself, and costs bounded memory.
func TestSlowFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		proposed := make(chan quorum.Proposal, 10)
		a, b, c := trio(t, func(o *LeaderOptions) {
			o.WindowBytes = 1 << 20
			o.Propose = func(_ context.Context, p quorum.Proposal) (quorum.Outcome, quorum.View) {
				proposed <- p
				return quorum.Done, quorum.View{Epoch: 1, Version: p.Version + 1, Master: p.Master, Set: p.Set, MinISR: 2, Replicas: []quorum.Member{{Replica: 1, Inc: 1}, {Replica: 2, Inc: 1}, {Replica: 3, Inc: 1}}}
			}
		})
		inSync(t, c.follower, a.log.Written())
		hear := a.net.deafen(address(3))
		for range 100 {
			a.write(rng, 10, 10_000)
		}
		a.flush()
		inSync(t, b.follower, a.log.Written())
		sameLogs(t, a, b)
		s, _ := a.leader.Status()
		require.LessOrEqual(t, s.Peers[1].InFlight, int64(2<<20))
		require.Greater(t, s.Peers[1].LagBytes, int64(3<<20))
		require.Equal(t, int64(0), s.Peers[0].LagBytes)
		p := <-proposed
		require.Equal(t, []quorum.Member{a.self.Member, b.self.Member}, p.Set)
		require.NoError(t, a.leader.Await(t.Context(), a.log.Written()))
		hear()
		inSync(t, c.follower, a.log.Written())
		sameLogs(t, a, c)
		p = <-proposed
		require.Len(t, p.Set, 3, "it is in S again")
		closeAll(a, b, c)
	})
}

// TestWindow: no more is under way to a follower that does not ack than the window, and one batch.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		a, b, c := trio(t, func(o *LeaderOptions) { o.WindowBytes, o.BatchBytes = 300_000, 50_000 })
		inSync(t, b.follower, a.log.Written())
		goOn := make(chan struct{})
		go b.follower.ask(func() { <-goOn }) // it reads, and does nothing with it
		synctest.Wait()
		for range 100 {
			a.write(rng, 1, 20_000)
		}
		synctest.Wait()
		s, _ := a.leader.Status()
		require.Greater(t, s.Peers[0].InFlight, int64(300_000-50_000))
		require.LessOrEqual(t, s.Peers[0].InFlight, int64(350_000))
		close(goOn)
		inSync(t, b.follower, a.log.Written())
		closeAll(a, b, c)
	})
}

// TestDivergedTail: what an old master wrote and nobody confirmed is cut when it follows.
func TestDivergedTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		a, b, c := trio(t, nil)
		a.write(rng, 3, 4000)
		a.flush()
		common := a.log.Written()
		require.NoError(t, a.leader.Await(t.Context(), common))
		inSync(t, b.follower, common)
		inSync(t, c.follower, common)
		a.net.setAway(address(1), true)
		for range 30 {
			a.write(rng, 3, 4000)
		}
		a.flush()
		old := a.leader
		time.Sleep(time.Second)
		require.Equal(t, common, old.Confirmed())

		b.lead(view(2, 5, b, c, a), nil)
		require.NoError(t, c.follower.Follow(2, b.self.Member, address(2)))
		for range 10 {
			b.write(rng, 3, 4000)
		}
		b.flush()
		inSync(t, c.follower, b.log.Written())
		sameLogs(t, b, c)
		require.Less(t, b.log.Written(), a.log.Written())

		a.net.setAway(address(1), false)
		require.NoError(t, a.rest())
		a.follow()
		require.NoError(t, a.follower.Follow(2, b.self.Member, address(2)))
		inSync(t, a.follower, b.log.Written())
		sameLogs(t, b, a)
		require.NoError(t, b.leader.Await(t.Context(), b.log.Written()), "all of S")
		closeAll(a, b, c)
	})
}

// TestOldMasterIsFenced: a master learns of a higher epoch from a follower that comes, and from one that acks.
func TestOldMasterIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var higher []record.Epoch
		a, b, c := trio(t, func(o *LeaderOptions) { o.Higher = func(e record.Epoch) { higher = append(higher, e) } })
		require.NoError(t, a.leader.Await(t.Context(), a.log.Written()))
		waits := make(chan error)
		go func() { waits <- a.leader.Await(context.Background(), a.log.Written()+1) }()
		require.NoError(t, c.follower.Seen(4))
		time.Sleep(time.Second) // its stream has ended; it knows no master of epoch 4
		s, ok := c.follower.Status()
		require.True(t, ok)
		require.Equal(t, follower.Idle, s.State)
		require.Equal(t, record.Epoch(4), c.epoch)
		require.Equal(t, []record.Epoch{4}, higher, "it said so")
		err := <-waits
		require.True(t, mqerr.Is(err, mqerr.Fenced), err)
		require.True(t, mqerr.Is(<-a.ended, mqerr.Fenced))
		_, ok = a.leader.Status()
		require.False(t, ok)
		a.stop = nil
		a.service.Follow(4, "node-9")

		// The other one hears of it from the master that was.
		eventually(t, "promised", func() bool { s, _ := b.follower.Status(); return s.Promised == 4 })
		require.True(t, mqerr.Is(b.follower.Follow(3, a.self.Member, address(1)), mqerr.Fenced))
		closeAll(a, b, c)
	})
}
