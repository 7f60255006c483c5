package memfs

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/vfs"
)

// TestFork: the next process reads what the killed one wrote, and the power may take it as before.
func TestFork(t *testing.T) {
	m := New()
	f, err := m.Create("a")
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("old"), 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("."))
	_, err = f.WriteAt([]byte("new"), 0)
	require.NoError(t, err)
	g, err := m.Create("b")
	require.NoError(t, err)
	require.NoError(t, g.Sync())
	_, err = m.Lock("lock")
	require.NoError(t, err)

	next := m.Fork()
	_, err = f.WriteAt([]byte("too late"), 0)
	require.NoError(t, err)
	m.CutPower(1)
	_, err = next.Lock("lock")
	require.NoError(t, err)
	read := func(fs vfs.FS) string {
		b, err := vfs.ReadFile(fs, "a")
		require.NoError(t, err)
		return string(b)
	}
	require.Equal(t, "new", read(next))
	_, err = next.Stat("b")
	require.NoError(t, err)

	lost := next.Crash(rand.New(rand.NewPCG(1, 1)), 0)
	require.Equal(t, "old", read(lost))
	_, err = lost.Stat("b")
	require.Error(t, err)
	kept := next.Crash(rand.New(rand.NewPCG(1, 1)), 1)
	_, err = kept.Stat("b")
	require.NoError(t, err)

	h, err := next.Open("a")
	require.NoError(t, err)
	require.NoError(t, h.Sync())
	require.NoError(t, next.SyncDir("."))
	require.Equal(t, "new", read(next.Crash(rand.New(rand.NewPCG(1, 1)), 0)))
}
