package engine

import (
	"context"
	"log/slog"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
)

// queueDamaged reports that a consume queue cannot be read. Where it is an extent, the mender has heard of it. Where
// the queue itself is not what it should be, its checkpoints are given up, so that the next start rebuilds it from
// the log. A disk that does not answer is no reason for that.
func (w *writer) queueDamaged(t *topicState, err error) {
	w.e.counts.Damaged.Add(1)
	if _, is := queue.DamageOf(err); is || t.bad {
		return
	}
	t.bad = true
	attrs := []slog.Attr{slog.String("topic", t.def.Name), slog.String("error", err.Error())}
	if !mqerr.Is(err, mqerr.Corrupt) {
		w.e.o.Log.LogAttrs(context.Background(), slog.LevelError, "consume queue cannot be read; check the disk", attrs...)
		return
	}
	if err := w.e.o.Store.Distrust(); err != nil {
		attrs = append(attrs, slog.String("giving_up_checkpoints", err.Error()))
	}
	w.e.o.Log.LogAttrs(context.Background(), slog.LevelError, "consume queue cannot be read; restart the broker, which rebuilds it from the log, and check the disk", attrs...)
}
