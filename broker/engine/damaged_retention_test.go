package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// damageRecord changes a byte of the record at a position.
func (b *bench) damageRecord(pos record.Pos, at int64) {
	b.t.Helper()
	base := pos / (1 << 20) * (1 << 20)
	f, err := b.fs.Open("data/log/" + segment.Name(base))
	require.NoError(b.t, err)
	one := make([]byte, 1)
	_, err = f.ReadAt(one, int64(pos-base)+at)
	require.NoError(b.t, err)
	one[0] ^= 0x10
	_, err = f.WriteAt(one, int64(pos-base)+at)
	require.NoError(b.t, err)
	require.NoError(b.t, f.Close())
}

const inBody = record.HeaderSize + 20

// TestRetentionDamaged: messages that have to be carried forward and cannot be read do not keep the log from
// being shortened. They are counted, and lost; what is around them is carried.
//
//fault:damage messages that retention has to carry forward are damaged => it goes on without them, reports and counts them; everybody goes past their places; all others are kept
func TestRetentionDamaged(t *testing.T) {
	b := newBench(t, Options{Txn: TxnOptions{GiveUpAfter: 1000 * days, CheckAfter: 900 * days}})
	b.mustOpen()
	b.define()
	sent := b.mustSend(topicSync, "leased", "leased too")
	require.Len(t, b.mustPop(topicSync, groupA), 2)
	late := b.sendAll(topicSync, b.later("delayed", 10*days), b.later("delayed too", 10*days))
	bad, good := b.mustHalf("bad", "half"), b.mustHalf("good", "half too")
	again := b.mustHalf("late", "late")
	moved := b.sendAll(topicSync, b.later("moved", 12*days))
	for range 2 {
		b.fill(topicAsync)
		b.clock.advance(23 * time.Hour)
	}
	require.NoError(t, b.end("late", true)) // it has a place in the part that stays, for its position in the part that goes
	for _, pos := range []brokerapi.LogPos{sent[0].Pos, late[0].Pos, bad.Pos, again.Pos} {
		b.damageRecord(record.Pos(pos), inBody)
	}
	before := b.engine.counts.Damaged.Load()
	b.age(3, 3*days)
	s, err := b.engine.Retention(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, s.Damaged)
	require.Zero(t, s.Failures)
	require.EqualValues(t, before+4, b.engine.counts.Damaged.Load())
	require.Greater(t, b.engine.log.First(), record.Pos(good.Pos))

	// What was carried may be damaged in its turn.
	p, is := b.engine.views.carried.At(record.Pos(moved[0].Pos))
	require.True(t, is)
	b.damageRecord(p.Pos, inBody)
	b.age(6, 3*days)
	s, err = b.engine.Retention(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, s.Damaged)

	_ = b.end("bad", true) // its id cannot be read any more
	require.NoError(t, b.end("good", true))
	want := []string{"leased too", "half too", "delayed too"}
	for round := range 3 {
		got := b.drain(topicSync, groupB)
		for range 3 {
			b.clock.advance(10 * days)
			b.settle()
			got = append(got, b.drain(topicSync, groupB)...)
		}
		if round == 0 {
			require.ElementsMatch(t, want[1:], got, "the first two were never for this group: older than what it begins at")
			got = b.drain(topicSync, groupA)
			require.ElementsMatch(t, want, got)
		} else {
			require.Empty(t, got)
		}
		b.rebuilt()
	}
	b.mustSend(topicSync, "goes on")
	require.Equal(t, []string{"goes on"}, b.drain(topicSync, groupB))
}

// TestRetentionDamagedBoundary: a file whose first record cannot be read goes together with the one before.
//
//fault:damage the first record of a file of the log is damaged => retention deletes the file together with the one before, not never
func TestRetentionDamagedBoundary(t *testing.T) {
	for _, oldest := range []bool{true, false} {
		b := retaining(t)
		for range 5 {
			b.fill(topicAsync)
		}
		at := b.engine.log.Segments()[1].Base
		if oldest {
			at = 0
		}
		b.again() // nothing is known of the files by now
		b.damageRecord(at, inBody)
		b.retain(150 * time.Minute)
		require.Greater(t, b.engine.log.First(), at)
		b.rebuilt()
		require.NotEmpty(t, b.drain(topicAsync, groupA))
	}
}

// TestReadersPassDamage: a trace and the rebuild of the index go on behind records that are damaged, and say that
// they have not seen all.
//
//fault:damage records are damaged while the broker runs => a trace and a rebuild of the index go on behind them, and say what they do not know
func TestReadersPassDamage(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	sent := b.mustSend(topicSync, "one", "two")
	leased := b.engine.log.Written()
	got := b.mustPop(topicSync, groupA)
	require.Len(t, got, 2)
	b.ack(topicSync, groupA, got...)
	many := make([]string, 200) // two runs of the index
	for i := range many {
		many[i] = "x"
	}
	b.mustSend(topicAsync, many...)
	b.until("the index is written", func() bool { return b.engine.Index().Written >= 2 })
	b.damageRecord(leased, inBody)
	what, err := b.traced(topicSync, sent[0].Pos)
	require.NoError(t, err)
	require.Contains(t, what, "missed")
	require.Equal(t, "acked", what[len(what)-1], "%v", what)
	require.EqualValues(t, 1, b.engine.counts.Damaged.Load())
	_, err = b.traced(topicSync, sent[0].Pos)
	require.NoError(t, err)
	files := b.engine.DamagedRecords()
	require.Equal(t, map[string]int64{segment.Name(0): 1}, files, "told of once")

	b.damageRecord(record.Pos(sent[1].Pos), inBody)
	b.rebuiltIndex()
	ids := func(pos brokerapi.LogPos) string {
		r, ref, err := b.engine.read(record.Pos(pos), 0)
		require.NoError(t, err)
		defer ref.Release()
		m, err := record.DecodeMsg(r.Body)
		require.NoError(t, err)
		return string(m.ID)
	}
	r, err := b.search(brokerapi.FindRequest{Topic: brokerapi.TopicID(topicSync), ID: ids(sent[0].Pos), Max: 10})
	require.NoError(t, err)
	require.Len(t, r.Messages, 1)
	require.Len(t, r.Unknown, 1)
	require.Contains(t, r.Unknown[0], "lost or damaged")
}

// rebuiltIndex removes the files of the index, and waits until they are there again.
func (b *bench) rebuiltIndex() {
	b.t.Helper()
	for _, name := range must(b.fs.List("data/index")) {
		require.NoError(b.t, b.fs.Remove("data/index/"+name))
	}
	b.until("the index is rebuilt", func() bool {
		_, err := b.search(brokerapi.FindRequest{Topic: brokerapi.TopicID(topicSync), ID: "nobody", Max: 1})
		require.NoError(b.t, err)
		s := b.engine.Index()
		return s.Missing == 0 && s.Rebuilt > 0
	})
}
