package engine

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/offset"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// behindHole calls fn with the views as they are behind a small hole, which can explain 13 messages.
func (b *bench) behindHole(fn func(v *views)) {
	b.t.Helper()
	require.NoError(b.t, b.engine.call(b.t.Context(), func(w *writer) {
		w.views.pass(Options{Log: slog.New(slog.DiscardHandler)}, commitlog.Past{Hole: commitlog.Hole{From: 8, To: 48}})
		fn(&w.views)
	}))
}

func (b *bench) sizes(topic record.TopicID) (out []int64) {
	for q := range record.QueueID(4) {
		lo, hi := b.engine.views.queues.Bounds(queue.Key{Topic: topic, Queue: q})
		out = append(out, int64(lo), int64(hi))
	}
	return out
}

// TestPartsOfRecordsBehindAHole: a part of a record that no hole explains is left out for itself. The others count; a
// message that finds no place goes on waiting.
//
//fault:damage behind a hole, one of several messages of a delivery or a verdict, or one of several queues that begin later, does not fit => it is left out and counted, all others are taken; what finds no place waits on
func TestPartsOfRecordsBehindAHole(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.sendAll(topicSync, b.later("one", time.Second), b.later("two", time.Second), b.later("three", time.Second))
	halves := []record.Pos{record.Pos(b.mustHalf("a", "a").Pos), record.Pos(b.mustHalf("b", "b").Pos), record.Pos(b.mustHalf("c", "c").Pos)}
	b.behindHole(func(v *views) {
		at := v.stamp + 2000
		d := &record.Deliver{Topic: topicSync}
		due := v.timers.Due(topicSync, at, 3, nil)
		for i, off := range []record.QueueOffset{0, 1000, 2} {
			e := due[i]
			d.Items = append(d.Items, record.Place{Queue: record.QueueID(i), Offset: off, Ref: e.Pos, Size: e.Size})
		}
		if err := v.applyDeliver(at, d); err != nil || v.timers.Waiting(topicSync) != 1 || v.hole.dropped != 1 || v.hole.lost != 2 {
			t.Errorf("%v, %d wait: %+v", err, v.timers.Waiting(topicSync), v.hole)
		}
		if err := v.applyTxnEnd(at, &record.TxnEnd{Topic: topicSync, Committed: []record.TxnPlace{
			{Queue: 1, Offset: 1000, Half: halves[0]}, {Queue: 1, Offset: 0, Half: halves[1]},
		}, RolledBack: halves[2:]}); err != nil || v.txns.Len() != 1 || v.hole.dropped != 2 {
			t.Errorf("%v, %d are open: %+v", err, v.txns.Len(), v.hole)
		}
		if _, open := v.txns.Get(halves[0]); !open {
			t.Errorf("a commit without a place has ended its transaction")
		}
		if err := v.applyTrim(&record.Trim{Queues: []record.TrimQueue{
			{Topic: topicSync, Queue: 0, First: 1}, {Topic: topicSync, Queue: 1, First: 1000}, {Topic: topicSync, Queue: 3, First: 4},
		}}); err != nil || v.hole.dropped != 3 || v.hole.lost != 6 {
			t.Errorf("%v: %+v", err, v.hole)
		}
	})
	require.Equal(t, []int64{1, 1, 0, 1, 0, 3, 4, 4}, b.sizes(topicSync))
}

// TestGroupBeyondItsQueue: a group was handed more of a queue than there is, and no hole explains that. What lies above
// the end is forgotten, what it has in flight below comes again, and a stored position is at the end.
//
//fault:damage behind a hole, a queue ends before what a group was handed, and the hole cannot explain it => what the group has in flight below the end comes again, what is stored from now on comes, too
func TestGroupBeyondItsQueue(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "0", "1")
	key := queue.Key{Topic: topicSync}
	_, end := b.engine.views.queues.Bounds(key)
	require.Positive(t, end)
	k, far := pop.Key{Group: groupB, Topic: topicSync}, end+1000
	b.behindHole(func(v *views) {
		v.hole.pop.Start = func(pop.Key) record.QueueOffset { return 0 }
		ck := &record.PopCk{Group: groupB, Topic: topicSync, Until: v.stamp, Sections: []record.PopSection{{Items: []record.PopItem{{Offset: 0, Attempt: 1, Prev: -1}}}}}
		if err := v.pop.ApplyLease(64, ck); err != nil {
			t.Error(err)
		}
		if err := v.pop.ApplySkip(&record.Skip{Group: groupB, Topic: topicSync, From: end, To: far}); err != nil {
			t.Error(err)
		}
		if err := v.pulled.Apply(&record.OffsetItem{Group: groupA, Topic: topicSync, Offset: far, Kind: record.OffsetPull}); err != nil {
			t.Error(err)
		}
		if err := v.close(Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Error(err)
		}
		if s := v.pop.Stats(k); s.Next != end || s.Floor != 0 || v.pop.Undone(k, 0) != int64(end) {
			t.Errorf("the queue ends at %d: %+v, %d un-done", end, s, v.pop.Undone(k, 0))
		}
		if at, _ := v.pulled.Get(offset.Key{Group: groupA, Topic: topicSync}); at != end {
			t.Errorf("the stored position is %d, the queue ends at %d", at, end)
		}
	})
}
