package engine

import (
	"context"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/record"
)

// finish says that nothing refers to what goes, writes what the views are behind that, and makes both durable,
// with a checkpoint.
func (s *step) finish(ctx context.Context) error {
	var failed error
	state := make(chan snapState, 1)
	err := s.e.call(ctx, func(w *writer) {
		last := record.Trim{At: s.plan.D, Time: s.plan.Time, Last: true}
		if failed = w.putTrim(&last); failed == nil {
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
	return s.e.checkpointBehind(ctx, s.e.log.Written())
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
	if err := e.call(ctx, func(w *writer) { w.saved.asked = append(w.saved.asked, asked{pos, done}) }); err != nil {
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
