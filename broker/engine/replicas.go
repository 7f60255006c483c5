package engine

import (
	"context"
	"errors"
	"log/slog"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Replicas is what an engine needs to know of the other replicas of its log. Its functions are called by
// several goroutines.
type Replicas interface {
	// Confirmed is the confirm offset: everything below is on every replica that counts, as durable as the
	// broker group wants it. It never goes back. Whoever makes it grow calls Engine.Confirm.
	Confirmed() record.Pos
	// Memory tells that what is written counts as stored, before it is durable.
	Memory() bool
	// Grown is called when the log was written, or made durable, further. It must not block.
	Grown()
	// Stuck tells why nothing that is written now would be confirmed soon, nil if it would: requests are refused with
	// that, before anything is written.
	Stuck() error
	// Await returns when the confirm offset has reached a position, or an error if ctx ends or it will not.
	Await(ctx context.Context, pos record.Pos) error
}

// Confirm tells that the confirm offset has grown.
func (e *Engine) Confirm() { ring(e.inbox.wake) }

// shown is the end of what clients may see of a topic and be answered about: what is confirmed in a replicated
// broker group, else what is durable, or written if that is enough for the topic.
func (e *Engine) shown(sync bool) record.Pos {
	switch {
	case e.o.Replicas != nil:
		return min(e.o.Replicas.Confirmed(), e.log.Written())
	case sync:
		return e.log.Durable()
	}
	return e.log.Written()
}

// grown tells the other replicas that there is more.
func (e *Engine) grown() {
	if r := e.o.Replicas; r != nil {
		r.Grown()
	}
}

// await returns when everything up to a position may be shown for good, so that a checkpoint may stand for it:
// what a later master does not have is cut, and no view may know of it.
func (e *Engine) await(ctx context.Context, pos record.Pos) error {
	if e.o.Replicas == nil {
		return nil
	}
	return e.o.Replicas.Await(ctx, pos)
}

// handOver waits for the other replicas, when this one stops, so that everybody gets an answer.
func (e *Engine) handOver() {
	if e.o.Replicas == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.o.HandOver)
	defer cancel()
	if err := e.await(ctx, e.log.Written()); err != nil && errors.Is(err, context.DeadlineExceeded) {
		e.o.Log.LogAttrs(ctx, slog.LevelWarn, "stopping before the other replicas have confirmed the end of the log: the requests there are answered as unknown",
			slog.Int64("confirmed", int64(e.shown(true))), slog.Int64("written", int64(e.log.Written())))
	}
}

// errDemoted answers requests whose records are in the log of a broker that leads no more, and are not confirmed:
// the new master may have them or not.
var errDemoted = mqerr.New(mqerr.UnknownOutcome, "the broker stopped leading while the request was under way: it may have been done or not")
