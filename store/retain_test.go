package store_test

import (
	"bytes"
	"log/slog"
	"maps"
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
	"github.com/perigee-mq/perigee/store/storetest"
)

// removeViews deletes the files of all views.
func removeViews(t *testing.T, fs vfs.FS) {
	t.Helper()
	for _, d := range []string{store.QueueDir, store.CheckpointDir, store.IndexDir, store.DedupDir} {
		names, err := fs.List(filepath.Join(dir, d))
		require.NoError(t, err)
		for _, name := range names {
			require.NoError(t, fs.Remove(filepath.Join(dir, d, name)))
		}
	}
}

// TestViewsMayBeDeletedAfterRetention: what is left of the log is enough.
//
//fault:damage all views are deleted after the oldest segments were => they are rebuilt from a snapshot in the log
func TestViewsMayBeDeletedAfterRetention(t *testing.T) {
	fs := memfs.New()
	a, c := queue.Key{Topic: 1, Queue: 0}, queue.Key{Topic: 1, Queue: 7}
	b := storetest.MustOpen(t, fs, dir)
	b.Send(c, 5)
	for range 6 {
		b.Send(a, 700)
		require.NoError(t, b.Retain(1))
		b.Send(a, 10)
	}
	b.Sync()
	require.Positive(t, b.Store.Log().First())
	bounds := b.Store.Queues().EncodeBounds(nil)
	lo, hi := b.RequireKept(c)
	require.EqualValues(t, []int{5, 5}, []int{int(lo), int(hi)}, "all of it is gone, its offsets go on")
	b.Close()

	removeViews(t, fs)
	b = storetest.MustOpen(t, fs, dir)
	require.Equal(t, bounds, b.Store.Queues().EncodeBounds(nil))
	lo, hi = b.RequireKept(a)
	require.Positive(t, lo)
	require.EqualValues(t, 6*710, hi)
	b.Send(c, 3)
	lo, hi = b.RequireKept(c)
	require.EqualValues(t, []int{5, 8}, []int{int(lo), int(hi)})
	b.CloseClean()
}

// TestCheckpointBelowTheLog is set aside: a newer one was damaged, or was not saved.
//
//fault:damage only an old checkpoint is left, of a part of the log that was deleted => it is set aside, the start goes from a snapshot in the log
func TestCheckpointBelowTheLog(t *testing.T) {
	fs := memfs.New()
	k := queue.Key{Topic: 1, Queue: 0}
	b := storetest.MustOpen(t, fs, dir)
	b.Send(k, 20)
	require.NoError(t, b.Checkpoint())
	names, err := checkpoint.List(fs, filepath.Join(dir, store.CheckpointDir))
	require.NoError(t, err)
	old, err := vfs.ReadFile(fs, filepath.Join(dir, store.CheckpointDir, names[0]))
	require.NoError(t, err)
	b.Send(k, 2000)
	require.NoError(t, b.Retain(2))
	b.Sync()
	bounds := b.Store.Queues().EncodeBounds(nil)
	b.Close()

	removeViews(t, fs)
	require.NoError(t, vfs.ReplaceFile(fs, filepath.Join(dir, store.CheckpointDir, names[0]), old))
	var text bytes.Buffer
	o := options(fs)
	o.Log = slog.New(slog.NewTextHandler(&text, nil))
	s, err := store.Open(o)
	require.NoError(t, err)
	require.Nil(t, s.Checkpoint())
	_, err = s.DropBefore(0)
	require.True(t, mqerr.Is(err, mqerr.Internal), "%v: nothing stands for what is kept", err)
	require.NoError(t, s.Close())
	left, err := checkpoint.List(fs, filepath.Join(dir, store.CheckpointDir))
	require.NoError(t, err)
	require.Equal(t, names[:1], left, "a start that ends early changes nothing")

	b = storetest.MustOpen(t, fs, dir)
	require.Equal(t, bounds, b.Store.Queues().EncodeBounds(nil))
	b.RequireKept(k)
	_, err = fs.Stat(filepath.Join(dir, store.CheckpointDir, checkpoint.AsideName))
	require.NoError(t, err)
	b.Close()
}

// TestDropNeedsACheckpoint: a broker that forgets one loses nothing.
func TestDropNeedsACheckpoint(t *testing.T) {
	b := storetest.MustOpen(t, memfs.New(), dir)
	defer b.Close()
	b.Send(queue.Key{Topic: 1}, 1000)
	require.NoError(t, b.Checkpoint())
	b.Send(queue.Key{Topic: 1}, 2000)
	b.Sync()
	_, err := b.Store.DropBefore(b.Store.Log().Durable())
	require.True(t, mqerr.Is(err, mqerr.Internal), "%v", err)
	require.Zero(t, b.Store.Log().First())
	require.NoError(t, b.Checkpoint())
	_, err = b.Store.DropBefore(2 * storetest.SegmentBytes)
	require.NoError(t, err)
	require.EqualValues(t, 2*storetest.SegmentBytes, b.Store.Log().First())
	require.NoError(t, b.Store.Distrust())
	_, err = b.Store.DropBefore(3 * storetest.SegmentBytes)
	require.True(t, mqerr.Is(err, mqerr.Internal), "%v", err)
}

// TestPowerLossUnderRetention sends, syncs, saves checkpoints and takes steps of retention, and cuts the power at a
// random operation of a step or soon after it. Half of the starts find no view. Every message that was synced and not given up is found.
//
//fault:power the power goes at any operation of a step of retention, and the views may be lost too => no message that is kept is lost, no gap
func TestPowerLossUnderRetention(t *testing.T) {
	dropped := record.Pos(0)
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 4))
		w := retaining{work: work{t: t, rng: rng, fs: memfs.New(), synced: map[queue.Key]int{}}, given: map[queue.Key]record.QueueOffset{}}
		for range 3 {
			w.round()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		dropped += w.dropped
	}
	require.Positive(t, dropped)
	t.Logf("%d segments were deleted", dropped/storetest.SegmentBytes)
}

type retaining struct {
	work
	given   map[queue.Key]record.QueueOffset // offsets below may have been given up
	dropped record.Pos
}

func (w *retaining) round() {
	for w.session() == nil {
	}
	w.fs = w.fs.Crash(w.rng, []float64{0, 0.5, 1}[w.rng.IntN(3)])
	if w.rng.IntN(2) == 0 {
		if names, err := w.fs.List(filepath.Join(dir, store.CheckpointDir)); err == nil && len(names) > 0 {
			removeViews(w.t, w.fs)
		}
	}
	b, err := storetest.Open(w.t, w.fs, dir)
	require.NoError(w.t, err)
	defer b.Close()
	for k, n := range w.synced {
		lo, hi := b.RequireKept(k)
		require.GreaterOrEqual(w.t, int(hi), n, "messages of %v were lost", k)
		require.LessOrEqual(w.t, lo, w.given[k], "more of %v was given up than anybody asked", k)
		w.synced[k] = int(hi)
	}
}

func (w *retaining) session() error {
	b, err := storetest.Open(w.t, w.fs, dir)
	if err != nil {
		return err
	}
	defer func() { _ = b.Store.Close() }()
	written := map[queue.Key]int{}
	for range 12 {
		k := queue.Key{Topic: 1, Queue: record.QueueID(w.rng.IntN(2))}
		for range 1 + w.rng.IntN(300) {
			if err := b.TrySend(k); err != nil {
				return err
			}
			_, hi := b.Store.Queues().Bounds(k)
			written[k] = int(hi)
		}
		if w.rng.IntN(2) == 0 {
			if err := b.Store.Log().Sync(); err != nil {
				return err
			}
			maps.Copy(w.synced, written)
		}
		if w.rng.IntN(4) == 0 {
			if err := b.Checkpoint(); err != nil {
				return err
			}
		}
		if w.rng.IntN(2) == 0 {
			if w.rng.IntN(3) == 0 {
				w.fs.CutPower(1 + w.rng.IntN(50))
			}
			err := b.Retain(w.rng.IntN(4))
			w.dropped = max(w.dropped, b.Store.Log().First())
			maps.Copy(w.given, b.Given)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
