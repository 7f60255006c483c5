package walk

import (
	"slices"

	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/store/record"
)

func (w *world) shard() *state.Shard { return w.state.ShardNamed(group) }

// apply carries out a command as the next entry of the controller's log.
func (w *world) apply(c state.Command) state.Result {
	before := w.shard()
	w.index++
	r, _ := w.state.Apply(w.index, c)
	w.trace("%T%+v: %v", c, c, r.Err)
	after := w.shard()
	if before != nil && (after.Epoch < before.Epoch || after.SetVersion < before.SetVersion) {
		w.fail("I2: epoch %d, version %d after epoch %d, version %d", after.Epoch, after.SetVersion, before.Epoch, before.SetVersion)
	}
	w.dead = after != nil && len(after.Set)+len(after.ELR) == 0
	if err := w.state.Check(); err != nil {
		w.fail("controller: %v", err)
	}
	return r
}

// setMinISR changes the copies that are wanted.
func (w *world) setMinISR(n int) {
	if r := w.apply(state.SetShard{Shard: w.shard().ID, MinISR: &n}); r.Err != nil {
		w.fail("MinISR: %v", r.Err)
	}
}

// view is what the controller shows right now.
func (w *world) view() quorum.View {
	h := w.shard()
	v := quorum.View{
		Epoch: record.Epoch(h.Epoch), Version: h.SetVersion, MinISR: h.MinISR,
		Master: quorum.Member{Replica: quorum.Replica(h.Master), Inc: quorum.Incarnation(h.MasterInc)},
	}
	for _, r := range h.Replicas {
		m := quorum.Member{Replica: quorum.Replica(r.ID), Inc: quorum.Incarnation(r.Incarnation)}
		v.Replicas = append(v.Replicas, m)
		if slices.Contains(h.Set, r.ID) {
			v.Set = append(v.Set, m)
		}
	}
	return v
}

// show sends the present view to a replica; it may be old when it comes.
func (w *world) show(n *node) {
	v := w.view()
	w.send("view", func() { n.seen(v) })
}

// elect replaces the master, for a reason or for none: by an eligible replica, mostly one that runs.
func (w *world) elect() {
	h := w.shard()
	if w.calm && h.Master != 0 && w.nodes[h.Master-1].m != nil && w.nodes[h.Master-1].m.Epoch() == record.Epoch(h.Epoch) {
		return
	}
	id := h.Candidate(func(id state.ReplicaID) bool {
		n := w.nodes[id-1]
		return w.rng.IntN(3) > 0 && (n.up && n.inc == quorum.Incarnation(h.Replica(id).Incarnation) || !w.calm && w.chance(8))
	})
	if id == 0 {
		return
	}
	if !slices.Contains(h.Set, id) && !slices.Contains(h.ELR, id) {
		w.fail("I6: replica %d is elected from neither S %v nor ELR %v", id, h.Set, h.ELR)
	}
	if r := w.apply(state.Elect{Shard: h.ID, Epoch: h.Epoch, Winner: id, Inc: h.Replica(id).Incarnation}); r.Err == nil {
		w.stats.epochs++
	}
}

// alter is a proposal that reaches the controller.
func (w *world) alter(n *node, m *quorum.Core, p quorum.Proposal) {
	h := w.shard()
	c := state.AlterS{
		Shard: h.ID, Epoch: state.Epoch(p.Epoch), SetVersion: p.Version,
		Master: state.Member{ID: state.ReplicaID(p.Master.Replica), Inc: state.Incarnation(p.Master.Inc)},
		Least:  w.rng.IntN(2) * 2,
	}
	before := h.Set
	for _, member := range p.Set {
		inc := state.Incarnation(member.Inc)
		if w.off.noIncarnations {
			inc = h.Replica(state.ReplicaID(member.Replica)).Incarnation
		}
		c.Set = append(c.Set, state.Member{ID: state.ReplicaID(member.Replica), Inc: inc})
	}
	outcome := quorum.Refused
	if w.apply(c).Err == nil {
		outcome = quorum.Done
		w.stats.changes++
		for _, member := range c.Set {
			if in := w.nodes[member.ID-1]; !slices.Contains(before, member.ID) && in.inc == quorum.Incarnation(member.Inc) {
				in.tainted = false // the process that was admitted still runs
			}
		}
	} else {
		w.stats.refused++
	}
	v := w.view()
	w.send("answer", func() {
		if n.m == m {
			n.led(m.Answered(w.now, p.Number, outcome, v))
		}
	})
}

// mayTaint tells whether a replica may stop in a way that loses what is only in memory: the mode bears MinISR-1 of
// those at a time, and none that takes the last whole copy.
func (w *world) mayTaint(n *node) bool {
	if w.cfg.mode == quorum.Durable {
		return true
	}
	h := w.shard()
	tainted, whole := 1, false
	for _, other := range w.nodes {
		id := state.ReplicaID(other.id)
		if other == n || !slices.Contains(h.Set, id) && !slices.Contains(h.ELR, id) {
			continue
		}
		if other.tainted {
			tainted++
		} else {
			whole = true
		}
	}
	return whole && tainted < w.cfg.minISR
}
