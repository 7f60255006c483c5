package engine

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/segment"
)

// viewFiles are all files of a data directory but the segments of the log, whose damage others test.
func viewFiles(t *testing.T, fs vfs.FS) (all []string) {
	t.Helper()
	for _, dir := range []string{"data", "data/log", "data/queue", "data/index", "data/dedup", "data/checkpoint"} {
		for _, name := range must(fs.List(dir)) {
			path := filepath.Join(dir, name)
			if _, is := segment.ParseName(name); is && dir == "data/log" || must(fs.Stat(path)).Dir {
				continue
			}
			all = append(all, path)
		}
	}
	return all
}

// damagesOf returns the ways to damage a file, by name. old is the directory as it was before.
func damagesOf(fs, old vfs.FS, path string) map[string]func(*memfs.FS) error {
	was := must(vfs.ReadFile(fs, path))
	put := func(b []byte) func(*memfs.FS) error {
		return func(fs *memfs.FS) error { return vfs.ReplaceFile(fs, path, b) }
	}
	all := map[string]func(*memfs.FS) error{"deleted": func(fs *memfs.FS) error { return fs.Remove(path) }}
	for _, n := range []int{0, 1, len(was) / 2, len(was) - 1} {
		if n >= 0 && n < len(was) {
			all[fmt.Sprint("cut to ", n)] = put(was[:n])
			bad := append([]byte(nil), was...)
			bad[n] ^= 4
			all[fmt.Sprint("a bit of byte ", n)] = put(bad)
		}
	}
	for lo := 0; lo < len(was) && lo <= 8192; lo += 4096 {
		bad := append([]byte(nil), was...)
		clear(bad[lo:min(lo+4096, len(bad))])
		all[fmt.Sprint("zeros from ", lo)] = put(bad)
	}
	if b, err := vfs.ReadFile(old, path); err == nil && string(b) != string(was) {
		all["as it was before"] = put(b)
	}
	for _, other := range must(fs.List(filepath.Dir(path))) {
		other = filepath.Join(filepath.Dir(path), other)
		if other != path && filepath.Ext(other) == filepath.Ext(path) && filepath.Dir(path) != "data" && !must(fs.Stat(other)).Dir && filepath.Dir(path) != "data/log" {
			b := must(vfs.ReadFile(fs, other))
			all["swapped with "+other] = func(fs *memfs.FS) error {
				if err := vfs.ReplaceFile(fs, other, was); err != nil {
					return err
				}
				return put(b)(fs)
			}
		}
	}
	return all
}

// opened starts on a directory and returns all views, what is damaged of the queues mended.
func opened(t *testing.T, w *world, fs vfs.FS) (map[string]string, error) {
	t.Helper()
	st, err := store.Open(storeOptions(fs))
	if err != nil {
		return nil, err
	}
	defer st.Close()
	e, err := Open(Options{Store: st, Clock: w.b.clock, Txn: w.b.opt.Txn})
	if err != nil {
		return nil, err
	}
	queues, err := mendedQueues(t.Context(), e)
	if err != nil {
		return nil, err
	}
	out := worldViews(e)
	out[sectionQueues] = queues
	return out, nil
}

// TestEveryViewFile damages each file of a directory, whatever it is, in each way, and starts on it.
//
//fault:damage each file beside the segments of the log (checkpoints, consume queues, index, duplicate window, mark, marker of a clean stop, identity, promise) is deleted, cut, zeroed, has a bit flipped, is as it was before, or is swapped with another of its kind; after a clean stop and after a crash => all views are as before, or the start is refused with the file and what to do
func TestEveryViewFile(t *testing.T) {
	seed, same, refused := testseed.First(t), 0, map[string]int{}
	for _, clean := range []bool{true, false} {
		w := newWorld(t, seed)
		require.NoError(t, w.b.store.Bind("cluster", "a", 1))
		require.NoError(t, w.b.store.Promise(3, 3))
		w.some(modelOps)
		w.stop(true)
		old := w.b.fs.(*memfs.FS).Clone()
		w.open(nil)
		require.NoError(t, w.b.store.Promise(4, 4))
		w.some(modelOps / 2)
		w.stop(clean)
		fs := w.b.fs.(*memfs.FS)
		before, err := opened(t, w, fs.Clone())
		require.NoError(t, err)
		files := viewFiles(t, fs)
		require.Greater(t, len(files), 8)
		for _, path := range files {
			for name, damage := range damagesOf(fs, old, path) {
				bad := fs.Clone()
				require.NoError(t, damage(bad))
				after, err := opened(t, w, bad)
				what := fmt.Sprintf("seed %d, clean %v: %s %s", seed, clean, path, name)
				if err != nil {
					require.True(t, mqerr.Is(err, mqerr.Corrupt) || mqerr.Is(err, mqerr.Unsupported), "%s: %v", what, err)
					require.True(t, strings.Contains(err.Error(), filepath.Base(path)), "%s: %v", what, err)
					require.Regexp(t, "bring|restore|start the release", err.Error(), what)
					refused[filepath.Base(path)]++
					continue
				}
				same++
				for view := range before {
					if view == sectionDups && filepath.Dir(path) == "data/dedup" && w.count["(deleted)"] > 0 && before[view] != after[view] {
						// The log has deleted what would tell: the window says that it is shorter.
						require.GreaterOrEqual(t, lostUntil(after[view]), max(1, lostUntil(before[view])), what)
						continue
					}
					require.True(t, before[view] == after[view], "%s: view %s:\nbefore %.600q\nafter  %.600q", what, view, before[view], after[view])
				}
			}
		}
		w.open(nil)
		w.b.kill()
	}
	t.Logf("views as before %d times, refused: %v", same, refused)
	require.Greater(t, same, 100)
}

// lostUntil is the store time before which the section of a duplicate window says that something may be missing.
func lostUntil(section string) uint64 {
	at, _ := binary.Uvarint([]byte(section)[1:])
	return at
}
