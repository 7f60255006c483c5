package engine

import (
	"context"
	"log/slog"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// consumersShare is the part of the space reserve (1/8) at which consumers are refused as well: the
// rest is for what the broker itself must record.
const consumersShare = 8

// errNoSpace refuses a request whose record might not fit: an append that finds no room ends the log.
var errNoSpace = mqerr.New(mqerr.DiskFull, "the disk of the broker is full: free space, requests are taken again by themselves then")

// hasSpace tells whether need bytes can surely be appended with reserve bytes left behind them.
func (w *writer) hasSpace(reserve int64, need int) bool {
	if !w.e.o.NoSpace() {
		return true
	}
	used := w.batch.Size() + ackBytes*len(w.acks.list) + offsetBytes*len(w.offsets.list)
	return w.e.log.Room()-int64(used+need) >= reserve
}

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
