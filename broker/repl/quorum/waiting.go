package quorum

import (
	"fmt"
	"slices"
	"time"

	"github.com/perigee-mq/perigee/store/record"
)

// Reason says why C does not move.
type Reason uint8

// Reasons.
const (
	OwnFlush    Reason = iota + 1 // the master's own log is not durable
	BelowMinISR                   // S has too few members
	NoSession                     // a member has no session in its present incarnation
	NoAck                         // a member has a session, and acked nothing in it yet
	LateAck                       // a member acked less than there is
)

var reasonNames = [...]string{"none", "own_flush", "below_min_isr", "no_session", "no_ack", "late_ack"}

// String is the name of the reason in metrics and logs.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Wait is one thing that C waits for.
type Wait struct {
	Reason  Reason
	Replica Replica       // who; of BelowMinISR the master
	Since   time.Duration // boot-time clock; of LateAck when it was caught up last. 0: not known
	Bytes   int64         // written and not acked there; of BelowMinISR not acknowledged at all
}

// Waits appends everything that C waits for to dst: nothing if all that is written is acknowledged.
func (c *Core) Waits(dst []Wait) []Wait {
	left := int64(c.written - c.confirm)
	if left == 0 {
		return dst
	}
	if own := c.own(); own < c.written {
		dst = append(dst, Wait{Reason: OwnFlush, Replica: c.o.Self.Replica, Bytes: int64(c.written - own)})
	}
	if len(c.set) < c.minISR {
		dst = append(dst, Wait{Reason: BelowMinISR, Replica: c.o.Self.Replica, Bytes: left})
	}
	for _, m := range c.set {
		dst = c.waitFor(dst, m)
	}
	for _, m := range c.pending.Set {
		if !slices.Contains(c.set, m) {
			dst = c.waitFor(dst, m)
		}
	}
	return dst
}

func (c *Core) waitFor(dst []Wait, m Member) []Wait {
	end := c.ackOf(m)
	if m == c.o.Self || end >= c.written {
		return dst
	}
	w := Wait{Reason: NoSession, Replica: m.Replica, Since: c.began, Bytes: int64(c.written - end)}
	switch p := c.find(m.Replica); {
	case p == nil:
	case p.session == 0 || p.inc != m.Inc:
		w.Since = max(w.Since, p.broke)
	case !p.acked:
		w.Reason, w.Since = NoAck, p.lastAck
	default:
		w.Reason, w.Since = LateAck, p.caughtAt
	}
	return append(dst, w)
}

// Peer is what a master knows of a follower, for status and metrics.
type Peer struct {
	Member                    // in its session, or the newest incarnation that is known
	Session        Session    // 0: none
	InSet, Learner bool       // InSet: a member of S, as the controller confirmed it
	Acked          bool       // in this session; without it the ends are not known
	Written        record.Pos // that it acked
	Durable        record.Pos
	CaughtUp       time.Duration // when it had acked all that there was when it was sent something
}

// Peers appends all other replicas that are known to dst, by replica.
func (c *Core) Peers(dst []Peer) []Peer {
	for i := range c.peers {
		p := &c.peers[i]
		inc := p.known
		if p.session != 0 {
			inc = p.inc
		}
		dst = append(dst, Peer{
			Member: Member{p.id, inc}, Session: p.session, InSet: c.isMember(p.id), Learner: p.learner,
			Acked: p.acked, Written: p.written, Durable: p.durable, CaughtUp: p.caughtAt,
		})
	}
	return dst
}

// Check returns the first invariant that does not hold.
func (c *Core) Check() error {
	if c.durable > c.written || c.confirm > c.own() {
		return fmt.Errorf("a log written to %d, durable to %d, confirmed to %d", c.written, c.durable, c.confirm)
	}
	p := &c.pending
	sets := [][]Member{c.set}
	if p.Number != 0 {
		if p.Version != c.version || p.Epoch != c.epoch || p.Master != c.o.Self {
			return fmt.Errorf("a proposal for version %d of epoch %d is out at version %d of epoch %d (I8)", p.Version, p.Epoch, c.version, c.epoch)
		}
		sets = append(sets, p.Set)
	} else if len(p.Set) > 0 {
		return fmt.Errorf("members of no proposal count (I4)")
	}
	for _, set := range sets {
		if !slices.Contains(set, c.o.Self) {
			return fmt.Errorf("the master is not in %v", set)
		}
		for i := range set {
			if i > 0 && set[i-1].Replica >= set[i].Replica {
				return fmt.Errorf("members out of order: %v", set)
			}
		}
	}
	for i := range c.peers {
		switch p := &c.peers[i]; {
		case i > 0 && c.peers[i-1].id >= p.id || p.id == c.o.Self.Replica:
			return fmt.Errorf("replica %d is out of order", p.id)
		case p.durable > p.written || p.written > c.written:
			return fmt.Errorf("replica %d acked %d and %d of a log that ends at %d", p.id, p.written, p.durable, c.written)
		case p.session > c.sessions || p.session != 0 && p.inc < p.known:
			return fmt.Errorf("replica %d: session %d of incarnation %d, which is over (I9)", p.id, p.session, p.inc)
		case p.session == 0 && p.acked:
			return fmt.Errorf("replica %d: an ack of no session (I9)", p.id)
		}
	}
	return nil
}
