package repl

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// world is three replicas, their controller, and what was ever confirmed.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	net   *network
	ctl   *council
	nodes []*node
	// confirmed is the longest log that anybody took for confirmed.
	confirmed []byte
	master    *node
}

// TestFailures lets replicas write, die, lose power, lose their connections, read nothing, and lead one after another,
// with a controller that loses messages and shows its state in any order: what anybody took for confirmed never
// changes, members of S have it, and in the end all logs are the same, byte for byte.
//
//fault:kill replicas of a group are killed, or lose their power, in any order, the master among them => what was confirmed is in the log of every member of the set, and in the end all logs are the same
//fault:network streams between replicas break or stand still, a replica is out of reach, a master goes on after another one was elected => what was confirmed never changes
func TestFailures(t *testing.T) {
	first := testseed.First(t)
	seeds := uint64(30)
	if testing.Short() {
		seeds = 5
	}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { failures(t, seed) })
		})
	}
}

func failures(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{t: t, rng: rng, net: newNetwork(), ctl: &council{rng: rand.New(rand.NewPCG(seed, 2)), view: quorum.View{MinISR: 2}}}
	for id := quorum.Replica(1); id <= 3; id++ {
		n := newNode(t, w.net, id, memfs.New())
		n.self.Member.Inc = w.ctl.register(id)
		n.follow()
		w.nodes = append(w.nodes, n)
	}
	w.ctl.view.Set = slices.Clone(w.ctl.view.Replicas)
	w.failOver()
	for range 60 {
		w.step()
		w.check()
	}
	w.heal()
	for _, n := range w.nodes {
		if n != w.master {
			sameLogs(t, w.master, n)
		}
	}
	w.check()
	closeAll(w.nodes...)
}

func (w *world) others() (followers []*node) {
	for _, n := range w.nodes {
		if n != w.master {
			followers = append(followers, n)
		}
	}
	return followers
}

func (w *world) step() {
	any, rng := w.nodes[w.rng.IntN(3)], w.rng
	switch rng.IntN(14) {
	default:
		for range rng.IntN(10) {
			if w.master != nil {
				w.master.write(rng, 1+rng.IntN(4), 3000)
			}
		}
		if w.master != nil && rng.IntN(3) > 0 {
			w.master.flush()
		}
	case 0, 1, 2:
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
	case 3:
		w.net.cut(address(any.id))
	case 4:
		w.net.setAway(address(any.id), true)
	case 5, 6:
		w.net.setAway(address(any.id), false)
	case 7:
		hear := w.net.deafen(address(any.id))
		time.AfterFunc(time.Duration(rng.IntN(8000))*time.Millisecond, hear)
	case 8:
		w.restart(any)
	case 9:
		w.failOver()
	}
	w.show()
}

// show lets master and followers see the controller's state, or what it was once.
func (w *world) show() {
	w.ctl.mu.Lock()
	v := w.ctl.now()
	if n := len(w.ctl.past); w.rng.IntN(4) == 0 {
		v = w.ctl.past[w.rng.IntN(n)]
	}
	w.ctl.mu.Unlock()
	for _, n := range w.nodes {
		switch {
		case n.leader != nil:
			n.leader.Controller(v)
		case v.Master.Replica != 0 && v.Master.Replica != n.id:
			_ = n.follower.Follow(v.Epoch, v.Master, address(v.Master.Replica)) // what is over is refused
		}
	}
	w.demote()
}

// demote makes those follow that were masters.
func (w *world) demote() {
	for _, n := range w.nodes {
		if n.leader == nil {
			continue
		}
		select {
		case <-n.leader.ended:
			_ = n.rest()
			n.follow()
			if n == w.master {
				w.master = nil
			}
		default:
		}
	}
}

// restart kills a replica, perhaps with its power, and starts it again.
func (w *world) restart(n *node) {
	w.check()
	applied, durable := n.views.Applied(), n.log.Durable()
	if n == w.master {
		w.master = nil
	}
	if w.rng.IntN(2) == 0 {
		disk := n.fs.Crash(w.rng, w.rng.Float64())
		n.close() // which would sync
		n.fs = disk
	} else {
		n.close()
		n.fs.Restart()
	}
	if w.rng.IntN(2) == 0 {
		time.Sleep(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
	}
	n.open(w.ctl.register(n.id))
	if applied <= durable {
		n.views.applied.Store(int64(applied)) // from a checkpoint
	}
	n.follow()
	if w.rng.IntN(2) == 0 && w.master == nil {
		w.failOver()
	}
}

// failOver elects a master. The old one may not have heard of it.
func (w *world) failOver() {
	v, ok := w.ctl.elect(func(id quorum.Replica) bool {
		w.net.mu.Lock()
		defer w.net.mu.Unlock()
		return !w.net.away[address(id)]
	})
	if !ok {
		return
	}
	n := w.nodes[v.Master.Replica-1]
	if n.epoch > v.Epoch {
		return
	}
	w.master = n
	n.lead(v, func(o *LeaderOptions) { o.Propose = w.ctl.propose })
}

// check compares what replicas take for confirmed, and what members of S have.
func (w *world) check() {
	synctest.Wait() // nothing is being cut
	for _, n := range w.nodes {
		c := n.views.Applied()
		if n.leader != nil {
			c = max(c, n.leader.Confirmed())
		} else {
			c = max(c, n.follower.Confirmed())
		}
		w.agree(n, c)
	}
	w.ctl.mu.Lock()
	set := slices.Concat(w.ctl.view.Set, w.ctl.elr)
	w.ctl.mu.Unlock()
	for _, m := range set {
		n := w.nodes[m.Replica-1]
		have := content(w.t, n.log, n.log.Written())
		require.True(w.t, bytes.HasPrefix(have, w.confirmed), "replica %d, a member of S, lacks what was confirmed", n.id)
	}
}

func (w *world) agree(n *node, c record.Pos) {
	mine := content(w.t, n.log, c)
	k := min(len(mine), len(w.confirmed))
	require.True(w.t, bytes.Equal(mine[:k], w.confirmed[:k]), "replica %d takes other bytes for confirmed", n.id)
	if len(mine) > k {
		w.confirmed = mine
	}
}

// heal ends all faults and waits until everybody has everything.
func (w *world) heal() {
	for _, n := range w.nodes {
		w.net.setAway(address(n.id), false)
	}
	time.Sleep(10 * time.Second) // whoever is deaf hears again
	w.show()
	w.failOver()
	require.NotNil(w.t, w.master)
	v := w.ctl.view
	for _, n := range w.nodes {
		if n != w.master && n.leader != nil {
			_ = n.rest()
			n.follow()
		}
	}
	for _, n := range w.others() {
		require.NoError(w.t, n.follower.Follow(v.Epoch, v.Master, address(v.Master.Replica)))
	}
	w.master.write(w.rng, 1, 100)
	w.master.flush()
	for _, n := range w.others() {
		inSync(w.t, n.follower, w.master.log.Written())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(w.t, w.master.leader.Await(ctx, w.master.log.Written()))
}
