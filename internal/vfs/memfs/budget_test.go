package memfs

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/vfs"
)

func TestBudget(t *testing.T) {
	m := New()
	m.SetBudget(1000)
	f, err := m.Create("a")
	require.NoError(t, err)
	require.NoError(t, f.Allocate(600))
	_, err = f.WriteAt(make([]byte, 100), 500)
	require.NoError(t, err, "inside")
	n, err := f.WriteAt(make([]byte, 600), 500)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.True(t, vfs.IsFull(err))
	require.Equal(t, 500, n, "what fits is written")
	require.EqualValues(t, 1000, m.Used())
	u, err := m.Usage("/")
	require.NoError(t, err)
	require.Equal(t, vfs.Usage{Total: 1000}, u)
	g, err := m.Create("b")
	require.NoError(t, err)
	require.ErrorIs(t, g.Allocate(1), syscall.ENOSPC)
	require.NoError(t, m.Remove("a"))
	require.NoError(t, g.Allocate(1000))
	m.SetBudget(0)
	require.NoError(t, g.Allocate(5000))
}
