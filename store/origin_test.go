package store_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
	"github.com/perigee-mq/perigee/store/storetest"
)

var checkpoints = filepath.Join(dir, store.CheckpointDir)

// copyNewest puts the newest checkpoint of one directory into another.
func copyNewest(t *testing.T, from, to vfs.FS) {
	t.Helper()
	names, err := checkpoint.List(from, checkpoints)
	require.NoError(t, err)
	name := names[len(names)-1]
	b, err := vfs.ReadFile(from, filepath.Join(checkpoints, name))
	require.NoError(t, err)
	require.NoError(t, vfs.ReplaceFile(to, filepath.Join(checkpoints, name), b))
}

// written makes a directory with n messages and a checkpoint behind them.
func written(t *testing.T, fs vfs.FS, k queue.Key, n int) record.Pos {
	t.Helper()
	b := storetest.MustOpen(t, fs, dir)
	b.Send(k, n)
	require.NoError(t, b.Checkpoint())
	end := b.Store.Log().Written()
	b.Close()
	return end
}

// TestForeignCheckpointIsSetAside: a checkpoint that is whole and of another log says nothing of this one, however
// well its position fits.
//
//fault:damage a checkpoint of another directory, or of the same one before its log was brought back from a copy, is among the checkpoints => it is set aside and counted, and the one before is taken, or the views are rebuilt from the log
func TestForeignCheckpointIsSetAside(t *testing.T) {
	k, other := queue.Key{Topic: 1}, queue.Key{Topic: 2}
	for name, c := range map[string]struct {
		// foreign makes the directory whose checkpoint is put into fs.
		foreign func(fs *memfs.FS) *memfs.FS
		say     string
	}{
		"another directory with the same messages": {func(*memfs.FS) *memfs.FS {
			far := memfs.New()
			written(t, far, k, 100)
			written(t, far, k, 10) // ends where a record of this one ends
			return far
		}, "another data directory"},
		"a copy of this one that went another way": {func(fs *memfs.FS) *memfs.FS {
			far := fs.Crash(rand.New(rand.NewPCG(1, 1)), 1)
			written(t, far, other, 10)
			return far
		}, "another log"},
		"another way that ends within a record of this one": {func(fs *memfs.FS) *memfs.FS {
			far := fs.Crash(rand.New(rand.NewPCG(1, 1)), 1)
			b := storetest.MustOpen(t, far, dir)
			b.Write(record.TypeSkip, 3, func(body []byte) { copy(body, "abc") })
			require.NoError(t, b.Checkpoint())
			b.Close()
			return far
		}, "another log"},
	} {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s own=%v", name, own), func(t *testing.T) {
				fs := memfs.New()
				first := written(t, fs, k, 100)
				far := c.foreign(fs)
				b := storetest.MustOpen(t, fs, dir)
				b.Send(k, 300)
				b.Sync()
				b.Close()
				if !own {
					require.NoError(t, fs.Remove(filepath.Join(checkpoints, checkpoint.Name(first))))
				}
				copyNewest(t, far, fs)

				var said bytes.Buffer
				o := options(fs)
				o.Log = slog.New(slog.NewTextHandler(&said, nil))
				s, err := store.Open(o)
				require.NoError(t, err)
				from := record.Pos(0)
				if own {
					from = first
					require.Equal(t, first, s.Checkpoint().Pos, "the one before")
				} else {
					require.Nil(t, s.Checkpoint())
				}
				_, err = s.Log().Recover(from, nopApply)
				require.NoError(t, err)
				require.Contains(t, said.String(), c.say)
				require.EqualValues(t, 1, s.SetAside())
				require.NoError(t, s.Close())
				b = storetest.MustOpen(t, fs, dir)
				require.Zero(t, b.Store.SetAside(), "no start meets it again")
				b.Require(k, 400)
				b.Close()
			})
		}
	}
}

// TestCheckpointAheadOfTheLog: a log that is shorter than its checkpoint has lost what was promised, unless somebody
// has put an older copy there. Nobody can tell, so it is refused with both.
//
//fault:damage the log was brought back from a copy that is older than the checkpoints => the start is refused and says what to do
func TestCheckpointAheadOfTheLog(t *testing.T) {
	k := queue.Key{Topic: 1}
	fs := memfs.New()
	written(t, fs, k, 50)
	old := fs.Crash(rand.New(rand.NewPCG(1, 1)), 1)
	written(t, fs, k, 50)
	copyNewest(t, fs, old)
	_, err := storetest.Open(t, old, dir)
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
	require.ErrorContains(t, err, "as the newest checkpoint of the views says; if an older copy of the log was put here on purpose, move that away")
	names, err := checkpoint.List(old, checkpoints)
	require.NoError(t, err)
	require.NoError(t, old.Remove(filepath.Join(checkpoints, names[len(names)-1])))
	b := storetest.MustOpen(t, old, dir)
	b.Require(k, 50)
	b.Close()
}

// TestDamageBelowTheCheckpoint: where the record below a checkpoint is damaged, it is the log that is wrong.
//
//fault:damage the record just below the newest checkpoint is damaged => refused with the place; told to skip it, the start goes on from the checkpoint
func TestDamageBelowTheCheckpoint(t *testing.T) {
	k := queue.Key{Topic: 1}
	fs := memfs.New()
	b := storetest.MustOpen(t, fs, dir)
	b.Send(k, 50)
	last := b.Store.Log().Tail()
	require.NoError(t, b.Checkpoint())
	b.Send(k, 5)
	b.Sync()
	b.Close()
	f, err := fs.Open(filepath.Join(dir, store.LogDir, segment.Name(0)))
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{0xff, 0xff}, int64(last.Pos)+record.HeaderSize+3)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	_, err = storetest.Open(t, fs, dir)
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
	require.ErrorContains(t, err, segment.Name(0))
	o := options(fs)
	o.SkipDamage = true
	s, err := store.Open(o)
	require.NoError(t, err)
	require.Equal(t, last.End, s.Checkpoint().Pos)
	n := 0
	_, err = s.Log().Recover(last.End, func(record.Record) error { n++; return nil })
	require.NoError(t, err)
	require.Equal(t, 5, n)
	require.Len(t, s.Log().Holes(), 1)
	require.Equal(t, last.Pos, s.Log().Holes()[0].From)
	require.NoError(t, s.Close())

	s = open(t, fs) // the hole is known by now
	require.Equal(t, last.End, s.Checkpoint().Pos)
	require.NoError(t, s.Close())
}

// TestSmallFilesEveryBit: no bit of what a directory promised, or of whose it is, can be another one unnoticed.
//
//fault:damage a bit of the files that say whose a directory is, or what it promised, is flipped => the start is refused, or they say the same
func TestSmallFilesEveryBit(t *testing.T) {
	fs := memfs.New()
	b := storetest.MustOpen(t, fs, dir)
	require.NoError(t, b.Store.Bind("c1", "a", 1))
	require.NoError(t, b.Store.Promise(17, 30))
	was := b.Store.Identity()
	b.Close()
	refused := 0
	for _, name := range []string{"identity.json", "promise.json"} {
		path := filepath.Join(dir, name)
		good, err := vfs.ReadFile(fs, path)
		require.NoError(t, err)
		for i := range 8 * len(good) {
			bad := bytes.Clone(good)
			bad[i/8] ^= 1 << (i % 8)
			require.NoError(t, vfs.ReplaceFile(fs, path, bad))
			s, err := store.Open(options(fs))
			if err != nil {
				require.Contains(t, err.Error(), name)
				refused++
				continue
			}
			epoch, incarnation := s.Promised()
			require.Equal(t, was, s.Identity(), "%s", bad)
			require.EqualValues(t, []uint64{17, 30}, []uint64{uint64(epoch), incarnation}, "%s", bad)
			require.NoError(t, s.Close())
		}
		require.NoError(t, vfs.ReplaceFile(fs, path, good))
	}
	require.Greater(t, refused, 500)
}
