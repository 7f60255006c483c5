package commitlog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// TestSpareStays: the file that a process made ahead is there for the next one, also on a disk that has no space for
// another, and nothing in it passes for a record.
func TestSpareStays(t *testing.T) {
	mem := memfs.New()
	o := Options{FS: mem, Dir: "log", SegmentBytes: 64 << 10}
	open := func() *Log {
		t.Helper()
		l, err := Open(o)
		require.NoError(t, err)
		_, err = l.Recover(0, func(record.Record) error { return nil })
		require.NoError(t, err)
		return l
	}
	l := open()
	require.Eventually(t, func() bool { return l.Room() == 128<<10 }, 20*time.Second, time.Millisecond)
	require.NoError(t, l.Close())
	spare, err := mem.Open("log/00000000000000065536")
	require.NoError(t, err)
	_, err = spare.WriteAt([]byte("what a lost record has left"), 0)
	require.NoError(t, err)
	mem.SetBudget(mem.Used())
	for range 2 {
		l = open()
		require.EqualValues(t, 128<<10, l.Room())
		require.Equal(t, record.Pos(128<<10), l.Reach(100<<10))
		require.NoError(t, l.Close())
		head := make([]byte, 64)
		_, err = spare.ReadAt(head, 0)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 64), head)
	}
}
