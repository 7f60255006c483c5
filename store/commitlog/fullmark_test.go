package commitlog_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

// TestMarkWithoutSpace: the note of what is durable needs no space once it is there, and a disk without any
// costs the note, not the log.
//
//fault:space the disk is full when a log is opened, or while it notes how far it is durable => it goes on, and the older note stands
func TestMarkWithoutSpace(t *testing.T) {
	mem := memfs.New()
	fs := faultfs.Wrap(mem)
	l, _ := mustStart(t, options(fs))
	all := mustAppend(t, l, false, body(1, 100))
	mem.SetBudget(mem.Used())
	require.NoError(t, l.Sync(), "in place")
	first, err := l.Promised()
	require.NoError(t, err)
	require.Equal(t, l.Written(), first)
	fs.Set(faultfs.Fault{Op: faultfs.OpWrite, Path: "durable", Nth: 1, Always: true, Err: syscall.ENOSPC})
	all = append(all, mustAppend(t, l, false, body(2, 100))...)
	require.NoError(t, l.Sync())
	require.Equal(t, l.Written(), l.Durable())
	l.Kill()
	mem.Restart()
	l, found := mustStart(t, options(fs)) // the new mark cannot be written either
	requireSame(t, all, found, "kept")
	after, err := l.Promised()
	require.NoError(t, err)
	require.Equal(t, first, after)
	fs.Clear()
	all = append(all, mustAppend(t, l, false, body(3, 100))...)
	require.NoError(t, l.Sync())
	after, err = l.Promised()
	require.NoError(t, err)
	require.Equal(t, l.Durable(), after)
	l.Kill()
	mem.Restart()
	_, found = mustStart(t, options(fs))
	requireSame(t, all, found, "kept")
}
