package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// saved says when the views were saved last. The state is copied on the writer; making the log
// durable up to it and writing the file happen beside it.
type saved struct {
	at    record.Pos       // position of the newest checkpoint, or of what the start began with
	due   int64            // lease clock, ms; 0: nothing was written since
	busy  bool             // a save is under way
	hold  bool             // the last one failed: none before due, however much was written
	asked []asked          // who waits for a checkpoint
	state chan<- snapState // who waits for the state of the views at the end of the turn
	// size is the bytes of the last one, began when it was started on the lease clock, took how long it
	// was, ms.
	size, began, took int64
	done              int64 // lease clock, ms, of the last one that succeeded since the start; 0: none has
}

// A large state is not written again for a little log, and not all the time: one of more than largeState
// bytes waits for as much log as it has bytes, and any for restFactor times as long as the last one took.
const (
	largeState = 64 << 20
	restFactor = 10
)

// checkpointBytes is how much log makes a checkpoint due before its time.
func (w *writer) checkpointBytes() int64 {
	if w.saved.size > largeState {
		return max(w.e.o.CheckpointBytes, w.saved.size)
	}
	return w.e.o.CheckpointBytes
}

// savedEnough refuses messages when the newest checkpoint is too far behind: a start after a crash must not
// take for ever.
func (w *writer) savedEnough() error {
	behind := int64(w.e.log.Written() - w.saved.at)
	if behind < w.e.o.CheckpointBehind {
		return nil
	}
	w.e.counts.UnsavedRefused.Add(1)
	return mqerr.New(mqerr.Exhausted, "nothing was stored: checkpoints fail, the newest is %d MiB of log ago, and from %d MiB on messages are refused (--checkpoint-behind): look after the broker's disk, messages are taken again when a checkpoint succeeds",
		behind>>20, w.e.o.CheckpointBehind>>20)
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
	switch {
	case s.busy:
		return
	case len(s.asked) > 0 && grown == 0:
		s.tell(nil)
		return
	case len(s.asked) > 0:
		w.save()
		return
	case grown == 0:
		s.due = 0
		return
	case s.due == 0:
		s.due = w.lease + max(w.e.o.CheckpointInterval.Milliseconds(), restFactor*s.took)
	}
	if w.lease < s.due && (s.hold || grown < w.checkpointBytes()) {
		return
	}
	w.save()
}

// save copies the views and writes them as a checkpoint on a goroutine of its own.
func (w *writer) save() {
	at := w.e.log.Tail()
	pos := at.End
	w.saved.began = w.lease
	sections, err := w.views.encode()
	if err != nil {
		w.saveOver(pos, true, err)
		return
	}
	w.saved.busy, w.saved.size = true, sizeOf(sections)
	w.e.spaces.costs.encoded(&w.views, sections)
	began := time.Now()
	w.e.o.Log.Debug("checkpoint started", "position", int64(pos))
	w.e.saves.Go(func() {
		err := w.e.await(w.e.life, pos)
		led := err == nil // nothing is wrong with a disk if it was not to be saved: the epoch is over
		if led {
			err = w.e.o.Store.SaveCheckpoint(at, sections)
		}
		if err == nil {
			w.e.counts.Checkpoints.Add(1)
			if f := w.e.o.Events.Checkpointed; f != nil {
				f(pos, time.Since(began))
			}
		}
		w.e.submitOwn(&callOp{do: func(w *writer) { w.saveOver(pos, led, err) }, done: func(error) {}})
	})
}

// saveOver notes how a checkpoint at pos went, whose position was confirmed or not. After one that failed the next waits
// its time.
func (w *writer) saveOver(pos record.Pos, confirmed bool, err error) {
	s := &w.saved
	s.busy, s.hold, s.due, s.took = false, err != nil, 0, w.lease-s.began
	if err == nil {
		s.at, s.done = pos, w.lease
		w.e.spaces.costs.saved.Store(int64(pos))
	}
	s.tell(err)
	if err == nil || w.e.life.Err() != nil { // of a stop, a last one comes
		return
	}
	s.due = w.lease + w.e.o.CheckpointInterval.Milliseconds()
	if !confirmed {
		return
	}
	w.e.counts.CheckpointFailures.Add(1)
	w.e.o.Log.LogAttrs(context.Background(), slog.LevelError, "checkpoint failed: recovery will take longer until one succeeds; check the disk",
		slog.String("error", err.Error()))
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
