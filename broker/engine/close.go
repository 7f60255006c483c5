package engine

import (
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// errClosed answers requests to an engine that is going away.
var errClosed = mqerr.New(mqerr.Draining, "the broker is stopping: nothing was written, try again elsewhere")

// shutDown refuses what still waits, makes the log durable, answers what waited for that, and saves
// the views. It runs once on the writer, as its last turn.
func (w *writer) shutDown() {
	for _, o := range slices.Concat(w.backlog, w.later, w.pulls.all(), w.e.inbox.shut(errClosed)) {
		o.finish(w, errClosed)
	}
	w.backlog, w.later = nil, nil
	w.endForwards(errClosed)
	err := w.e.log.Sync()
	if err == nil {
		w.e.handOver()
		w.topics.publish()
		w.answer(nil)
		for _, o := range w.synced {
			o.finish(w, errDemoted)
		}
		w.synced = nil
	} else if w.failed == nil {
		w.fail(err, nil) // who waits for the disk must hear of it
	}
	err = w.failed
	w.e.saves.Wait() // a checkpoint under way
	if end := w.e.log.Written(); err == nil && end > w.saved.at && end <= w.e.shown(true) {
		err = w.saveNow()
	}
	if w.failed == nil {
		w.e.reads.Wait() // every call is answered before proxies hear that the broker is gone
		w.ready.down(errClosed)
	}
	w.closing.done(w.e.log.Written(), err)
	w.closed = true
}

// saveNow writes a checkpoint and waits for it.
func (w *writer) saveNow() error {
	sections, err := w.views.encode()
	if err != nil {
		return err
	}
	return w.e.o.Store.SaveCheckpoint(w.e.log.Tail(), sections)
}

// finished reports whether the writer has had its last turn.
func (w *writer) finished() bool { return w.closed }
