package memfs_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func create(t *testing.T, f vfs.FS, name string, data []byte) vfs.File {
	t.Helper()
	file, err := f.Create(name)
	require.NoError(t, err)
	_, err = file.WriteAt(data, 0)
	require.NoError(t, err)
	return file
}

// TestCrashSectors checks what is left of synced bytes that were written over: each sector is old or
// new, and both happen.
func TestCrashSectors(t *testing.T) {
	f := memfs.New()
	file := create(t, f, "/a", bytes.Repeat([]byte{1}, 10*512))
	require.NoError(t, file.Sync())
	require.NoError(t, f.SyncDir("/"))
	_, err := file.WriteAt(bytes.Repeat([]byte{2}, 10*512-100), 100)
	require.NoError(t, err)
	seen := map[byte]bool{}
	for seed := range uint64(20) {
		data, err := vfs.ReadFile(f.Crash(rng(seed), 0.5), "/a")
		require.NoError(t, err)
		require.Len(t, data, 10*512)
		for s := 0; s < len(data); s += 512 {
			part := data[s : s+512]
			if s == 0 {
				require.Equal(t, bytes.Repeat([]byte{1}, 100), part[:100])
				part = part[100:]
			}
			require.Equal(t, bytes.Repeat(part[:1], len(part)), part, "seed %d sector %d is torn", seed, s/512)
			seen[part[0]] = true
		}
	}
	require.Equal(t, map[byte]bool{1: true, 2: true}, seen)
	for keep, want := range map[float64]byte{0: 1, 1: 2} {
		data, err := vfs.ReadFile(f.Crash(rng(1), keep), "/a")
		require.NoError(t, err)
		require.Equal(t, want, data[200])
	}
}

// TestCrashNames checks that names need SyncDir, that a rename is atomic, and that bytes need Sync.
func TestCrashNames(t *testing.T) {
	f := memfs.New()
	require.NoError(t, vfs.ReplaceFile(f, "/a", []byte("old")))
	file := create(t, f, "/b", []byte("new"))
	require.NoError(t, file.Sync())
	require.NoError(t, f.Rename("/b", "/a"))
	require.NoError(t, f.MkdirAll("/d"))
	_ = create(t, f, "/d/c", []byte("unsynced"))
	seen := map[string]int{}
	for seed := range uint64(50) {
		g := f.Crash(rng(seed), 0.5)
		data, err := vfs.ReadFile(g, "/a")
		require.NoError(t, err, "seed %d: a rename is atomic", seed)
		names, err := g.List("/d")
		require.NoError(t, err)
		seen[fmt.Sprint(string(data), len(names))]++
	}
	require.Len(t, seen, 4, "old and new, with and without: %v", seen)
	require.NoError(t, f.SyncDir("/"))
	for seed := range uint64(50) {
		data, err := vfs.ReadFile(f.Crash(rng(seed), 0.5), "/a")
		require.NoError(t, err)
		require.Equal(t, "new", string(data))
	}
}

// TestCutPower cuts the power at each operation of ReplaceFile.
func TestCutPower(t *testing.T) {
	outcomes := map[string]bool{}
	for n := 1; ; n++ {
		f := memfs.New()
		require.NoError(t, vfs.ReplaceFile(f, "/a", []byte("old")))
		f.CutPower(n)
		err := vfs.ReplaceFile(f, "/a", []byte("new"))
		if err == nil {
			require.Equal(t, 6, n, "create, write, sync, rename, sync dir")
			break
		}
		require.ErrorIs(t, err, memfs.ErrPowerLoss)
		_, err = f.List("/")
		require.ErrorIs(t, err, memfs.ErrPowerLoss)
		for seed := range uint64(20) {
			data, err := vfs.ReadFile(f.Crash(rng(seed), 0.5), "/a")
			require.NoError(t, err)
			outcomes[string(data)] = true
		}
	}
	require.Equal(t, map[string]bool{"old": true, "new": true}, outcomes)
}

// TestRestart shows that a killed process loses nothing, but what was not synced stays at risk.
func TestRestart(t *testing.T) {
	f := memfs.New()
	file := create(t, f, "/a", []byte("one"))
	require.NoError(t, file.Sync())
	require.NoError(t, f.SyncDir("/"))
	_, err := file.WriteAt([]byte("two"), 0)
	require.NoError(t, err)
	_, err = f.Lock("/LOCK")
	require.NoError(t, err)
	f.Restart()
	_, err = f.Lock("/LOCK")
	require.NoError(t, err)
	data, err := vfs.ReadFile(f, "/a")
	require.NoError(t, err)
	require.Equal(t, "two", string(data))
	data, err = vfs.ReadFile(f.Crash(rng(1), 0), filepath.Clean("/a"))
	require.NoError(t, err)
	require.Equal(t, "one", string(data))
}

// TestCrashLength checks that an unsynced length is old or new, never something that shows foreign bytes.
func TestCrashLength(t *testing.T) {
	f := memfs.New()
	file := create(t, f, "/a", []byte("12345"))
	require.NoError(t, file.Sync())
	require.NoError(t, f.SyncDir("/"))
	require.NoError(t, file.Truncate(2))
	require.NoError(t, file.Allocate(2048))
	for seed := range uint64(20) {
		data, err := vfs.ReadFile(f.Crash(rng(seed), 0.5), "/a")
		require.NoError(t, err)
		require.Contains(t, []int{5, 2048}, len(data))
		require.Equal(t, "12", string(data[:2]))
		if len(data) == 2048 {
			require.Equal(t, make([]byte, 2048-512), data[512:])
		}
	}
}

// TestCrashBetween: a sector may be found as it was at any time since it was synced.
func TestCrashBetween(t *testing.T) {
	f := memfs.New()
	file := create(t, f, "/a", bytes.Repeat([]byte{1}, 16*512))
	require.NoError(t, file.Sync())
	require.NoError(t, f.SyncDir("/"))
	for v := byte(2); v < 5; v++ {
		_, err := file.WriteAt(bytes.Repeat([]byte{v}, 16*512), 0)
		require.NoError(t, err)
	}
	seen, blocks := map[byte]bool{}, 0
	for seed := range uint64(40) {
		data, err := vfs.ReadFile(f.Crash(rng(seed), 0.7), "/a")
		require.NoError(t, err)
		whole := true
		for s := 0; s < len(data); s += 512 {
			seen[data[s]] = true
			whole = whole && data[s] == data[s/4096*4096]
		}
		if whole {
			blocks++
		}
	}
	require.Equal(t, map[byte]bool{1: true, 2: true, 3: true, 4: true}, seen)
	require.Greater(t, blocks, 10, "disks with sectors of 4 KiB")
	require.NoError(t, file.Sync())
	data, err := vfs.ReadFile(f.Crash(rng(1), 0.5), "/a")
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{4}, 16*512), data)
}
