package engine

import (
	"context"
	"log/slog"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// broken notes that the views cannot take a record that was just made for them: our bug. Memory and log
// would part, so this turn writes nothing and the engine stops; a restart recovers from the log. A disk
// cannot cause it: what a consume queue cannot write stays in memory.
func (w *writer) broken(err error) {
	if w.bug == nil {
		w.bug = mqerr.New(mqerr.KindOf(err), "the views do not take a record that was made for them: %w", err)
	}
}

// fail stops the engine for good: what is on disk is unknown, so nothing more is appended, and who
// waits learns that the outcome is unknown.
func (w *writer) fail(cause error, ran []op) {
	w.failed = cause
	w.e.inbox.fail(cause)
	unknown := mqerr.New(mqerr.UnknownOutcome, "the broker's log failed while the request was under way: %w", cause)
	gone := mqerr.New(mqerr.Unavailable, "the broker's log has failed, the broker is stopping: %w", cause)
	waiting := w.e.inbox.shut(gone)
	for _, o := range ran {
		if o != nil && !o.waits().parked {
			o.finish(w, unknown)
		}
	}
	for _, o := range w.synced {
		o.finish(w, unknown)
	}
	for _, o := range slices.Concat(w.backlog, w.later, w.pulls.all(), waiting) {
		o.finish(w, gone)
	}
	w.synced, w.backlog, w.later = nil, nil, nil
	w.endForwards(gone)
	w.report(cause)
	if f := w.e.o.Events.Failed; f != nil {
		f(cause)
	}
	w.e.reads.Wait() // every call is answered before proxies hear that the broker is gone
	w.ready.down(gone)
}

// report is the one log line about the end of the engine.
func (w *writer) report(cause error) {
	ctx, why := context.Background(), slog.String("error", cause.Error())
	if w.bug == nil {
		w.e.o.Log.LogAttrs(ctx, slog.LevelError,
			"commit log failed: the broker stops; check the disk, then start it again, which recovers all acknowledged data", why)
		return
	}
	w.e.o.Log.LogAttrs(ctx, slog.LevelError,
		"the broker stops before it writes what it would not understand; start it again, which recovers all acknowledged data, and report this", why)
}
