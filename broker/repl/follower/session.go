package follower

import (
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// Welcome is what a master answers to a Hello.
type Welcome struct {
	Session quorum.Session // 0 with verdicts that begin none: all but Resume and Truncate
	Epoch   record.Epoch
	Master  quorum.Member
	replica.Answer
	Confirm        record.Pos // the master's C
	LogMin, LogEnd record.Pos // the master's log
}

// Batch is the head of records that a master sent: whole ones, of one epoch, and never a part of those that the
// master wrote as one (record.FlagMore).
type Batch struct {
	Session     quorum.Session
	Epoch       record.Epoch // of the session
	Start, End  record.Pos
	RecordEpoch record.Epoch // of the records
	More        bool         // the last record has FlagMore
	Confirm     record.Pos   // the master's C
}

// Beat is what a master sends when it has no records to send.
type Beat struct {
	Session quorum.Session
	Epoch   record.Epoch
	LogEnd  record.Pos
	Confirm record.Pos
}

// Ack is what a follower says of its log.
type Ack struct {
	Session          quorum.Session
	Epoch            record.Epoch
	Written, Durable record.Pos
}

// Hello begins a session: the stream to the master is there. The caller adds who it is, the promised epoch and the last
// record; when asked for MoreSpans it says the same again with the next page of spans (replica.Index.Page).
// Unavailable while there is no master to follow, the promise is not on disk, or a stream is there (Lost ends it).
func (c *Core) Hello() (replica.Hello, error) {
	switch {
	case c.failed != nil:
		return replica.Hello{}, c.failed
	case c.state != Connecting || c.owesPromise:
		return replica.Hello{}, mqerr.New(mqerr.Unavailable, "a follower that is %v says no hello (epoch %d on disk: %t)", c.state, c.promised, !c.owesPromise)
	}
	c.state = Reconciling
	return replica.Hello{
		First: c.log.First(), End: c.log.End(), Confirm: c.confirm,
		Spans: c.log.Page(nil, replica.NewestPage, replica.PageMax),
	}, nil
}

// Welcome takes the master's answer. Fenced if its epoch is over, Invalid if it can't be: the stream is to be closed.
// Corrupt if it asks for something that would cut acknowledged bytes (I12): the replica has failed then.
func (c *Core) Welcome(w Welcome) (Todo, error) {
	switch {
	case c.state != Reconciling || c.session != 0:
		return Todo{}, mqerr.New(mqerr.Invalid, "a welcome while %v", c.state)
	case w.Epoch < c.promised:
		return Todo{}, c.fenced(w.Epoch)
	case w.Epoch == c.promised && w.Master != c.master:
		return Todo{}, mqerr.New(mqerr.Fenced, "epoch %d belongs to replica %d (incarnation %d), not to replica %d (incarnation %d)",
			w.Epoch, c.master.Replica, c.master.Inc, w.Master.Replica, w.Master.Inc)
	case w.Session == 0 && (w.Verdict == replica.Resume || w.Verdict == replica.Truncate) || w.Confirm < 0 || w.LogMin < 0 || w.LogEnd < w.LogMin || w.Confirm > w.LogEnd:
		return Todo{}, mqerr.New(mqerr.Invalid, "session %d with a log [%d, %d), confirmed to %d", w.Session, w.LogMin, w.LogEnd, w.Confirm)
	}
	if err := c.mayObey(w); err != nil {
		return Todo{}, err
	}
	var t Todo
	if w.Epoch > c.promised {
		c.promised, c.master, c.owesPromise = w.Epoch, w.Master, true
		t.Promise = w.Epoch
	}
	switch w.Verdict {
	case replica.MoreSpans:
		t.MoreSpans = true
		return t, nil
	case replica.Snapshot:
		t.Snapshot = true
		return t, nil
	case replica.Truncate:
		c.owesCut, c.cutAt = true, w.At
		t.Cut, t.CutAt = true, w.At
	}
	c.session, c.masterConfirm, c.masterEnd = w.Session, w.Confirm, w.LogEnd
	t.Ack = c.settled().Ack
	return t, nil
}

// mayObey tells whether a verdict can be carried out.
func (c *Core) mayObey(w Welcome) error {
	first, end := c.log.First(), c.log.End()
	switch w.Verdict {
	case replica.MoreSpans:
		return nil
	case replica.Resume:
		if w.At == end {
			return nil
		}
	case replica.Truncate:
		if w.At < c.confirm {
			return c.fail("the master of epoch %d wants this log cut at %d, below %d, up to where it is acknowledged: one of the two logs is damaged; nothing was touched", w.Epoch, w.At, c.confirm)
		}
		if w.At >= first && w.At <= end {
			return nil
		}
	case replica.Snapshot:
		if c.confirm > max(w.LogMin, first) {
			return c.fail("the master of epoch %d wants this log replaced, which is acknowledged up to %d, by one that begins at %d and shares nothing with it: one of the two is damaged; nothing was touched", w.Epoch, c.confirm, w.LogMin)
		}
		return nil
	case replica.Diverged:
		return c.fail("the master of epoch %d has other bytes below %d, up to where this log is acknowledged: one of the two logs is damaged; nothing was touched", w.Epoch, c.confirm)
	}
	return mqerr.New(mqerr.Invalid, "%v at %d of a log [%d, %d)", w.Verdict, w.At, first, end)
}

// CutDone says that the log was cut, and that this is on disk. Corrupt if that went below what is acknowledged.
func (c *Core) CutDone(at record.Pos) (Todo, error) {
	if at < c.confirm {
		return Todo{}, c.fail("the log was cut at %d, below %d, up to where it is acknowledged", at, c.confirm)
	}
	if err := c.log.Truncate(at); err != nil {
		return Todo{}, err
	}
	c.durable = min(c.durable, at)
	if c.owesCut && at == c.cutAt {
		c.owesCut = false
	}
	return c.settled(), nil
}

// settled goes on when nothing is owed any more: the two logs are the same up to the end of this one.
func (c *Core) settled() Todo {
	if c.session == 0 || c.owesPromise || c.owesCut || c.state != Reconciling {
		return Todo{}
	}
	c.state = CatchingUp
	c.advance()
	return Todo{Ack: true}
}

// Batch judges a batch before it is appended. Fenced if its session or epoch is not the present one, Invalid if it
// does not continue the log: the stream is to be closed.
func (c *Core) Batch(b Batch) (Todo, error) {
	if err := c.inSession(b.Session, b.Epoch); err != nil {
		return Todo{}, err
	}
	switch {
	case c.appending:
		return Todo{}, mqerr.New(mqerr.Internal, "a batch at %d came before the one up to %d was appended", b.Start, c.batchEnd)
	case b.Start != c.log.End() || b.End <= b.Start:
		return Todo{}, mqerr.New(mqerr.Invalid, "records [%d, %d) do not continue a log that ends at %d", b.Start, b.End, c.log.End())
	case b.RecordEpoch < c.log.Epoch() || b.RecordEpoch > b.Epoch || b.RecordEpoch == 0:
		return Todo{}, mqerr.New(mqerr.Invalid, "records of epoch %d at %d follow epoch %d, in epoch %d", b.RecordEpoch, b.Start, c.log.Epoch(), b.Epoch)
	case b.More:
		return Todo{}, mqerr.New(mqerr.Invalid, "records [%d, %d) end within what was written as one", b.Start, b.End)
	case b.Confirm < 0:
		return Todo{}, mqerr.New(mqerr.Invalid, "confirmed to %d", b.Confirm)
	}
	c.appending, c.batchEpoch, c.batchEnd = true, b.RecordEpoch, b.End
	c.heard(b.End, b.Confirm)
	return Todo{Append: true}, nil
}

// Appended says that the batch judged last is written. If the session has ended meanwhile nothing is acked, but the log
// is longer all the same.
func (c *Core) Appended(b Batch) (Todo, error) {
	if err := c.log.Append(b.RecordEpoch, b.Start, b.End); err != nil {
		return Todo{}, err
	}
	if !c.appending {
		return Todo{}, nil
	}
	c.appending = false
	c.advance()
	return Todo{Ack: true}, nil
}

// Flushed says that the log, as it is now, is on disk up to an end. What was flushed before a cut says nothing of
// what was appended behind it: no flush may be under way while the log is cut.
func (c *Core) Flushed(durable record.Pos) Todo {
	c.durable = max(c.durable, min(durable, c.log.End()))
	return Todo{Ack: c.state == CatchingUp || c.state == InSync}
}

// Beat takes a sign of life. It is answered with an Ack, so that the master knows that it is heard.
func (c *Core) Beat(b Beat) (Todo, error) {
	if err := c.inSession(b.Session, b.Epoch); err != nil {
		return Todo{}, err
	}
	if b.Confirm < 0 || b.LogEnd < b.Confirm {
		return Todo{}, mqerr.New(mqerr.Invalid, "a log that ends at %d, confirmed to %d", b.LogEnd, b.Confirm)
	}
	c.heard(b.LogEnd, b.Confirm)
	c.advance()
	return Todo{Ack: true}, nil
}

// Ack is what the master may hear of this log now; false if nothing.
func (c *Core) Ack() (Ack, bool) {
	if c.state != CatchingUp && c.state != InSync {
		return Ack{}, false
	}
	return Ack{Session: c.session, Epoch: c.promised, Written: c.log.End(), Durable: c.durable}, true
}

func (c *Core) inSession(s quorum.Session, epoch record.Epoch) error {
	switch {
	case epoch < c.promised:
		return c.fenced(epoch)
	case c.state != CatchingUp && c.state != InSync || s != c.session || epoch != c.promised:
		return mqerr.New(mqerr.Fenced, "session %d in epoch %d: this is session %d in epoch %d, %v", s, epoch, c.session, c.promised, c.state)
	}
	return nil
}

func (c *Core) fenced(epoch record.Epoch) error {
	return mqerr.New(mqerr.Fenced, "epoch %d is over: epoch %d has begun", epoch, c.promised)
}

func (c *Core) heard(end, confirm record.Pos) {
	c.masterEnd = max(c.masterEnd, end)
	c.masterConfirm = max(c.masterConfirm, confirm)
}

// advance moves C as far as the log goes, and tells whether the follower is in sync.
func (c *Core) advance() {
	c.confirm = max(c.confirm, min(c.masterConfirm, c.log.End()))
	c.state = CatchingUp
	if c.log.End() >= c.masterEnd {
		c.state = InSync
	}
}
