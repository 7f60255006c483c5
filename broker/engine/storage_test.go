package engine

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/segment"
)

// TestStorageFaults: which failures of the disk end a broker and which do not is a decision
// (docs/format/directory.md). Where it ends nothing more is written to the log, no sync is tried again, callers
// learn that the outcome is unknown, and later ones that nothing was done.
//
//fault:storage the log cannot be written (also in part) or synced, or its mark not written => the broker ends: nothing more is appended, no sync is tried again, callers get UNKNOWN outcome, later ones UNAVAILABLE
//fault:storage a consume queue, a checkpoint, a file of the index or of the duplicate window cannot be written or synced => the broker goes on; answers hold
func TestStorageFaults(t *testing.T) {
	const ends, lives = true, false
	for _, c := range []struct {
		path string
		op   faultfs.Op
		want bool
	}{
		{"data/log/0", faultfs.OpWrite, ends},
		{"data/log/0", faultfs.OpSync, ends},
		{"data/log/durable", faultfs.OpWrite, ends},
		{"data/log/", faultfs.OpCreate, lives},
		{"data/log/", faultfs.OpAllocate, lives},
		{"data/queue/", faultfs.OpCreate, lives},
		{"data/queue/", faultfs.OpAllocate, lives},
		{"data/queue/", faultfs.OpWrite, lives},
		{"data/queue/", faultfs.OpSync, lives},
		{"data/queue", faultfs.OpSyncDir, lives},
		{"data/index/", faultfs.OpWrite, lives},
		{"data/index/", faultfs.OpSync, lives},
		{"data/dedup/", faultfs.OpWrite, lives},
		{"data/dedup/", faultfs.OpSync, lives},
		{"data/checkpoint/", faultfs.OpCreate, lives},
		{"data/checkpoint/", faultfs.OpWrite, lives},
		{"data/checkpoint/", faultfs.OpSync, lives},
		{"data/checkpoint/", faultfs.OpRename, lives},
		{"data/checkpoint", faultfs.OpSyncDir, lives},
	} {
		for _, short := range []bool{false, true} {
			if short && c.op != faultfs.OpWrite {
				continue
			}
			t.Run(fmt.Sprintf("%s %v short=%v", c.path, c.op, short), func(t *testing.T) {
				storageFault(t, faultfs.Fault{Path: c.path, Op: c.op, Short: short, Nth: 1, Always: true, Err: syscall.EIO}, c.want)
			})
		}
	}
}

func storageFault(t *testing.T, fault faultfs.Fault, ends bool) {
	mem := memfs.New()
	fs := faultfs.Wrap(mem)
	var told atomic.Int32
	b := newBench(t, Options{CheckpointBytes: 64 << 10, Events: Events{Failed: func(error) { told.Add(1) }}})
	b.fs = fs
	b.mustOpen()
	b.define()
	stored := 0
	send := func() error {
		_, err := b.send(topicSync, fmt.Sprint(stored, ".", strings.Repeat("x", 9000)))
		if err == nil {
			stored++
		}
		return err
	}
	require.NoError(t, send())
	fs.Set(fault)
	var err error
	for range 150 {
		b.engine.LookAtSpace()
		b.clock.advance(time.Second)
		if err = send(); err != nil {
			break
		}
	}
	switch {
	case ends:
		require.True(t, mqerr.Is(err, mqerr.UnknownOutcome), "%v", err)
		require.Error(t, b.engine.Failure())
		<-b.engine.done
		// The file that is being made for later is none of it.
		tail := segment.Name((b.engine.log.Written() - 1) / (1 << 20) * (1 << 20))
		count := func() (n [4]int) {
			for i, name := range []string{tail, "data/log/durable"} {
				n[2*i], n[2*i+1] = fs.Count(faultfs.OpWrite, name), fs.Count(faultfs.OpSync, name)
			}
			return n
		}
		before := count()
		fs.Clear()
		for range 3 {
			require.True(t, mqerr.Is(send(), mqerr.Unavailable), "%v", err)
		}
		require.Error(t, b.engine.log.Sync())
		require.Equal(t, before, count(), "nothing is tried again")
	case err != nil: // no further file of the log, or of the queues
		require.True(t, mqerr.Is(err, mqerr.DiskFull), "%v", err)
		require.GreaterOrEqual(t, b.engine.LookAtSpace().Level, space.Low)
		fallthrough
	default:
		require.NoError(t, b.engine.Failure())
		require.Eventually(t, fs.Hit, 20*time.Second, time.Millisecond, "some files are made and written beside the writer")
		require.NotEmpty(t, b.mustPop(topicSync, groupB), "consumers go on")
	}
	require.Equal(t, ends, told.Load() == 1)
	b.kill()
	fs.Clear()
	mem.Restart()
	b.mustOpen()
	n := 0
	for {
		ms := b.mustPop(topicSync, groupA)
		if len(ms) == 0 {
			break
		}
		n += len(ms)
	}
	require.GreaterOrEqual(t, n, stored)
	require.LessOrEqual(t, n, stored+1, "one had an unknown outcome")
}
