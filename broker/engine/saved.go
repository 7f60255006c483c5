package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/store/record"
)

// saved says when the views were saved last. The state is copied on the writer; making the log
// durable up to it and writing the file happen beside it.
type saved struct {
	at   record.Pos // position of the newest checkpoint or of the start
	due  int64      // lease clock, ms; 0: nothing was written since
	busy bool       // a save is under way
}

// nextSave is when the next checkpoint is due, if there is anything to save.
func (w *writer) nextSave() (int64, bool) {
	s := &w.saved
	return s.due, s.due != 0 && !s.busy
}

// saveIfDue starts a checkpoint after the interval, or after enough log.
func (w *writer) saveIfDue() {
	s := &w.saved
	grown := int64(w.e.log.Written() - s.at)
	if grown > 0 && s.due == 0 {
		s.due = w.lease + w.e.o.CheckpointInterval.Milliseconds()
	}
	if s.busy || grown == 0 || w.lease < s.due && grown < w.e.o.CheckpointBytes {
		return
	}
	w.save(func(err error) {
		if err != nil {
			w.e.o.Log.LogAttrs(context.Background(), slog.LevelError, "checkpoint failed: recovery will take longer until one succeeds; check the disk",
				slog.String("error", err.Error()))
		}
	})
}

// save copies the views and writes them as a checkpoint on a goroutine of its own; done runs there.
func (w *writer) save(done func(error)) {
	s := &w.saved
	pos := w.e.log.Written()
	sections, err := w.views.encode()
	if err != nil {
		done(err)
		s.due = w.lease + w.e.o.CheckpointInterval.Milliseconds()
		return
	}
	s.busy, s.due = true, 0
	began := time.Now()
	w.e.o.Log.Debug("checkpoint started", "position", int64(pos))
	w.e.saves.Go(func() {
		err := w.e.log.Sync() // a checkpoint must not say more than the log
		if err == nil {
			err = w.e.o.Store.SaveCheckpoint(pos, sections)
		}
		if err == nil {
			w.e.counts.Checkpoints.Add(1)
			if f := w.e.o.Events.Checkpointed; f != nil {
				f(pos, time.Since(began))
			}
		}
		done(err)
		w.e.submitOwn(&callOp{do: func(w *writer) {
			w.saved.busy = false
			if err == nil {
				w.saved.at = pos
			}
		}, done: func(error) {}})
	})
}

// closeOp stops the engine after a last checkpoint.
type closeOp struct {
	waiter
	done func(record.Pos, error)
}

func (o *closeOp) bytes() int { return 64 }

func (o *closeOp) finish(_ *writer, err error) {
	if err != nil {
		o.done(0, err)
	}
}

func (o *closeOp) run(w *writer) { w.closing = o }
