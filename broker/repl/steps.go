package repl

import (
	"context"
	"fmt"
	"log/slog"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// do carries out what the core wants, in its order. An error ends the replica's following.
func (f *Follower) do(t follower.Todo) error {
	if t.Close {
		f.drop(farewell{reason: replicationv1.CloseReason_CLOSE_REASON_STALE_EPOCH, epoch: f.core.Promised(), text: fmt.Sprintf("epoch %d has begun", f.core.Promised())})
	}
	if t.Promise != 0 {
		if err := f.promise(t.Promise); err != nil {
			return err
		}
		if f.lastPromise != 0 {
			return nil // the stream is gone
		}
	}
	if t.Cut {
		if err := f.cut(t.CutAt); err != nil {
			return err
		}
	}
	if t.MoreSpans && f.stream != nil {
		f.stream.say(f.hello(replica.Hello{
			First: f.o.Index.First(), End: f.core.End(), Confirm: f.core.Confirm(), Spans: f.o.Index.Page(nil, f.oldestSpan, replica.PageMax),
		}))
	}
	if a, ok := f.core.Ack(); ok && t.Ack && f.stream != nil {
		f.stream.ack(a)
	}
	return nil
}

// promise makes an epoch durable as seen. A disk that can't is tried again later; nothing is said in the epoch before.
func (f *Follower) promise(epoch record.Epoch) error {
	if err := f.o.Promise(epoch); err != nil {
		f.lastPromise = epoch
		f.lose(replicationv1.CloseReason_CLOSE_REASON_DISK_FULL, fmt.Errorf("promise epoch %d: %w", epoch, err))
		return nil
	}
	f.lastPromise = 0
	return f.do(f.core.PromiseKept(epoch))
}

// cut makes the log end at a position, while nobody reads or syncs it.
func (f *Follower) cut(at record.Pos) error {
	f.syncing <- struct{}{}
	f.applying <- struct{}{}
	defer func() { <-f.syncing; <-f.applying }()
	if applied := f.o.Views.Applied(); at < applied {
		return mqerr.New(mqerr.Corrupt, "the master of epoch %d wants this log cut at %d, and the views stand for %d: one of the two logs is damaged; nothing was touched", f.core.Promised(), at, applied)
	}
	from := f.core.End()
	if err := f.o.CommitLog.Truncate(at); err != nil {
		return fmt.Errorf("cut the log at %d, up to where it is the same as the master's: %w", at, err)
	}
	f.o.Log.LogAttrs(context.Background(), slog.LevelInfo, "records that another replica does not have were cut, none of them was confirmed", slog.Int64("from", int64(from)), slog.Int64("to", int64(at)))
	t, err := f.core.CutDone(at)
	if err != nil {
		return err
	}
	return f.do(t)
}
