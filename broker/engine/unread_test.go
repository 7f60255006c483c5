package engine

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// TestTrimWhereAGroupHasNotBegun: a group reads a topic and has not begun in one of its queues, and where it begins there
// can be neither read nor mended. The queue begins later all the same; what the group loses is not counted, but told of.
//
//fault:damage a consume queue and the log are damaged where a group that has not read that queue yet begins => retention goes on, counts and logs that it does not know what the group loses
func TestTrimWhereAGroupHasNotBegun(t *testing.T) {
	var said lockedBuffer
	b := newBench(t, Options{Log: slog.New(slog.NewTextHandler(&said, nil))})
	b.mustOpen()
	b.define()
	defs := definitions()
	defs.Version, defs.Full = 9, false
	late := groupFrom(9, "late", group.FromLast, 0)
	late.Version = 9
	defs.Groups, defs.Topics = append(defs.Groups[:0], late), nil
	require.NoError(t, b.engine.Define(t.Context(), defs))
	b.clock.advance(time.Second)
	sent := b.mustSend(topicSync, "one", "two", "three", "four")
	read := b.mustPop(topicSync, 9)
	b.ack(topicSync, 9, read...)
	first := b.mustSend(topicSync, many(40)...)
	for range 5 {
		b.fill(topicAsync)
	}
	b.stopped()
	var bad queue.Key
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
		r := w.views.readersOf(nil)
		for _, m := range append(sent, first...) {
			key := queue.Key{Topic: topicSync, Queue: record.QueueID(m.Queue)}
			r.fresh(key, func(g record.GroupID) {
				if g == 9 && bad == (queue.Key{}) {
					bad = key
				}
			})
		}
	}))
	require.NotZero(t, bad)
	b.spoilQueues()
	for _, m := range first {
		if record.QueueID(m.Queue) == bad.Queue {
			b.damageRecord(record.Pos(m.Pos), inBody)
		}
	}
	oldest, err := b.engine.keeper.oldestUnread(t.Context())
	require.NoError(t, err)
	require.Zero(t, oldest, "any message of the queue may be the oldest")
	damaged := b.engine.counts.Damaged.Load()
	b.retain(150 * time.Minute)
	s, err := b.engine.Retention(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.Failures)
	require.Greater(t, b.engine.counts.Damaged.Load(), damaged)
	require.Contains(t, said.String(), "what the group loses is not counted")
	require.NoError(t, b.engine.Failure())
	b.rebuilt()
	b.mustSend(topicSync, "goes on")
	require.Contains(t, b.drain(topicSync, 9), "goes on")
}
