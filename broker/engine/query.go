package engine

import (
	"context"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// query looks at the views on the writer, for a moment, and then runs beside it on a goroutine of its own:
// it may read much that nobody has touched for long. It ends with the caller's context and with the engine;
// ctx is for run, which has to look at it.
func query[R any](ctx context.Context, s *session, look func(w *writer) error, run func(ctx context.Context) (R, error)) (R, error) {
	type answer struct {
		r   R
		err error
	}
	var none R
	c := newOnce[answer]()
	err := s.call(ctx, func(w *writer) {
		if err := look(w); err != nil {
			c <- answer{none, err}
			return
		}
		w.e.reads.Go(func() {
			r, err := admitted(ctx, w.e, run)
			c <- answer{r, err}
		})
	})
	if err != nil {
		return none, err
	}
	select {
	case a := <-c:
		return a.r, a.err
	case <-ctx.Done():
		return none, mqerr.New(mqerr.Timeout, "gave up waiting for the search: %w", ctx.Err())
	}
}

// admitted runs a query when few enough others do.
func admitted[R any](ctx context.Context, e *Engine, run func(ctx context.Context) (R, error)) (r R, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-e.leave:
			cancel(errClosed)
		case <-ended:
		}
	}()
	if e.turn(ctx) {
		defer func() { <-e.asked }()
	}
	if err := over(ctx); err != nil {
		return r, err
	}
	return run(ctx)
}

// turn waits until a query may run; false: it must not.
func (e *Engine) turn(ctx context.Context) bool {
	select {
	case e.asked <- struct{}{}:
		return true
	default:
	}
	e.counts.QueriesWaited.Add(1)
	select {
	case e.asked <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// over is why a query has to end, nil while it may go on.
func over(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return nil
	case mqerr.Is(cause, mqerr.Draining):
		return cause
	default:
		return mqerr.New(mqerr.Timeout, "the time for the search is over: %w", cause)
	}
}
