// Package quorum decides on a master what is acknowledged: it holds the confirm offset C of one epoch and the
// SyncStateSet S that C rests on.
//
// A Core lives as long as one epoch of one master. It gets what happens as calls, with the time on the
// boot-time clock as an argument, and answers with an Out: where C is, whether a proposal is to be sent to the
// controller, whether the epoch is over. It reads no clock, waits for nothing and is not safe for concurrent
// use: one goroutine owns it, so that a check and what rests on it can't be torn apart (I7).
//
// The rules, with the names of the design:
//
//   - I4: C moves to x only if every member of S and of the proposal that is out has acked x in its present
//     session under this epoch, the master's own log reaches x, and S, as the controller confirmed it, has at least
//     MinISR members. C never goes back.
//   - I7: a replica is proposed only if its acked end is at or behind C and behind the EPOCH record, and it
//     counts from that moment on.
//   - I8: one proposal at a time. It counts until the controller shows a newer version of S, or says for certain
//     that it will never be carried out. An answer that did not come proves nothing.
//   - I9: an ack counts in the session it came from, for the incarnation that opened the session. Members are
//     replicas in one incarnation.
//   - I10: a higher epoch, or another master in this one, ends the Core.
package quorum

import (
	"slices"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Replica names a replica of a broker group, from 1.
type Replica uint32

// Incarnation is one run of a replica's process, as the controller numbered it.
type Incarnation uint64

// Session is one stream of a follower, from 1, counted by its master in one epoch.
type Session uint64

// Member is a replica in one incarnation.
type Member struct {
	Replica Replica
	Inc     Incarnation
}

// Mode says what an ack stands for.
type Mode uint8

// Modes of a group.
const (
	Durable Mode = iota // records are on the disk of every member
	Memory              // records are written, and may be lost with the power
)

// View is what the controller's state says of the group.
type View struct {
	Epoch    record.Epoch
	Master   Member // zero: none
	Version  uint64 // V, of the set and of MinISR
	Set      []Member
	MinISR   int      // copies before anything is acknowledged, at least 1. Whoever changes it raises V
	Replicas []Member // all that are registered, in any order
}

// Times are the patience of a master with its followers. Zero means the default.
type Times struct {
	Behind time.Duration // a member that reached no end that it was sent for so long is to leave S. Default 10 s
	Silent time.Duration // so is one that acks nothing for so long while something is to ack. Default 3 s
	Gone   time.Duration // so is one without a session for so long. Default 1 s
	// Rejoin is how long a replica must have been caught up to enter S, unless S is below MinISR. Default 2 s.
	// Negative: a replica enters S as soon as that is safe, also if it is slow.
	Rejoin time.Duration
	Retry  time.Duration // pause before a proposal is sent again. Default 500 ms
	// Pause is the longest time between two Ticks of a process that runs. What is longer is time in which this
	// process stood still: it is no silence of the others. Default 1 s.
	Pause time.Duration
}

func (t Times) withDefaults() Times {
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{{&t.Behind, 10 * time.Second}, {&t.Silent, 3 * time.Second}, {&t.Gone, time.Second}, {&t.Rejoin, 2 * time.Second}, {&t.Retry, 500 * time.Millisecond}, {&t.Pause, time.Second}} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	return t
}

// PeersMax bounds the replicas that a Core knows, as the controller bounds those of a group.
const PeersMax = 64

// Options begin an epoch.
type Options struct {
	Self Member
	View View // that made Self the master
	Mode Mode
	// Start is the end of the EPOCH record that begins this epoch. Written and Durable are the ends of the log,
	// both at or behind Start: the record is flushed before anybody hears of the epoch. Confirm is what the
	// replica knew as confirmed before.
	Start, Written, Durable, Confirm record.Pos

	Times Times
}

// Out is what a call led to. It counts beside an error, too.
type Out struct {
	Confirm record.Pos // C
	Moved   bool       // C is further than before the call
	Propose bool       // send Pending to the controller, now; say what came of it to Answered
	Over    bool       // the epoch is over: promise nothing any more. Why is Over's answer
}

// Proposal is a change of S that the master asks for.
type Proposal struct {
	Number  uint64 // counts the proposals of this Core, to tell their answers apart
	Epoch   record.Epoch
	Master  Member
	Version uint64   // V that it was built on
	Set     []Member // by replica, the master included
}

// Core is the state of one epoch on its master.
//
// Invariants (Check): see the package. Durable <= Written, also for each peer; no peer is ahead of the log.
type Core struct {
	o       Options
	epoch   record.Epoch
	set     []Member // S as confirmed, by replica; Self is in it
	version uint64
	minISR  int // of that version

	pending Proposal // out if its Number is not 0
	sent    bool     // and has been sent, not answered
	retry   time.Duration
	numbers uint64

	written, durable, confirm record.Pos

	peers    []peer // by replica, without Self
	sessions Session

	began, now time.Duration
	over       error
}

// New begins an epoch at a time of the boot-time clock. Invalid if the view does not make Self the master of an
// epoch, or the positions can't be.
func New(o Options, now time.Duration) (*Core, error) {
	o.Times = o.Times.withDefaults()
	v := o.View
	switch {
	case v.MinISR < 1:
		return nil, mqerr.New(mqerr.Invalid, "%d copies before anything is acknowledged: take at least 1", v.MinISR)
	case o.Self.Replica == 0 || v.Master != o.Self || v.Epoch == 0 || !slices.Contains(v.Set, o.Self):
		return nil, mqerr.New(mqerr.Invalid, "replica %d (incarnation %d) is not the master of epoch %d", o.Self.Replica, o.Self.Inc, v.Epoch)
	case len(v.Set) > PeersMax || len(v.Replicas) > PeersMax:
		return nil, mqerr.New(mqerr.Invalid, "a group of %d replicas: the most are %d", max(len(v.Set), len(v.Replicas)), PeersMax)
	case o.Start <= 0 || o.Durable < o.Start || o.Written < o.Durable || o.Confirm < 0 || o.Confirm > o.Durable:
		return nil, mqerr.New(mqerr.Invalid, "epoch %d starts at %d with a log written to %d, durable to %d, confirmed to %d", v.Epoch, o.Start, o.Written, o.Durable, o.Confirm)
	}
	c := &Core{
		o: o, epoch: v.Epoch, version: v.Version, set: sorted(v.Set), minISR: v.MinISR,
		written: o.Written, durable: o.Durable, confirm: o.Confirm, began: now, now: now,
	}
	c.know(v)
	c.advance()
	return c, nil
}

func sorted(set []Member) []Member {
	set = slices.Clone(set)
	slices.SortFunc(set, func(a, b Member) int { return int(int64(a.Replica) - int64(b.Replica)) })
	return set
}

// Epoch is the epoch of this Core.
func (c *Core) Epoch() record.Epoch { return c.epoch }

// Confirm is C: bytes below it are acknowledged and never change.
func (c *Core) Confirm() record.Pos { return c.confirm }

// Set is S as the controller confirmed it, and its version. It must not be changed.
func (c *Core) Set() ([]Member, uint64) { return c.set, c.version }

// MinISR is how many members S must have before anything is acknowledged, as of its version.
func (c *Core) MinISR() int { return c.minISR }

// Pending is the proposal that is out, if there is one. Its Set must not be changed.
func (c *Core) Pending() (Proposal, bool) { return c.pending, c.pending.Number != 0 }

// Over says why the epoch is over, nil while it is not.
func (c *Core) Over() error { return c.over }

// Tick lets time pass. Call it every 200 ms or so, so that what is due happens in time.
func (c *Core) Tick(now time.Duration) Out {
	c.clock(now)
	return c.step()
}

// OwnEnd says how far the master's own log is written and durable. Neither goes back.
func (c *Core) OwnEnd(written, durable record.Pos) Out {
	c.written = max(c.written, written)
	c.durable = max(c.durable, min(durable, c.written))
	return c.step()
}

// Higher says that somebody has seen this epoch: one above the Core's ends it (I10).
func (c *Core) Higher(epoch record.Epoch) Out {
	if epoch > c.epoch {
		c.end(mqerr.New(mqerr.Fenced, "epoch %d is over: epoch %d has begun", c.epoch, epoch))
	}
	return c.step()
}

func (c *Core) end(why error) {
	if c.over == nil {
		c.over = why
	}
}

// step does what can be done now: the proposal first, so that a replica counts from the moment in which it
// was found fit, then C.
func (c *Core) step() Out {
	was := c.confirm
	propose := false
	if c.over == nil {
		propose = c.propose()
		c.advance()
	}
	return Out{Confirm: c.confirm, Moved: c.confirm > was, Propose: propose, Over: c.over != nil}
}

// advance moves C as far as I4 allows.
func (c *Core) advance() {
	if len(c.set) < c.minISR {
		return
	}
	end := c.own()
	for _, m := range c.set {
		end = min(end, c.ackOf(m))
	}
	for _, m := range c.pending.Set {
		end = min(end, c.ackOf(m))
	}
	c.confirm = max(c.confirm, end)
}

// own is how far the master's log counts.
func (c *Core) own() record.Pos {
	if c.o.Mode == Memory {
		return c.written
	}
	return c.durable
}

// clock takes the time. It never goes back; where this process stood still, so did its patience.
func (c *Core) clock(now time.Duration) {
	if now <= c.now {
		return
	}
	if still := now - c.now; still > c.o.Times.Pause {
		c.began += still
		for i := range c.peers {
			c.peers[i].shift(still)
		}
	}
	c.now = now
}
