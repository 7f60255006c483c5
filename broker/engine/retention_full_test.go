package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// TestRetentionOnAFullDisk: the room that is left to retention by the settings is too small for the SNAPSHOT that a step
// needs. A broker that knows how large its state is leaves enough; one that does not gets a file more.
//
//fault:space the disk is at its last watermark, consumers are refused, and the state is larger than the room that is left to retention => the step that cannot be finished writes nothing; it gets one file more, deletes what is consumed, and everybody is taken again
func TestRetentionOnAFullDisk(t *testing.T) {
	t.Run("its state is known", func(t *testing.T) { retentionOnAFullDisk(t, true) })
	t.Run("its state is not known", func(t *testing.T) { retentionOnAFullDisk(t, false) })
}

func retentionOnAFullDisk(t *testing.T, known bool) {
	mem := memfs.New()
	b := newBench(t, Options{})
	b.fs = mem
	b.mustOpen()
	b.define()
	for i := range 8 { // a state of more than an eighth of a file
		d := &Definitions{Version: uint64(10 + i)}
		for j := range 100 {
			d.Groups = append(d.Groups, group.Definition{ID: record.GroupID(1000 + 100*i + j), Name: fmt.Sprintf("g%03d%s", 100*i+j, strings.Repeat("x", 240)), MaxAttempts: 17, Version: 5})
		}
		require.NoError(t, b.engine.Define(t.Context(), d))
	}
	b.mustSend(topicSync, "first")
	for range 4 {
		b.fill(topicSync)
		b.drain(topicSync, groupA)
	}
	require.Greater(t, b.engine.spaces.costs.state.Load(), int64(128<<10), "a checkpoint was saved meanwhile")
	look := func() space.State {
		if !known {
			b.engine.spaces.costs.state.Store(0)
		}
		return b.engine.LookAtSpace()
	}
	mem.SetUsage(vfs.Usage{Total: 100 << 30, Free: 1 << 30})
	require.Eventually(t, func() bool { s := look(); return s.Holds && b.engine.log.Room() < 3<<20 }, 20*time.Second, time.Millisecond)
	for more := true; more; { // consumers use what is left to them
		require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
			junk := record.Snapshot{View: []byte("x"), Chunk: 1, Data: make([]byte, 2000)}
			size := record.SnapshotSize(&junk)
			if more = w.hasSpace(space.Consumer, size); more {
				w.put(record.TypeSnapshot, size, func(body []byte) { record.PutSnapshot(body, &junk) })
			}
		}))
	}
	require.Eventually(t, func() bool { return look().Level == space.NoConsumers }, 20*time.Second, time.Millisecond)
	at, first := b.engine.log.Written(), b.engine.log.First()
	_, err := b.engine.Retain(t.Context(), retain.Limits{})
	if known {
		require.NoError(t, err)
		require.Greater(t, b.engine.log.First(), first)
		mem.SetUsage(vfs.Usage{Total: 100 << 30, Free: 50 << 30})
		require.Eventually(t, func() bool { return look().Level == space.Plenty }, 20*time.Second, time.Millisecond)
		b.rebuilt()
		return
	}
	require.True(t, mqerr.Is(err, mqerr.DiskFull), "%v", err)
	require.Equal(t, at, b.engine.log.Written(), "what cannot be finished costs no room")
	require.Eventually(t, func() bool {
		look()
		_, err := b.engine.Retain(t.Context(), retain.Limits{})
		return err == nil && b.engine.log.First() > first
	}, 20*time.Second, 20*time.Millisecond)
	require.Less(t, look().Level, space.NoConsumers, "the disk is as full, but consumers go on")
	mem.SetUsage(vfs.Usage{Total: 100 << 30, Free: 50 << 30})
	require.Eventually(t, func() bool { return look().Level == space.Plenty }, 20*time.Second, time.Millisecond)
	b.rebuilt()
	b.mustSend(topicSync, "again")
	require.Equal(t, []string{"again"}, b.drain(topicSync, groupA))
}
