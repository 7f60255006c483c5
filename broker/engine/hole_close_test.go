package engine

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// TestCloseIsRepeatable: where the holes have no room for all entries that are missing, which queues get them does not
// depend on chance.
func TestCloseIsRepeatable(t *testing.T) {
	for range 10 {
		b := newBench(t, Options{})
		b.mustOpen()
		b.define()
		v := &b.engine.views
		require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
			v.pass(Options{Log: slog.New(slog.DiscardHandler)}, commitlog.Past{Hole: commitlog.Hole{From: 8, To: 48}})
			for q := range 4 {
				it := record.OffsetItem{Group: groupA, Topic: topicSync, Queue: record.QueueID(q), Offset: 10, Kind: record.OffsetPull}
				if err := v.pulled.Apply(&it); err != nil {
					t.Error(err)
				}
			}
			if err := v.close(Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
				t.Error(err)
			}
		}))
		var ends []int
		for q := range 4 {
			_, hi := v.queues.Bounds(queue.Key{Topic: topicSync, Queue: record.QueueID(q)})
			ends = append(ends, int(hi))
		}
		require.Equal(t, []int{10, 0, 0, 0}, ends)
		b.kill()
	}
}
