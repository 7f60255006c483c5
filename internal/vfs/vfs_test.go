package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

// each runs a test on every file system.
func each(t *testing.T, test func(t *testing.T, f vfs.FS, dir string)) {
	t.Run("os", func(t *testing.T) { test(t, vfs.OS, t.TempDir()) })
	t.Run("memfs", func(t *testing.T) { test(t, memfs.New(), "/") })
	t.Run("faultfs", func(t *testing.T) { test(t, faultfs.Wrap(memfs.New()), "/") })
}

func TestFile(t *testing.T) {
	each(t, func(t *testing.T, f vfs.FS, dir string) {
		name := filepath.Join(dir, "a")
		file, err := f.Create(name)
		require.NoError(t, err)
		require.NoError(t, file.Allocate(8192))
		size, err := file.Size()
		require.NoError(t, err)
		require.EqualValues(t, 8192, size)

		data, unmap, err := file.Map(4096, 4096)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 4096), data)
		_, err = file.WriteAt([]byte("hello"), 4100)
		require.NoError(t, err)
		require.Equal(t, "hello", string(data[4:9]), "a mapping follows writes")
		require.NoError(t, file.Sync())

		got := make([]byte, 5)
		_, err = file.ReadAt(got, 4100)
		require.NoError(t, err)
		require.Equal(t, "hello", string(got))
		n, err := file.ReadAt(got, 8190)
		require.Equal(t, 2, n)
		require.ErrorIs(t, err, io.EOF)

		require.NoError(t, file.ZeroRange(4101, 3))
		require.Equal(t, "h\x00\x00\x00o", string(data[4:9]))
		require.NoError(t, file.ZeroRange(4101, 0))
		size, err = file.Size()
		require.NoError(t, err)
		require.EqualValues(t, 8192, size)
		require.NoError(t, file.Close())
		require.Equal(t, byte('h'), data[4], "a mapping outlives the file")
		require.NoError(t, unmap())
		require.ErrorIs(t, file.Close(), fs.ErrClosed)

		file, err = f.Create(name)
		require.NoError(t, err)
		size, err = file.Size()
		require.NoError(t, err)
		require.Zero(t, size, "Create empties")
		require.NoError(t, file.Truncate(3))
		require.NoError(t, file.Close())

		file, err = f.OpenRead(name)
		require.NoError(t, err)
		_, err = file.WriteAt([]byte{1}, 0)
		require.Error(t, err, "opened for reading only")
		require.NoError(t, file.Close())
		_, err = f.Open(filepath.Join(dir, "none"))
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, f vfs.FS, dir string) {
		deep := filepath.Join(dir, "x", "y")
		require.NoError(t, f.MkdirAll(deep))
		require.NoError(t, f.MkdirAll(deep))
		require.NoError(t, vfs.ReplaceFile(f, filepath.Join(deep, "b"), []byte("one")))
		require.NoError(t, vfs.ReplaceFile(f, filepath.Join(deep, "b"), []byte("two")))
		require.NoError(t, vfs.ReplaceFile(f, filepath.Join(deep, "a"), nil))
		names, err := f.List(deep)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, names)
		data, err := vfs.ReadFile(f, filepath.Join(deep, "b"))
		require.NoError(t, err)
		require.Equal(t, "two", string(data))
		info, err := f.Stat(filepath.Join(deep, "b"))
		require.NoError(t, err)
		require.Equal(t, vfs.Info{Size: 3}, info)
		info, err = f.Stat(deep)
		require.NoError(t, err)
		require.True(t, info.Dir)

		require.Error(t, f.Remove(deep), "not empty")
		require.NoError(t, f.Remove(filepath.Join(deep, "a")))
		require.ErrorIs(t, f.Remove(filepath.Join(deep, "a")), fs.ErrNotExist)
		require.NoError(t, f.SyncDir(deep))
		_, err = f.Stat(filepath.Join(deep, "a"))
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = f.List(filepath.Join(dir, "none"))
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = f.Create(filepath.Join(dir, "none", "a"))
		require.ErrorIs(t, err, fs.ErrNotExist)

		u, err := f.Usage(dir)
		require.NoError(t, err)
		require.Positive(t, u.Total)
		require.LessOrEqual(t, u.Free, u.Total)
	})
}

func TestLock(t *testing.T) {
	each(t, func(t *testing.T, f vfs.FS, dir string) {
		name := filepath.Join(dir, "LOCK")
		held, err := f.Lock(name)
		require.NoError(t, err)
		_, err = f.Lock(name)
		require.True(t, mqerr.Is(err, mqerr.Exists), "%v", err)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, "stop it first")
		require.NoError(t, held.Close())
		held, err = f.Lock(name)
		require.NoError(t, err)
		require.NoError(t, held.Close())
	})
}

// TestReplaceFileFaults fails each operation of ReplaceFile in turn: the file has the old content or the
// new one, and no temporary file stays.
//
//fault:storage each operation of replacing a file fails => it has the old content or the new one
func TestReplaceFileFaults(t *testing.T) {
	for n := 1; ; n++ {
		mem := memfs.New()
		f := faultfs.Wrap(mem)
		require.NoError(t, vfs.ReplaceFile(f, "/a", []byte("old")))
		f.Set(faultfs.Fault{Nth: n})
		err := vfs.ReplaceFile(f, "/a", []byte("new"))
		if !f.Hit() {
			require.NoError(t, err)
			require.Greater(t, n, 4, "create, write, sync, rename, sync dir")
			return
		}
		require.ErrorIs(t, err, faultfs.ErrInjected)
		data, err := vfs.ReadFile(mem, "/a")
		require.NoError(t, err)
		require.Contains(t, []string{"old", "new"}, string(data))
		names, err := mem.List("/")
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, names)
	}
}

func TestReadFileShort(t *testing.T) {
	f := faultfs.Wrap(memfs.New())
	require.NoError(t, vfs.ReplaceFile(f, "/a", bytes.Repeat([]byte("x"), 100)))
	f.Set(faultfs.Fault{Op: faultfs.OpRead, Nth: 1, Err: errors.New("bad disk")})
	_, err := vfs.ReadFile(f, "/a")
	require.ErrorContains(t, err, "bad disk")
	require.True(t, strings.Contains(err.Error(), "/a"))
}
