package repl

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// Run follows until ctx ends, then it returns nil, or until this replica can't go on. A *SnapshotError says that it has
// to begin anew; an error of kind Corrupt that bytes here or at the master are damaged; any other that the disk
// failed. Nothing is appended, cut, synced or applied any more when it returns. It is called once.
func (f *Follower) Run(ctx context.Context) error {
	if !f.ran.CompareAndSwap(false, true) {
		return mqerr.New(mqerr.Internal, "this follower was run before")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.pause = time.NewTimer(time.Hour)
	defer f.pause.Stop()
	f.work.Go(func() { f.sync(ctx) })
	f.work.Go(func() { f.apply(ctx) })
	ring(f.applyNow)
	err := f.follow(ctx)
	close(f.ended)
	reason, text := replicationv1.CloseReason_CLOSE_REASON_LEAVING, "this replica stops following"
	if err != nil {
		reason, text = replicationv1.CloseReason_CLOSE_REASON_DAMAGED, err.Error()
	}
	f.drop(farewell{reason: reason, epoch: f.core.Promised(), text: text})
	cancel()
	f.work.Wait()
	return err
}

func (f *Follower) follow(ctx context.Context) error {
	silence := newPatience(f.o.Silence, time.Now())
	look := time.NewTimer(silence.step)
	defer look.Stop()
	for {
		f.publish()
		f.connect(ctx)
		var err error
		select {
		case <-ctx.Done():
			return nil
		case g := <-f.calls:
			g()
		case h := <-f.in:
			err = f.hear(h)
		case <-f.flushed:
			err = f.do(f.core.Flushed(f.o.CommitLog.Durable()))
		case err = <-f.fatal:
		case <-f.pause.C:
			f.pausing = false
		case <-look.C:
			silent := silence.look(time.Now(), f.stream == nil || f.stream.heard.Swap(false))
			look.Reset(time.Until(silence.next))
			if silent {
				f.lose(replicationv1.CloseReason_CLOSE_REASON_SILENT, mqerr.New(mqerr.Unavailable, "nothing was heard from the master for %v", f.o.Silence))
			}
		}
		if err != nil {
			return err
		}
	}
}

// publish lets the helpers know how far they may go.
func (f *Follower) publish() {
	if c := f.core.Confirm(); c > f.Confirmed() {
		f.confirmed.Store(int64(c))
		ring(f.applyNow)
	}
	if f.core.Durable() < f.core.End() {
		ring(f.syncNow)
	}
	if !f.synced && f.core.State() == follower.InSync {
		f.synced = true
		f.o.InSync()
	}
}

// connect opens a stream if there is to be one.
func (f *Follower) connect(ctx context.Context) {
	if f.lastPromise != 0 && !f.pausing {
		f.doOrDie(follower.Todo{Promise: f.lastPromise})
	}
	if f.stream != nil || f.pausing || f.core.State() != follower.Connecting {
		return
	}
	if f.full && f.o.CommitLog.Stuck() != nil {
		f.later()
		return
	}
	if first := f.o.CommitLog.First(); first > f.o.Index.First() {
		if err := f.o.Index.DropBelow(first); err != nil {
			f.die(err)
			return
		}
	}
	h, err := f.core.Hello()
	if err != nil {
		return // the promise comes first
	}
	h.Emptied = f.o.Copying
	h.Tail = tailOf(f.o.CommitLog)
	f.stream = f.open(ctx, f.address, f.hello(h))
}

func (f *Follower) hello(h replica.Hello) *replicationv1.ReplicateRequest {
	if n := len(h.Spans); n > 0 {
		f.oldestSpan = h.Spans[n-1].Epoch
	}
	m := hello{Hello: h, self: f.o.Self, epoch: f.core.Promised(), durable: f.core.Durable(), learner: f.o.Learner}
	return m.request()
}

// hear takes what a stream has heard. An error ends the replica's following.
func (f *Follower) hear(h heard) error {
	if h.from != f.stream {
		h.free()
		return nil
	}
	if h.err != nil {
		f.lose(replicationv1.CloseReason_CLOSE_REASON_UNSPECIFIED, h.err)
		return nil
	}
	defer h.message.free()
	said := &h.message.said
	switch {
	case h.message.isBatch:
		return f.append(&h.message.batch)
	case said.GetWelcome() != nil:
		w := welcomeOf(said.GetWelcome())
		if v := said.GetWelcome().GetVersion(); v != Version {
			f.lose(replicationv1.CloseReason_CLOSE_REASON_REFUSED, mqerr.New(mqerr.Unsupported, "the master (release %s) speaks version %d of replication, this replica (release %s) version %d: run the same release on both",
				said.GetWelcome().GetRelease(), v, f.o.Release, Version))
			return nil
		}
		f.masterEnd = w.LogEnd
		t, err := f.core.Welcome(w)
		if err == nil && t.Snapshot {
			if err := f.do(follower.Todo{Promise: t.Promise}); err != nil {
				return err
			}
			return &SnapshotError{Epoch: w.Epoch, End: f.core.End(), MasterFirst: w.LogMin, MasterEnd: w.LogEnd}
		}
		return f.judged(t, err)
	case said.GetBeat() != nil:
		b := beatOf(said.GetBeat())
		if ms := said.GetBeat().GetLeaseClockMs(); ms > 0 && f.o.LeaseClock != nil {
			f.shift.heard(b.Epoch, ms-f.o.LeaseClock())
		}
		t, err := f.core.Beat(b)
		if err == nil {
			f.well(b.LogEnd)
		}
		return f.judged(t, err)
	case said.GetClose() != nil:
		return f.dismissed(farewellOf(said.GetClose()))
	}
	f.lose(replicationv1.CloseReason_CLOSE_REASON_PROTOCOL, mqerr.New(mqerr.Invalid, "the master sent what is no message"))
	return nil
}

// judged does what the core found, or ends the stream over what it refused.
func (f *Follower) judged(t follower.Todo, err error) error {
	if err == nil {
		return f.do(t)
	}
	if failed := f.core.Failed(); failed != nil {
		return failed
	}
	reason := replicationv1.CloseReason_CLOSE_REASON_PROTOCOL
	if mqerr.Is(err, mqerr.Fenced) {
		reason = replicationv1.CloseReason_CLOSE_REASON_STALE_EPOCH
	}
	f.lose(reason, err)
	return nil
}

// dismissed takes the master's farewell.
func (f *Follower) dismissed(bye farewell) error {
	higher := bye.epoch > f.core.Promised()
	f.lose(replicationv1.CloseReason_CLOSE_REASON_UNSPECIFIED, mqerr.New(mqerr.Unavailable, "the master ended the stream (%v): %s", bye.reason, bye.text))
	if !higher {
		return nil
	}
	err := f.do(f.core.Seen(bye.epoch))
	f.o.Higher(bye.epoch, bye.hint)
	return err
}

// append takes a batch into the log.
func (f *Follower) append(b *batch) error {
	if t, err := f.core.Batch(b.Batch); err != nil {
		return f.judged(t, err)
	}
	log := f.o.CommitLog
	err := log.AppendChunk(b.chunk())
	switch {
	case err == nil:
	case log.Err() != nil:
		return err
	case mqerr.Is(err, mqerr.DiskFull):
		f.full = true
		f.lose(replicationv1.CloseReason_CLOSE_REASON_DISK_FULL, err)
		return nil
	case mqerr.Is(err, mqerr.Corrupt):
		f.lose(replicationv1.CloseReason_CLOSE_REASON_DAMAGED, fmt.Errorf("what the master sent: %w", err))
		return nil
	default:
		f.lose(replicationv1.CloseReason_CLOSE_REASON_PROTOCOL, err)
		return nil
	}
	f.full = false
	f.well(b.End)
	t, err := f.core.Appended(b.Batch)
	if err != nil {
		return err
	}
	return f.do(t)
}

// doOrDie is do for calls that come from outside.
func (f *Follower) doOrDie(t follower.Todo) {
	if err := f.do(t); err != nil {
		f.die(err)
	}
}

// die makes Run return an error.
func (f *Follower) die(err error) {
	select {
	case f.fatal <- err:
	default:
	}
}

// well says that the stream does what it is for.
func (f *Follower) well(masterEnd record.Pos) {
	f.masterEnd = max(f.masterEnd, masterEnd)
	if f.told {
		f.o.Log.LogAttrs(context.Background(), slog.LevelInfo, "following the master again", slog.Uint64("epoch", uint64(f.core.Promised())), slog.String("address", f.address))
	}
	f.failures, f.told = 0, false
}

// lose ends the stream because of an error, and tries again later.
func (f *Follower) lose(reason replicationv1.CloseReason, why error) {
	f.drop(farewell{reason: reason, epoch: f.core.Promised(), text: why.Error()})
	level := slog.LevelDebug
	if !f.told {
		f.told, level = true, slog.LevelWarn
	}
	f.o.Log.LogAttrs(context.Background(), level, "the stream from the master ended and is opened again; of several failures in a row the first is told", slog.String("address", f.address), slog.String("error", why.Error()))
	f.failures++
	f.later()
}

// drop ends the stream, if there is one.
func (f *Follower) drop(bye farewell) {
	if f.stream != nil {
		f.stream.leave(bye)
		f.stream = nil
	}
	f.core.Lost()
}

// later puts the next try off: longer after each failure in a row, and never at the same time as others.
func (f *Follower) later() {
	d := f.o.BackoffMin << min(max(f.failures-1, 0), 20)
	if d <= 0 || d > f.o.BackoffMax {
		d = f.o.BackoffMax
	}
	f.pausing = true
	f.pause.Reset(d/2 + rand.N(d/2+1))
}

// tryNow ends the pause.
func (f *Follower) tryNow() {
	f.pause.Stop()
	f.pausing = false
}
