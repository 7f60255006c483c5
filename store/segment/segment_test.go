package segment_test

import (
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/segment"
)

const size = 64 << 10

func TestName(t *testing.T) {
	require.Equal(t, "00000000001073741824", segment.Name(1<<30))
	base, ok := segment.ParseName("00000000001073741824")
	require.True(t, ok)
	require.EqualValues(t, 1<<30, base)
	for _, bad := range []string{"", "1", "0000000000107374182x", "-0000000001073741824", "+0000000001073741824", "00000000001073741824.tmp", "99999999999999999999"} {
		_, ok := segment.ParseName(bad)
		require.False(t, ok, bad)
	}
}

func TestReadWrite(t *testing.T) {
	for name, f := range map[string]vfs.FS{"os": vfs.OS, "memfs": memfs.New()} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, f.MkdirAll(dir))
			s, err := segment.Create(f, dir, size, size)
			require.NoError(t, err)
			require.EqualValues(t, size, s.Base())
			require.EqualValues(t, 2*size, s.End())
			_, ok := s.View()
			require.False(t, ok, "not mapped yet")
			require.NoError(t, s.Map())
			require.NoError(t, s.Map())
			require.True(t, s.Mapped())
			require.NoError(t, s.WriteAt([]byte("hello"), size+100))
			require.NoError(t, s.WriteAt([]byte("end"), 2*size-3))
			v, ok := s.View()
			require.True(t, ok)
			require.Equal(t, "hello", string(v.Bytes(size+100, 5)))
			require.Equal(t, "end", string(v.Bytes(2*size-3, 3)))
			require.Nil(t, v.Bytes(2*size-2, 3))
			require.Nil(t, v.Bytes(size-1, 3))
			v.Release()
			require.NoError(t, s.Sync())
			require.True(t, mqerr.Is(s.WriteAt([]byte("end"), 2*size-2), mqerr.Internal))
			require.True(t, mqerr.Is(s.ReadAt(make([]byte, 3), size-1), mqerr.Corrupt))
			s.Close()
			s.Close()
			require.True(t, mqerr.Is(s.ReadAt(make([]byte, 3), size), mqerr.Unavailable))

			s, err = segment.Open(f, dir, size, false)
			require.NoError(t, err)
			require.EqualValues(t, 2*size, s.End())
			got := make([]byte, 5)
			require.NoError(t, s.ReadAt(got, size+100))
			require.Equal(t, "hello", string(got))
			require.NoError(t, s.Clear(size+102))
			require.NoError(t, s.ReadAt(got, size+100))
			require.Equal(t, "he\x00\x00\x00", string(got))
			require.NoError(t, s.ReadAt(got, 2*size-5))
			require.Equal(t, make([]byte, 5), got)
			require.NoError(t, s.Remove())
			_, err = segment.Open(f, dir, size, false)
			require.ErrorIs(t, err, fs.ErrNotExist)
		})
	}
}

//fault:damage a file of the log is shorter than it should be => it is refused
func TestOpenRefusesCutFile(t *testing.T) {
	f := memfs.New()
	require.NoError(t, vfs.ReplaceFile(f, filepath.Join("/", segment.Name(0)), make([]byte, 12)))
	_, err := segment.Open(f, "/", 0, true)
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
	require.ErrorContains(t, err, segment.Name(0))
}

// TestLastReaderUnmaps shows that a view stays good when the segment is unmapped, closed and removed,
// and that the file goes only after it.
func TestLastReaderUnmaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := memfs.New()
		s, err := segment.Create(f, "/", 0, size)
		require.NoError(t, err)
		require.NoError(t, s.Map())
		require.NoError(t, s.WriteAt([]byte("hello"), 0))
		one, ok := s.View()
		require.True(t, ok)
		two, ok := s.View()
		require.True(t, ok)
		s.Unmap()
		_, ok = s.View()
		require.False(t, ok)
		var removed error
		done := false
		go func() {
			removed = s.Remove()
			done = true
		}()
		synctest.Wait()
		require.False(t, done)
		one.Release()
		synctest.Wait()
		require.False(t, done)
		require.Equal(t, "hello", string(two.Bytes(0, 5)))
		_, err = f.Stat(s.Path())
		require.NoError(t, err)
		two.Release()
		synctest.Wait()
		require.True(t, done)
		require.NoError(t, removed)
		_, err = f.Stat(s.Path())
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.Panics(t, two.Release, "twice")
	})
}

// TestCreateFaults fails each operation of Create: no usable file stays, and no space is lost.
//
//fault:storage each operation of making a file of the log fails => no usable file stays, and no space is lost
func TestCreateFaults(t *testing.T) {
	for n := 1; ; n++ {
		mem := memfs.New()
		f := faultfs.Wrap(mem)
		f.Set(faultfs.Fault{Nth: n})
		s, err := segment.Create(f, "/", 0, size)
		if !f.Hit() {
			require.NoError(t, err)
			require.Greater(t, n, 5, "create, allocate, sync, rename, sync dir")
			s.Close()
			return
		}
		require.ErrorIs(t, err, faultfs.ErrInjected)
		names, err := mem.List("/")
		require.NoError(t, err)
		require.NotContains(t, names, segment.Name(0)+vfs.TempSuffix)
	}
}

// TestCreateIsDurable cuts the power right after Create, and at each operation of it.
func TestCreateIsDurable(t *testing.T) {
	for n := 1; ; n++ {
		f := memfs.New()
		f.CutPower(n)
		_, err := segment.Create(f, "/", 0, size)
		for seed := range uint64(10) {
			g := f.Crash(rand.New(rand.NewPCG(seed, uint64(n))), 0.5)
			info, statErr := g.Stat("/" + segment.Name(0))
			switch {
			case statErr == nil:
				require.EqualValues(t, size, info.Size, "seed %d: full length from birth", seed)
			case err == nil:
				t.Fatalf("seed %d: created and lost", seed)
			}
		}
		if err == nil {
			return
		}
	}
}

func TestConcurrentReaders(t *testing.T) {
	s, err := segment.Create(vfs.OS, t.TempDir(), 0, size)
	require.NoError(t, err)
	require.NoError(t, s.WriteAt([]byte("hello"), 8))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				if v, ok := s.View(); ok {
					if string(v.Bytes(8, 5)) != "hello" {
						t.Error("mapped bytes differ")
					}
					v.Release()
				}
				got := make([]byte, 5)
				if err := s.ReadAt(got, 8); err == nil && string(got) != "hello" {
					t.Error("read bytes differ")
				}
			}
		})
	}
	for range 200 {
		require.NoError(t, s.Map())
		s.Unmap()
	}
	wg.Wait()
	require.NoError(t, s.Remove())
}
