package quorum

import (
	"slices"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Outcome is what came of a proposal.
type Outcome uint8

// Outcomes.
const (
	// Unknown says that no answer came, or none of the state machine: the proposal may be carried out yet.
	Unknown Outcome = iota
	// Done says that it was carried out.
	Done
	// Refused says that the state machine judged it and refused. Versions, epochs and incarnations only grow, so
	// what is refused for one of them will always be.
	Refused
)

// Controller says what the controller's state is, or was: a view that is older than what is known changes nothing.
func (c *Core) Controller(now time.Duration, v View) Out {
	c.clock(now)
	c.learn(v)
	return c.step()
}

// Answered says what came of the proposal of that number. With Done and Refused v is the controller's state right
// after that, or later; with Unknown it is zero. Without it nothing is cleared, whatever the outcome (I8).
func (c *Core) Answered(now time.Duration, number uint64, o Outcome, v View) Out {
	c.clock(now)
	mine := number == c.pending.Number && number != 0
	if mine {
		c.sent = false
		if o != Done {
			c.retry = c.now + c.o.Times.Retry
		}
	}
	if v.Epoch != 0 {
		c.learn(v) // first: what was refused may have been carried out by a copy that came earlier
	}
	if mine && o == Refused && v.Epoch == c.epoch && v.Version == c.pending.Version {
		c.pending = Proposal{} // it was refused for an incarnation that is over, and will always be
	}
	return c.step()
}

// learn takes a view over if it is newer.
func (c *Core) learn(v View) {
	switch {
	case c.over != nil || v.Epoch < c.epoch:
		return
	case v.Epoch > c.epoch:
		c.end(mqerr.New(mqerr.Fenced, "epoch %d is over: epoch %d has begun", c.epoch, v.Epoch))
		return
	case v.Version < c.version:
		return
	case v.Master != c.o.Self || !slices.Contains(v.Set, c.o.Self):
		c.end(mqerr.New(mqerr.Fenced, "replica %d (incarnation %d) is not the master of epoch %d any more", c.o.Self.Replica, c.o.Self.Inc, c.epoch))
		return
	case len(v.Set) > PeersMax || len(v.Replicas) > PeersMax || v.MinISR < 1:
		c.end(mqerr.New(mqerr.Internal, "the controller shows a group of %d replicas and %d copies", max(len(v.Set), len(v.Replicas)), v.MinISR))
		return
	}
	if v.Version > c.version {
		c.set, c.version, c.minISR = sorted(v.Set), v.Version, v.MinISR
		if c.pending.Version < v.Version {
			c.pending, c.sent = Proposal{}, false
		}
	}
	c.know(v)
	for i, m := range c.set { // a member that registered again is the same member in a new incarnation
		if p := c.find(m.Replica); p != nil && slices.Contains(v.Set, Member{m.Replica, p.known}) {
			c.set[i].Inc = p.known
		}
	}
}

// know notes the incarnations of a view, ends sessions of those that are over, and forgets who is not registered.
func (c *Core) know(v View) {
	for _, list := range [][]Member{v.Replicas, v.Set} {
		for _, m := range list {
			if m.Replica == c.o.Self.Replica {
				continue
			}
			p := c.peer(m.Replica)
			p.registered = max(p.registered, m.Inc)
			p.known = max(p.known, m.Inc)
			if p.session != 0 && p.inc < p.known {
				c.closed(p)
			}
		}
	}
	c.peers = slices.DeleteFunc(c.peers, func(p peer) bool {
		here := func(m Member) bool { return m.Replica == p.id }
		return p.session == 0 && !slices.ContainsFunc(v.Replicas, here) && !slices.ContainsFunc(v.Set, here)
	})
}

// propose makes a proposal if one is due and none is out, and tells whether it is to be sent.
func (c *Core) propose() bool {
	if c.pending.Number == 0 {
		if c.now < c.retry || !c.changes() {
			return false
		}
		c.numbers++
		c.pending = Proposal{Number: c.numbers, Epoch: c.epoch, Master: c.o.Self, Version: c.version, Set: c.wanted()}
		c.sent = false
	} else if c.sent || c.now < c.retry {
		return false
	}
	c.sent = true
	return true
}

// changes tells whether somebody is to leave S or may enter it.
func (c *Core) changes() bool {
	for i := range c.peers {
		if c.mayEnter(&c.peers[i]) {
			return true
		}
	}
	return slices.ContainsFunc(c.set, c.mustLeave)
}

// wanted is S as it should be, by replica.
func (c *Core) wanted() []Member {
	set := make([]Member, 0, len(c.set)+1)
	for _, m := range c.set {
		if !c.mustLeave(m) {
			set = append(set, m)
		}
	}
	for i := range c.peers {
		if p := &c.peers[i]; c.mayEnter(p) {
			set = append(set, Member{p.id, p.inc})
		}
	}
	return sorted(set)
}

func (c *Core) isMember(id Replica) bool {
	return slices.ContainsFunc(c.set, func(m Member) bool { return m.Replica == id })
}

// mayEnter tells whether a replica may be proposed (I7). It must be registered in the incarnation of its session,
// as far as is known here.
func (c *Core) mayEnter(p *peer) bool {
	if p.session == 0 || !p.acked || p.learner || p.inc != p.registered || c.isMember(p.id) {
		return false
	}
	end := c.endOf(p)
	if end < c.confirm {
		return false
	}
	if end < c.o.Start {
		return false
	}
	if c.o.Times.Rejoin < 0 {
		return true
	}
	if !p.caught || c.now-p.caughtAt > c.o.Times.Rejoin {
		return false
	}
	return len(c.set) < c.minISR || c.now-p.caughtSince >= c.o.Times.Rejoin
}

// mustLeave tells whether a member has been away, silent or behind for too long.
func (c *Core) mustLeave(m Member) bool {
	if m == c.o.Self {
		return false
	}
	t, p := &c.o.Times, c.find(m.Replica)
	if p == nil {
		return c.now-c.began >= t.Silent // it came never
	}
	if p.session == 0 || p.inc != m.Inc {
		if !p.was {
			return c.now-c.began >= t.Silent
		}
		return p.left || c.now-p.broke >= t.Gone
	}
	if c.endOf(p) < c.written && c.now-p.lastAck >= t.Silent {
		return true
	}
	return c.now-p.caughtAt >= t.Behind
}
