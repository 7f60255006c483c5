// Package follower decides what a replica may do that follows a master: which epochs it obeys, what it must
// make durable before what, which batches it takes, what it acks and what it knows as confirmed.
//
// A Core lives as long as the replica follows. It gets what happens as calls and answers with a Todo. The
// caller does what a Todo says, in the order of its fields, and says when a durable step is done; until then the
// Core takes nothing that rests on it. It reads no clock and no file and is not safe for concurrent use.
//
// The rules, with the names of the design:
//
//   - I10: a replica obeys no epoch below the highest that it has seen, and it has that on disk before it answers
//     anybody in it. From the moment of a promise on nothing is acked in an older epoch: that is the fence.
//   - I12: nothing below the replica's own confirm offset is ever cut.
//   - I13: a cut is durable before anything is appended behind it.
//   - C = min(the master's C, own end), and never goes back. It is the master's C of the present session, since only
//     then the two logs are known to be the same.
package follower

import (
	"fmt"

	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// State is where a follower is.
type State uint8

// States.
const (
	Idle        State = iota // it knows no master of the highest epoch that it has seen
	Connecting               // it knows one and has no stream to it
	Reconciling              // the two logs are compared, or the outcome of that is carried out
	CatchingUp               // it gets records, and lacks some
	InSync                   // it has all that the master had when it said so last
	Failed                   // acknowledged bytes differ: an operator has to look
)

var stateNames = [...]string{"idle", "connecting", "reconciling", "catching_up", "in_sync", "failed"}

// String is the name of the state in metrics and logs.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Options begin a Core.
type Options struct {
	// Log is the index of the replica's log. The Core keeps it: whoever else needs it reads it between calls.
	Log     *replica.Index
	Durable record.Pos // end of what is on disk of the log
	Confirm record.Pos // what the replica knows as confirmed, at most the log's end
	// Promised is the highest epoch that the replica has on disk as seen.
	Promised record.Epoch
}

// Todo is what the caller has to do, in this order. The zero value is nothing.
type Todo struct {
	// Close says that the stream is to be closed: its session is over.
	Close bool
	// Promise is an epoch to be made durable as seen; say so to Promised. 0: none.
	Promise record.Epoch
	// Cut says that the log is to be cut at CutAt, durably; say so to Cut.
	Cut   bool
	CutAt record.Pos
	// MoreSpans says that the master asks for another Hello, with older spans.
	MoreSpans bool
	// Snapshot says that the log is to begin anew from a snapshot of the master's. Then make a new Core.
	Snapshot bool
	// Append says that the batch is to be appended; say so to Appended.
	Append bool
	// Ack says that Ack has something to send.
	Ack bool
}

// Core is what a replica that follows has to know.
//
// Invariants (Check): log.First <= log.End; durable <= log.End; confirm <= log.End; no record is of an epoch above
// the promised one, which is that of the session, too.
type Core struct {
	log      *replica.Index
	durable  record.Pos
	confirm  record.Pos
	promised record.Epoch

	state   State
	failed  error
	master  quorum.Member // of the promised epoch, zero if it is not known
	session quorum.Session

	// Steps that are to become durable before anything else.
	owesPromise bool
	owesCut     bool
	cutAt       record.Pos
	appending   bool
	batchEpoch  record.Epoch // of the records that are appended
	batchEnd    record.Pos

	// What the master said in this session.
	masterConfirm, masterEnd record.Pos
}

// New begins with no master. Corrupt if the log has an epoch that was never promised, Internal if the positions
// can't be.
func New(o Options) (*Core, error) {
	c := &Core{log: o.Log, durable: o.Durable, confirm: o.Confirm, promised: o.Promised}
	if last := c.log.Epoch(); last > c.promised {
		return nil, mqerr.New(mqerr.Corrupt, "the log has records of epoch %d, the highest epoch that was promised is %d: bring the promise back from a copy", last, c.promised)
	}
	if err := c.Check(); err != nil {
		return nil, mqerr.New(mqerr.Internal, "a follower: %w", err)
	}
	return c, nil
}

// State is where the follower is.
func (c *Core) State() State { return c.state }

// Failed says why the replica may not follow, nil if it may.
func (c *Core) Failed() error { return c.failed }

// Promised is the highest epoch that was seen. It may not be durable yet.
func (c *Core) Promised() record.Epoch { return c.promised }

// Master is who leads the promised epoch, as far as is known.
func (c *Core) Master() (quorum.Member, bool) { return c.master, c.master.Replica != 0 }

// Confirm is C as the replica knows it: bytes below it are acknowledged and never change.
func (c *Core) Confirm() record.Pos { return c.confirm }

// End is how far the log goes.
func (c *Core) End() record.Pos { return c.log.End() }

// Durable is how far the log is on disk.
func (c *Core) Durable() record.Pos { return c.durable }

// Seen takes note of an epoch, from whomever: a higher one ends the session, since nothing may be acked in an older
// one any more.
func (c *Core) Seen(epoch record.Epoch) Todo {
	if epoch <= c.promised {
		return Todo{}
	}
	t := c.Lost()
	c.promised, c.owesPromise, c.master = epoch, true, quorum.Member{}
	if c.state != Failed {
		c.state = Idle
	}
	t.Promise = epoch
	return t
}

// Follow says who is the master of an epoch, as the controller shows it. Fenced if a higher epoch was seen.
func (c *Core) Follow(epoch record.Epoch, master quorum.Member) (Todo, error) {
	if c.failed != nil {
		return Todo{}, c.failed
	}
	if epoch < c.promised || epoch == 0 {
		return Todo{}, mqerr.New(mqerr.Fenced, "epoch %d is over: epoch %d has begun", epoch, c.promised)
	}
	t := c.Seen(epoch)
	if c.master == master {
		return t, nil
	}
	if c.session != 0 || c.state > Connecting {
		t = c.Lost()
	}
	c.master = master
	c.state = Connecting
	return t, nil
}

// PromiseKept says that the promise of an epoch is on disk.
func (c *Core) PromiseKept(epoch record.Epoch) Todo {
	if epoch != c.promised || !c.owesPromise {
		return Todo{}
	}
	c.owesPromise = false
	return c.settled()
}

// Lost says that the stream is gone. What was asked for in it counts no more.
func (c *Core) Lost() Todo {
	t := Todo{Close: c.state >= Reconciling && c.state <= InSync}
	c.session, c.masterConfirm, c.masterEnd = 0, 0, 0
	c.owesCut, c.appending = false, false
	if t.Close {
		c.state = Connecting
	}
	return t
}

// fail stops the replica for good.
func (c *Core) fail(format string, args ...any) error {
	c.Lost()
	c.state = Failed
	c.failed = mqerr.New(mqerr.Corrupt, format, args...)
	return c.failed
}

// Check returns the first invariant that does not hold.
func (c *Core) Check() error {
	end := c.log.End()
	switch {
	case c.durable < 0 || c.durable > end || c.confirm < 0 || c.confirm > end:
		return fmt.Errorf("a log that ends at %d, durable to %d, confirmed to %d", end, c.durable, c.confirm)
	case c.session != 0 && (c.state < Reconciling || c.state == Failed):
		return fmt.Errorf("a session while %v", c.state)
	case (c.state == CatchingUp || c.state == InSync) && (c.session == 0 || c.owesPromise || c.owesCut):
		return fmt.Errorf("%v, with steps that are not done", c.state)
	case c.log.Epoch() > c.promised:
		return fmt.Errorf("a record of epoch %d, promised is %d (I10)", c.log.Epoch(), c.promised)
	}
	return c.log.Check()
}
