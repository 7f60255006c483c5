package engine

import (
	"context"
	"log/slog"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/record"
)

// finish says that nothing refers to what goes, and writes what the views are behind that.
func (s *step) finish(ctx context.Context) error {
	var failed error
	state := make(chan snapState, 1)
	err := s.e.call(ctx, func(w *writer) {
		if failed = s.last(w); failed == nil {
			w.saved.state = state
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	taken := <-state // at the end of the turn that is over
	if taken.err != nil {
		return taken.err
	}
	if err := s.snapshot(ctx, &taken); err != nil {
		return err
	}
	s.behind = s.e.log.Written()
	return nil
}

// last says that nothing refers to what goes. A step before this one that could not write its SNAPSHOT may have said so.
func (s *step) last(w *writer) error {
	if w.views.carried.Begin() >= s.plan.D {
		return nil
	}
	return w.putTrim(&record.Trim{At: s.plan.D, Time: s.plan.Time, Last: true})
}

// end is what comes when all records of the step are in the log: a checkpoint behind them, and the deletion. If it
// fails, it alone is to be done again.
func (s *step) end(ctx context.Context) error {
	err := s.e.checkpointBehind(ctx, s.behind)
	if vfs.IsFull(err) && s.e.lendBallast(ctx) {
		defer s.e.o.Store.BallastBack()
		err = s.e.checkpointBehind(ctx, s.behind)
	}
	if err != nil {
		return err
	}
	freed, err := s.e.o.Store.DropBefore(s.plan.D)
	if err != nil {
		return err
	}
	unread := int64(0)
	for _, n := range s.lost {
		unread += n
	}
	s.k.note(func(t *Retention) {
		t.Steps++
		t.Bytes += freed
	})
	s.e.o.Log.LogAttrs(ctx, slog.LevelInfo, "retention: old messages were deleted", slog.Int64("bytes", freed), slog.Int64("log_begins_at", int64(s.plan.D)),
		slog.Int64("carried_forward", s.moved), slog.Int64("unread", unread))
	return nil
}

// snapState is the state of the views at a position.
type snapState struct {
	at       record.Pos
	sections []checkpoint.Section
	err      error
}

// takeState copies the views for who asked for it, behind all that is in the log.
func (w *writer) takeState() {
	c := w.saved.state
	if c == nil {
		return
	}
	w.saved.state = nil
	state := snapState{at: w.e.log.Written()}
	state.sections, state.err = w.views.base()
	c <- state
}

// asked is somebody who waits for a checkpoint behind a position.
type asked struct {
	pos  record.Pos
	done chan<- error
}

// checkpointBehind returns when a checkpoint behind a position is durable.
func (e *Engine) checkpointBehind(ctx context.Context, pos record.Pos) error {
	done := make(chan error, 1)
	if err := e.call(ctx, func(w *writer) {
		if w.saved.asked = append(w.saved.asked, asked{pos, done}); w.saved.at >= pos {
			w.saved.tell(nil)
		}
	}); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-e.done:
		return errClosed
	case <-ctx.Done():
		return mqerr.New(mqerr.Timeout, "gave up waiting for a checkpoint: %w", ctx.Err())
	}
}

// tell answers those who wait for a checkpoint: all of them after a failure.
func (s *saved) tell(err error) {
	rest := s.asked[:0]
	for _, a := range s.asked {
		if err != nil || s.at >= a.pos {
			a.done <- err
		} else {
			rest = append(rest, a)
		}
	}
	s.asked = rest
}
