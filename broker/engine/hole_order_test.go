package engine

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// position is where the message at an offset of queue 0 of topicSync stands in the log.
func (b *bench) position(off record.QueueOffset) (pos record.Pos) {
	b.t.Helper()
	require.NoError(b.t, b.engine.call(b.t.Context(), func(w *writer) {
		e, err := w.views.entryAt(queue.Key{Topic: topicSync}, off)
		if err != nil {
			b.t.Error(err)
		}
		pos = e.Pos
	}))
	return pos
}

// TestOrderOverRefill: a broker that started from its checkpoint knew the message groups of damaged messages, and
// leased by them. Then the checkpoint is lost: the queues are filled from the damaged part of the log, in front of the
// SNAPSHOT, and know nothing of those groups. What was leased behind the SNAPSHOT is taken as it stands.
//
//fault:damage messages of message groups are damaged before a SNAPSHOT, leased behind it, and the checkpoint is lost => the start takes the leases as they stand; every group goes on in its order
func TestOrderOverRefill(t *testing.T) {
	b := newOrderedBench(t, Options{})
	b.fill(topicAsync)
	b.fill(topicAsync)
	b.sendGroups("A1", "B1", "A2", "B2", "A3", "B3")
	a2, b2 := b.position(2), b.position(3)
	b.fill(topicAsync)
	b.retain(150 * time.Minute)
	require.Less(t, b.engine.log.First(), a2)
	_, err := b.engine.Close()
	require.NoError(t, err)
	require.NoError(t, b.store.CloseClean(1))
	b.engine = nil
	b.damageRecord(a2, inBody)
	b.damageRecord(b2, inBody)
	b.opt.SkipDamage = true // of messages that are met; the start itself meets no damage
	b.mustOpen()
	first := b.popN(2)
	require.Equal(t, "A1 B1", names(first))
	require.Empty(t, b.popN(10), "all others wait for these two")
	b.ack(topicSync, groupOrdered, pick(first, "B1")...)
	b.until("B goes on behind what is damaged", func() bool { return names(b.popN(10)) == "B3" })

	b.kill()
	b.restartFS()
	b.forget()
	b.skip = true
	b.mustOpen()
	require.Empty(t, b.popN(10), "A1 and B3 are out")
	require.Len(t, b.engine.Holes(), 1, "what is damaged below the SNAPSHOT is noted")
	b.clock.advance(31 * time.Second)
	b.until("both groups go on", func() bool {
		ms := b.popN(10)
		b.ack(topicSync, groupOrdered, ms...)
		first = append(first, ms...)
		return len(first) >= 5
	})
	require.Equal(t, "A1 B1 A1#2 A3 B3#2", names(first))
	b.same()
	b.kill()
	b.restartFS()
	b.forget()
	b.skip = false
	b.mustOpen() // it was said once
}

// TestEndsOfGroupsOverAHole: of a queue nothing is known but what one of its groups was handed, so that it begins there.
// That holds for the other groups, too.
func TestEndsOfGroupsOverAHole(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
		v := &w.views
		v.stand().all = true
		for g := record.GroupID(100); g < 120; g++ {
			skip := record.Skip{Topic: topicSync, Queue: 2, Group: g}
			if g == 110 {
				skip.To = 3
			}
			if err := v.pop.ApplySkip(&skip); err != nil {
				t.Error(err)
			}
		}
		if err := v.close(Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Error(err)
		}
		for g := record.GroupID(100); g < 120; g++ {
			if next := v.pop.Stats(pop.Key{Group: g, Topic: topicSync, Queue: 2}).Next; next != 3 {
				t.Errorf("group %d goes on at offset %d of a queue that begins at 3", g, next)
			}
		}
	}))
}
