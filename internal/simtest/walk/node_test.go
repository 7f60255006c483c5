package walk

import (
	"fmt"
	"slices"

	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// node is a replica: a disk, and a process if it is up.
type node struct {
	w  *world
	id quorum.Replica

	// On disk.
	log      []rec
	durable  int           // of the log
	promised record.Epoch  // with last, synced at once
	last     state.Version // incarnation
	clean    bool          // it stopped cleanly
	saved    record.Pos    // confirm offset of its last checkpoint
	tainted  bool          // it may have lost records since it was admitted to S

	// The process.
	up      bool
	inc     quorum.Incarnation // 0 until it is registered
	stopped bool               // how it came to its end before this run: cleanly
	confirm record.Pos
	spans   *replica.Index
	f       *follower.Core
	m       *quorum.Core
	done    record.Epoch // the highest epoch that it led
	conn    uint64       // its stream to a master
	feeds   []*feed
	asked   uint64 // number of the proposal that it waits for
}

// feed is what a master sends to one session.
type feed struct {
	to      *node
	conn    uint64
	session quorum.Session
	next    int
}

func (n *node) String() string {
	role := "down"
	switch {
	case n.m != nil:
		set, v := n.m.Set()
		role = fmt.Sprintf("master of %d with %v (%d)", n.m.Epoch(), set, v)
	case n.f != nil:
		role = n.f.State().String()
	}
	return fmt.Sprintf("%d.%d: %s, %d records (%d on disk, %d acknowledged), promised %d", n.id, n.inc, role, len(n.log), n.durable, n.confirm, n.promised)
}

func (n *node) member() quorum.Member { return quorum.Member{Replica: n.id, Inc: n.inc} }

// boot starts the process: what is in the log is synced first.
func (n *node) boot() {
	n.up, n.inc, n.m, n.conn, n.feeds = true, 0, nil, 0, nil
	n.durable, n.stopped, n.clean = len(n.log), n.clean, false
	n.spans = replica.New(0)
	for i, r := range n.log {
		if err := n.spans.Append(r.epoch, record.Pos(i), record.Pos(i+1)); err != nil {
			n.w.fail("log of %d: %v", n.id, err)
		}
	}
	n.confirm = n.saved
	n.follow()
}

// follow becomes a follower that knows no master.
func (n *node) follow() {
	f, err := follower.New(follower.Options{Log: n.spans, Durable: record.Pos(n.durable), Confirm: n.confirm, Promised: n.promised})
	if err != nil {
		n.w.fail("replica %d: %v", n.id, err)
		return
	}
	n.f, n.m, n.feeds = f, nil, nil
}

// start boots a replica that is down, or registers one that is not registered.
func (n *node) start() {
	switch {
	case !n.up:
		n.w.trace("boot %v", n)
		n.boot()
		if h := n.w.shard(); n.w.off.sameEpoch && h.Master == state.ReplicaID(n.id) {
			n.goOn()
			return
		}
		n.register(false)
	case n.inc == 0:
		n.register(false)
	}
}

// register asks for an incarnation. The answer may get lost; the second time the controller can't tell the retry
// from a restart, so it counts as unclean.
func (n *node) register(sure bool) {
	w := n.w
	asked := state.Enroll{MinISR: w.cfg.minISR, Commit: state.Commit(w.cfg.mode), RegisterReplica: state.RegisterReplica{
		Shard: group, Replica: state.ReplicaID(n.id), UUID: state.UUID{byte(n.id)}, Address: "127.0.0.1:1", MaxEpoch: state.Epoch(n.promised),
		Last: state.Incarnation(n.last), Clean: n.stopped, LogEnd: int64(len(n.log)),
	}}
	if h := w.shard(); w.off.keepUnclean && h != nil && h.Replica(asked.Replica) != nil {
		asked.Clean, asked.Last = true, h.Replica(asked.Replica).Incarnation
	}
	if !sure && !w.calm && w.chance(8) { // it gets lost, or comes when nobody waits for it
		if w.cfg.mode == quorum.Durable {
			w.send("registration", func() { w.apply(asked) })
		}
		return
	}
	r := w.apply(asked)
	if r.Err != nil {
		w.fail("replica %d can't register: %v", n.id, r.Err)
		return
	}
	if !sure && !w.calm && w.chance(8) && w.mayTaint(n) {
		n.tainted = w.cfg.mode == quorum.Memory
		return
	}
	n.inc, n.last = quorum.Incarnation(w.index), w.index
}

// stop ends the process: cleanly, or without what was not flushed, all of it or some.
func (n *node) stop() {
	w := n.w
	if !n.up {
		return
	}
	how := min(w.rng.IntN(5), 2)
	if how > 0 && !w.mayTaint(n) {
		how = 0
	}
	switch how {
	case 0:
		n.durable, n.clean = len(n.log), n.inc != 0
		if !n.clean && !w.mayTaint(n) {
			return
		}
		n.tainted = n.tainted || !n.clean && w.cfg.mode == quorum.Memory
	case 2:
		if kept := n.durable + w.rng.IntN(len(n.log)-n.durable+1)*w.rng.IntN(2); kept < len(n.log) {
			w.stats.losses++
			n.log = n.log[:kept]
		}
		fallthrough
	case 1:
		n.tainted = w.cfg.mode == quorum.Memory
	}
	w.trace("stop %d (%d) of %v", n.id, how, n)
	w.kill(n)
}

// kill ends the process; its streams break, which others may hear of or not.
func (w *world) kill(n *node) {
	n.up, n.inc, n.f, n.m, n.feeds, n.conn = false, 0, nil, nil, nil, 0
	n.durable = min(n.durable, len(n.log))
	n.saved = min(n.saved, record.Pos(n.durable))
	n.confirm = n.saved
	w.broken(n)
}

// broken tells masters that a follower's stream is gone.
func (w *world) broken(n *node) {
	for _, t := range w.nodes {
		for _, f := range t.feeds {
			if f.to == n {
				m := t.m
				w.send("broken", func() {
					if t.m == m && m != nil {
						if w.rng.IntN(2) == 0 {
							t.led(m.Left(w.now, f.session))
						} else {
							t.led(m.Close(w.now, f.session))
						}
					}
				})
			}
		}
	}
}

// hangUp breaks a follower's stream.
func (n *node) hangUp() {
	if n.f == nil || n.conn == 0 {
		return
	}
	n.f.Lost()
	n.conn = 0
	n.w.broken(n)
}

// flush makes the log durable; now and then a checkpoint is written.
func (n *node) flush() {
	if !n.up || n.w.cfg.mode == quorum.Memory && !n.w.calm && !n.w.chance(4) {
		return
	}
	n.durable = len(n.log)
	switch {
	case n.m != nil:
		n.led(n.m.OwnEnd(record.Pos(len(n.log)), record.Pos(n.durable)))
	case n.f != nil:
		n.do(n.f.Flushed(record.Pos(n.durable)))
	}
	if n.w.chance(3) {
		n.saved = max(n.saved, min(n.confirm, record.Pos(n.durable)))
	}
}

// seen is a view of the controller's that comes to a replica.
func (n *node) seen(v quorum.View) {
	if !n.up || n.inc == 0 {
		return
	}
	if slices.ContainsFunc(v.Replicas, func(m quorum.Member) bool { return m.Replica == n.id && m.Inc > n.inc }) {
		n.w.trace("%v: registered once more", n) // a late copy: this process is nobody any more
		n.w.kill(n)
		return
	}
	if n.m != nil {
		if n.led(n.m.Controller(n.w.now, v)); n.m != nil {
			return
		}
	}
	if n.f == nil {
		return
	}
	switch {
	case v.Master.Replica == 0:
		n.do(n.f.Seen(v.Epoch))
	case v.Master.Replica != n.id:
		t, err := n.f.Follow(v.Epoch, v.Master)
		if err == nil {
			n.do(t)
		}
	case v.Master == n.member() && v.Epoch >= n.f.Promised() && v.Epoch > n.done:
		n.promote(v)
	default:
		n.do(n.f.Seen(v.Epoch))
	}
}
