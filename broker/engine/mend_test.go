package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// spoilQueues writes over everything behind the heads of the files of the consume queues.
func (b *bench) spoilQueues() {
	b.t.Helper()
	for _, name := range must(b.fs.List("data/queue")) {
		f := must(b.fs.Open("data/queue/" + name))
		_, err := f.WriteAt(make([]byte, must(f.Size())-4096), 4096)
		require.NoError(b.t, err)
		require.NoError(b.t, f.Close())
	}
}

// stopped ends the engine cleanly and opens it again: nothing of the queues is in memory then.
func (b *bench) stopped() {
	b.t.Helper()
	_, err := b.engine.Close()
	require.NoError(b.t, err)
	require.NoError(b.t, b.store.CloseClean(1))
	b.engine = nil
	b.mustOpen()
}

// mendedQueues is the contents of all consume queues, what is damaged mended before.
func mendedQueues(ctx context.Context, e *Engine) (string, error) {
	queues := &strings.Builder{}
	for _, k := range e.views.queues.Keys() {
		lo, hi := e.views.queues.Bounds(k)
		fmt.Fprintf(queues, "%v %d..%d:", k, lo, hi)
		for off := lo; off < hi; off++ {
			var one queue.Entry
			if err := e.mending(ctx, func() (err error) { one, err = e.views.queues.At(k, off); return err }); err != nil {
				return "", err
			}
			fmt.Fprintf(queues, "%+v", one)
		}
	}
	return queues.String(), nil
}

// TestMendedQueues: whatever operations have put entries into the queues, and retention has taken of them, the log
// gives them back.
//
//fault:damage all extents of consume queues are damaged while the broker runs, after operations of every kind => every entry is rebuilt from the log as it was
func TestMendedQueues(t *testing.T) {
	seed, mended := testseed.First(t), int64(0)
	for i := range uint64(8) {
		w := newWorld(t, seed+i)
		w.some(modelOps)
		w.stop(true)
		w.open(nil)
		e := w.b.engine
		before := worldViews(e)[sectionQueues]
		w.stop(true)
		w.open(nil)
		w.b.spoilQueues()
		e = w.b.engine
		after, err := mendedQueues(t.Context(), e)
		require.NoError(t, err, "seed %d", w.seed)
		require.True(t, before == after, "seed %d:\nbefore %.600q\nafter  %.600q", w.seed, before, after)
		mended += e.counts.Mended.Load()
		w.stop(i%2 == 0)
		w.open(nil)
		require.True(t, before == must(mendedQueues(t.Context(), w.b.engine)), "seed %d", w.seed)
		w.b.kill()
	}
	require.Greater(t, mended, int64(20))
}

// TestDamagedQueue: a consume queue that cannot be read is an error that people hear of, not an empty queue; it is
// rebuilt while the broker runs, and its checkpoints stay good.
//
//fault:damage a consume queue cannot be read => an error for who meets it, not an empty queue; it is rebuilt from the log beside everything else, others go on; nothing is lost
func TestDamagedQueue(t *testing.T) {
	var said lockedBuffer
	b := newBench(t, Options{Log: slog.New(slog.NewTextHandler(&said, nil))})
	b.mustOpen()
	b.define()
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	b.mustSend(topicAsync, many...)
	b.mustSend(topicSync, "other")
	b.stopped()
	b.spoilQueues()
	var got []string
	failed := 0
	b.until("all messages are there", func() bool {
		ms, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicAsync), Group: brokerapi.GroupID(groupA)})
		if err != nil {
			require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
			failed++
		}
		got = append(got, bodies(ms)...)
		return len(got) >= len(many)
	})
	require.ElementsMatch(t, many, got)
	require.Positive(t, failed, "who meets it hears of it")
	require.EqualValues(t, failed, b.engine.counts.Damaged.Load())
	b.until("it is told what was rebuilt, behind the messages", func() bool {
		return b.engine.counts.Mended.Load() >= 10 && strings.Contains(said.String(), "was rebuilt from the log")
	})
	b.mustSend(topicSync, "others go on")
	require.NotEmpty(t, must(b.fs.List("data/checkpoint")), "no checkpoint was given up")
	before := b.state()[sectionPop]
	b.stopped()
	require.Equal(t, before, b.state()[sectionPop])
	b.clock.advance(time.Minute)
	b.until("they come again", func() bool { return len(b.mustPop(topicAsync, groupA)) > 0 })
	require.Zero(t, b.engine.counts.Mended.Load())
}

// TestGroupBeginsInADamagedQueue: where a group begins is searched for when the queue is mended, not given up.
func TestGroupBeginsInADamagedQueue(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	many := make([]string, 500)
	b.mustSend(topicSync, many...)
	b.clock.advance(time.Second)
	defs := definitions()
	defs.Version, defs.Full = 9, false
	late := groupFrom(9, "late", group.FromLast, 0) // begins at what comes
	late.Version = 9
	defs.Groups, defs.Topics = append(defs.Groups[:0], late), nil
	require.NoError(t, b.engine.Define(t.Context(), defs))
	b.clock.advance(time.Second)
	b.mustSend(topicSync, "new")
	b.stopped()
	b.spoilQueues()
	var got []string
	b.until("it has its message", func() bool {
		ms, _, _ := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: 9})
		got = append(got, bodies(ms)...)
		return len(got) > 0
	})
	require.Equal(t, []string{"new"}, got)
}

// TestRetentionOverADamagedQueue: what retention cannot read is mended; where the log is damaged in the same place it
// goes on without.
//
//fault:damage consume queues are damaged where retention reads them => it has them rebuilt; where the log is damaged in the same place it goes on without
func TestRetentionOverADamagedQueue(t *testing.T) {
	for _, both := range []bool{false, true} {
		b := retaining(t)
		old := b.mustSend(topicSync, "leased", "second")
		for range 200 {
			b.mustSend(topicSync, "more")
		}
		require.NotEmpty(t, b.mustPop(topicSync, groupA))
		for range 5 {
			b.fill(topicAsync)
		}
		b.stopped()
		b.spoilQueues()
		if both {
			b.damageRecord(record.Pos(old[0].Pos), inBody)
		}
		b.retain(150 * time.Minute)
		b.retain(30 * time.Minute) // and the next one, too
		s, err := b.engine.Retention(t.Context())
		require.NoError(t, err)
		require.Zero(t, s.Failures)
		if !both {
			require.Zero(t, s.Damaged)
			require.Empty(t, b.engine.DamagedRecords())
			b.clock.advance(10 * time.Minute)
			require.Contains(t, b.drain(topicSync, groupA), "leased", "it was held")
		}
		b.rebuilt()
		b.mustSend(topicSync, "goes on")
		require.Contains(t, b.drain(topicSync, groupA), "goes on")
	}
}

// TestUnmendable: where the log is damaged, too, a queue stays unreadable and the checkpoints stay; told to skip
// damage, the places of what is lost are passed over.
//
//fault:damage a consume queue and the record that says what was in it are damaged => its messages there wait, and checkpoints are kept; with on-damage skip groups go past what is lost
func TestUnmendable(t *testing.T) {
	for _, skip := range []bool{false, true} {
		b := newBench(t, Options{SkipDamage: skip})
		b.mustOpen()
		b.define()
		var sent []brokerapi.SendResult
		for _, body := range many(40) {
			sent = append(sent, b.mustSend(topicSync, body)...)
		}
		b.stopped()
		b.spoilQueues()
		b.damageRecord(record.Pos(sent[7].Pos), inBody)
		bad := queue.Key{Topic: topicSync, Queue: record.QueueID(sent[7].Queue)}
		var got []string
		b.until("the rest is there", func() bool {
			ms, _, _ := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA)})
			got = append(got, bodies(ms)...)
			if skip {
				return len(got) == 39
			}
			return len(got) == 30 && b.engine.mender.hopeless(bad)
		})
		require.NotContains(t, got, "7")
		require.NoError(t, b.engine.checkpointBehind(t.Context(), b.engine.log.Durable()))
		require.NotEmpty(t, must(b.fs.List("data/checkpoint")))
		b.stopped()
		b.kill()
	}
}

// TestDiskDoesNotAnswer: a read of a consume queue that fails is no damage of the checkpoints.
//
//fault:storage a file of consume queues cannot be read => what was in it is rebuilt from the log, in another place; checkpoints are kept
func TestDiskDoesNotAnswer(t *testing.T) {
	fs, fails := &hookFS{FS: memfs.New()}, atomic.Bool{}
	fs.set(func(op, name string) error {
		if op == "read" && filepath.Base(filepath.Dir(name)) == "queue" && fails.Load() {
			return errors.New("input/output error")
		}
		return nil
	})
	b := newBench(t, Options{})
	b.fs = fs
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, many(40)...)
	b.stopped()
	fails.Store(true)
	_, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA)})
	require.ErrorContains(t, err, "input/output error")
	b.until("it was rebuilt", func() bool { return b.engine.counts.Mended.Load() > 0 })
	fails.Store(false)
	var got []string
	b.until("all messages are there", func() bool {
		ms, _, _ := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA)})
		got = append(got, bodies(ms)...)
		return len(got) >= 40
	})
	require.ElementsMatch(t, many(40), got)
	require.NoError(t, b.engine.checkpointBehind(t.Context(), b.engine.log.Durable()))
}
