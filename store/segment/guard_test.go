package segment_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/segment"
)

// TestGuard: a page of the mapping that is not there is an error, in this goroutine and as often as it is met. A bug is no
// damage.
func TestGuard(t *testing.T) {
	dir := t.TempDir()
	s, err := segment.Create(vfs.OS, dir, 0, 64<<10)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Map())
	v, ok := s.View()
	require.True(t, ok)
	defer v.Release()
	sum := 0
	read := func(at int64) error {
		return v.Guard(func() error { sum += int(v.Bytes(0, 64<<10)[at]); return nil })
	}
	require.NoError(t, read(40_000))
	require.NoError(t, os.Truncate(filepath.Join(dir, segment.Name(0)), 4096))
	for range 2 {
		err := read(40_000)
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
		require.ErrorContains(t, err, "byte 40000")
		require.NoError(t, read(100))
	}
	require.PanicsWithValue(t, "a bug", func() { _ = v.Guard(func() error { panic("a bug") }) })
	var nothing *int
	require.Panics(t, func() { _ = v.Guard(func() error { *nothing = sum; return nil }) })
	require.EqualError(t, v.Guard(func() error { return os.ErrInvalid }), os.ErrInvalid.Error())
}
