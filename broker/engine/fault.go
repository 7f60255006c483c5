package engine

import (
	"context"
	"log/slog"
)

// queueDamaged reports that a consume queue cannot be read. Its checkpoints are given up, so that the
// next start rebuilds it from the log.
func (w *writer) queueDamaged(t *topicState, err error) {
	w.e.counts.Damaged.Add(1)
	if t.bad {
		return
	}
	t.bad = true
	attrs := []slog.Attr{slog.String("topic", t.def.Name), slog.String("error", err.Error())}
	if err := w.e.o.Store.Distrust(); err != nil {
		attrs = append(attrs, slog.String("giving_up_checkpoints", err.Error()))
	}
	w.e.o.Log.LogAttrs(context.Background(), slog.LevelError, "consume queue cannot be read; restart the broker, which rebuilds it from the log, and check the disk", attrs...)
}
