package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

// figuresOf returns the figures of a group on a topic, nil if it has none.
func (b *bench) figuresOf(topic, group string) *GroupFigures {
	b.t.Helper()
	s, err := b.engine.Snapshot(b.t.Context(), 1000)
	require.NoError(b.t, err)
	require.Zero(b.t, s.GroupsLeft)
	require.Zero(b.t, s.AgesLeft)
	for i := range s.Groups {
		if g := &s.Groups[i]; g.Topic == topic && g.Group == group {
			return g
		}
	}
	return nil
}

// TestSnapshotAfterRestart: groups that have received or pulled once are shown with exact figures, also when
// they have not been heard from since the restart; those that never read are not.
func TestSnapshotAfterRestart(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "1", "2", "3", "4", "5")
	require.Nil(t, b.figuresOf("sync", "a"), "it has not read")
	got := b.mustPop(topicSync, groupA)
	require.Len(t, got, 5)
	b.ack(topicSync, groupA, got[:2]...)
	b.mustSend(topicSync, "6", "7", "8", "9")
	for range 2 { // one for each queue
		b.mustSend(topicAsync, "1", "2", "3")
	}
	require.NoError(t, b.setOffsets(
		brokerapi.SetOffset{Topic: brokerapi.TopicID(topicAsync), Group: brokerapi.GroupID(groupB), Queue: 0, Offset: 1},
		brokerapi.SetOffset{Topic: brokerapi.TopicID(topicAsync), Group: brokerapi.GroupID(groupB), Queue: 1, Offset: 3}))

	check := func() {
		t.Helper()
		g := b.figuresOf("sync", "a")
		require.NotNil(t, g)
		require.Equal(t, []int64{4, 3, 0}, []int64{g.Ready, g.InFlight, g.Waiting})
		require.Positive(t, g.OldestMS)
		require.Nil(t, b.figuresOf("sync", "b"))
		g = b.figuresOf("async", "b") // that only pulls
		require.NotNil(t, g)
		require.Equal(t, []int64{2, 0, 0}, []int64{g.Ready, g.InFlight, g.Waiting})
		require.Positive(t, g.OldestMS)
	}
	check()
	b.kill()
	b.mustOpen()
	check()
	require.Zero(t, b.figuresOf("sync", "a").Messages, "counters begin at the start")
	b.clock.advance(time.Minute)
	g := b.figuresOf("sync", "a")
	require.Equal(t, []int64{7, 0, 0}, []int64{g.Ready, g.InFlight, g.Waiting}, "the leases are over")
}

// TestSnapshotDeleted: what is gone has no figures.
func TestSnapshotDeleted(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "1")
	b.mustPop(topicSync, groupA)
	require.NotNil(t, b.figuresOf("sync", "a"))
	d := definitions()
	d.Groups, d.Version = d.Groups[1:], 5
	require.NoError(t, b.engine.Define(t.Context(), d))
	require.Nil(t, b.figuresOf("sync", "a"))
}

// TestSnapshotIsBounded: with 10,000 topics that ten groups read, no turn of the writer looks at more than its
// share, sends go on meanwhile, the limit holds, and what is left out is counted.
func TestSnapshotIsBounded(t *testing.T) {
	topics, readers := 10_000, 10
	if raceSlows > 1 || testing.Short() {
		topics = 1000
	}
	b := newBench(t, Options{})
	b.mustOpen()
	d := &Definitions{Full: true, Version: 1}
	for i := range topics {
		d.Topics = append(d.Topics, topic.Definition{ID: record.TopicID(i + 1), Name: fmt.Sprint("t", i), Queues: 2, Version: 1})
	}
	for i := range readers {
		d.Groups = append(d.Groups, group.Definition{ID: record.GroupID(i + 1), Name: fmt.Sprint("g", i), MaxAttempts: 17, Version: 1})
	}
	require.NoError(t, b.engine.Define(t.Context(), d))
	b.mustSend(1, "1", "2")
	var pairs []pair
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
		for _, of := range d.Topics {
			for _, g := range d.Groups {
				pairs = append(pairs, pair{of.ID, g.ID})
				for q := range record.QueueID(2) {
					w.views.pop.Start(pop.Key{Group: g.ID, Topic: of.ID, Queue: q}, 0)
				}
			}
		}
	}))
	var looked int
	var took time.Duration
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
		began := time.Now()
		done, _ := w.addUp(pairs, new(figures))
		looked, took = len(done), time.Since(began)
	}))
	require.Less(t, looked, queuesATurn)
	require.Greater(t, looked, queuesATurn/4)

	began := time.Now()
	s, err := b.engine.Snapshot(t.Context(), topics*readers)
	require.NoError(t, err)
	t.Logf("%d topics, %d pairs: %v; %d pairs in a turn take it %v", topics, len(s.Groups), time.Since(began), looked, took)
	require.Len(t, s.Topics, topics)
	require.Len(t, s.Groups, topics*readers)
	require.Zero(t, s.GroupsLeft)
	require.EqualValues(t, 2, s.Groups[0].Ready)

	s, err = b.engine.Snapshot(t.Context(), 100)
	require.NoError(t, err)
	require.Len(t, s.Groups, 100)
	require.Len(t, s.Topics, 100)
	require.Equal(t, topics-100, s.TopicsLeft)
	require.Equal(t, 100*readers-100, s.GroupsLeft)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.engine.Snapshot(ctx, 100)
	require.Error(t, err)
}
