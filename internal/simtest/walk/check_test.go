package walk

import (
	"slices"

	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/controller/state"
)

// acknowledged takes note of what a master took for acknowledged, and looks whether that may be.
func (w *world) acknowledged(n *node) {
	c := int(n.confirm)
	if c > len(n.log) {
		w.fail("master %d acknowledges %d of %d records", n.id, c, len(n.log))
		return
	}
	if k := min(c, len(w.committed)); k > 0 && n.log[k-1] != w.committed[k-1] {
		w.fail("lost: record %d is %v on master %d of epoch %d, %v was acknowledged there", k-1, n.log[k-1], n.id, n.m.Epoch(), w.committed[k-1])
		return
	}
	if c <= len(w.committed) {
		return
	}
	w.trace("acknowledged by %d: %d", n.id, c)
	w.stats.commits += c - len(w.committed)
	w.committed = slices.Clone(n.log[:c])
	if w.cfg.mode == quorum.Durable {
		copies := 0
		for _, other := range w.nodes {
			if other.durable >= c && other.log[c-1] == n.log[c-1] {
				copies++
			}
		}
		if copies < n.m.MinISR() {
			w.fail("record %d is acknowledged with %d copies on disk", c-1, copies)
		}
	}
}

// shown looks whether what a follower takes for acknowledged is.
func (w *world) shown(n *node) {
	c := int(n.confirm)
	if c > min(len(w.committed), len(n.log)) || c > 0 && n.log[c-1] != w.committed[c-1] {
		w.fail("dirty read: replica %d takes %d records for acknowledged, %d are", n.id, c, len(w.committed))
	}
}

// check is I5: every acknowledged record is in the log of every member of S and of ELR.
func (w *world) check() {
	h, c := w.shard(), len(w.committed)
	if c == 0 || w.dead {
		return
	}
	for _, n := range w.nodes {
		id := state.ReplicaID(n.id)
		if !slices.Contains(h.Set, id) && !slices.Contains(h.ELR, id) {
			continue
		}
		if n.tainted && !(n.up && n.inc != 0) {
			continue // it is going to be removed when it registers
		}
		have := len(n.log)
		if w.cfg.mode == quorum.Durable {
			have = n.durable
		}
		if have < c || n.log[c-1] != w.committed[c-1] {
			w.fail("I5: %d records are acknowledged, S is %v, ELR %v, and replica %d has %d", c, h.Set, h.ELR, n.id, have)
		}
	}
}

// checkLogs is I3: the same position and epoch in two logs means the same records up to there.
func (w *world) checkLogs() {
	for i, a := range w.nodes {
		for _, b := range w.nodes[:i] {
			same := true
			for k := range min(len(a.log), len(b.log)) {
				x, y := a.log[k], b.log[k]
				if same = same && x == y; !same && x.epoch == y.epoch {
					w.fail("I3: record %d is %v on replica %d and %v on replica %d", k, x, a.id, y, b.id)
					return
				}
			}
		}
	}
}
