package engine

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// turns waits until the writer has nothing more to do and returns how many turns it has had.
func (b *bench) turns() int64 {
	b.t.Helper()
	n := b.engine.counts.Turns.Load()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		<-time.After(20 * time.Millisecond)
		was := n
		if n = b.engine.counts.Turns.Load(); n == was {
			return n
		}
	}
	b.t.Fatal("the writer never rests")
	return 0
}

// TestIdleAfterACheckpoint: turns while a checkpoint is under way order no other one, if nothing was
// written; the writer once turned without end when that was due.
func TestIdleAfterACheckpoint(t *testing.T) {
	fs, saved := &hookFS{FS: memfs.New()}, make(chan record.Pos, 16)
	b := newBench(t, Options{CheckpointBytes: 1, CheckpointInterval: time.Minute})
	b.opt.Events.Checkpointed = func(pos record.Pos, _ time.Duration) { saved <- pos }
	b.fs = fs
	b.mustOpen()
	b.define()
	b.turns()
	for len(saved) > 0 {
		<-saved
	}
	hold := make(chan struct{})
	fs.set(func(op, _ string) error {
		if op == "rename" {
			<-hold
		}
		return nil
	})
	b.mustSend(topicSync, "one")
	for range 5 {
		b.mustPop(topicAsync, groupA) // turns that write nothing
	}
	b.clock.advance(2 * time.Minute)
	close(hold)
	<-saved
	b.turns()
	b.clock.advance(time.Hour)
	b.mustPop(topicAsync, groupA)
	b.turns()
	require.Empty(t, saved, "nothing was written, nothing is saved")
}

// TestCheckpointsBehind: when checkpoints fail, messages are refused before a start would read too much;
// consumers go on, and messages are taken again when a checkpoint succeeds.
//
//fault:storage checkpoints fail for long => messages are refused (--checkpoint-behind), consumers go on, both by themselves again when one succeeds
func TestCheckpointsBehind(t *testing.T) {
	fs, fails := &hookFS{FS: memfs.New()}, atomic.Bool{}
	fs.set(func(op, name string) error {
		if op == "rename" && strings.Contains(name, "checkpoint") && fails.Load() {
			return errors.New("no")
		}
		return nil
	})
	b := newBench(t, Options{CheckpointBytes: 1, CheckpointInterval: time.Minute, CheckpointBehind: 64 << 10})
	b.fs = fs
	b.mustOpen()
	b.define()
	b.turns()
	fails.Store(true)
	body := strings.Repeat("x", 1000)
	n := 0
	for ; n < 200; n++ {
		if _, err := b.send(topicSync, body); err != nil {
			require.True(t, mqerr.Is(err, mqerr.Exhausted), "%v", err)
			break
		}
	}
	require.Greater(t, n, 50)
	require.Less(t, n, 70)
	require.Len(t, b.mustPop(topicSync, groupA), 32)
	require.EqualValues(t, 1, b.engine.Counts().UnsavedRefused.Load())
	fails.Store(false)
	b.clock.advance(61 * time.Second)
	b.turns()
	b.mustPop(topicSync, groupA) // a turn, in which the checkpoint is due
	b.turns()
	b.mustSend(topicSync, body)
}

// TestFailedCheckpointWaits: a checkpoint that fails is tried again after the interval, not at once, and
// the broker goes on.
//
//fault:storage a checkpoint cannot be written => the broker goes on, and tries again after the interval
func TestFailedCheckpointWaits(t *testing.T) {
	fs, fails, tries := &hookFS{FS: memfs.New()}, atomic.Bool{}, atomic.Int64{}
	fs.set(func(op, name string) error {
		if op != "rename" || !strings.Contains(name, "checkpoint") {
			return nil
		}
		tries.Add(1)
		if fails.Load() {
			return errors.New("no")
		}
		return nil
	})
	b := newBench(t, Options{CheckpointBytes: 1, CheckpointInterval: time.Minute})
	b.fs = fs
	b.mustOpen()
	b.define()
	b.turns()
	fails.Store(true)
	before := tries.Load()
	for range 10 {
		b.mustSend(topicSync, "one")
	}
	b.turns()
	require.EqualValues(t, 1, tries.Load()-before)
	b.clock.advance(61 * time.Second)
	b.mustSend(topicSync, "two")
	b.turns()
	require.EqualValues(t, 2, tries.Load()-before)
	fails.Store(false)
	b.clock.advance(61 * time.Second)
	b.mustSend(topicSync, "three")
	b.turns()
	b.mustSend(topicSync, "four")
	b.turns()
	require.EqualValues(t, 4, tries.Load()-before, "one after the interval, then by bytes again")
}
