package store_test

import (
	"bytes"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "data"

func open(t *testing.T, fs vfs.FS) *store.Store {
	t.Helper()
	s, err := store.Open(options(fs))
	require.NoError(t, err)
	return s
}

func options(fs vfs.FS) store.Options { return storetest.Options(fs, dir) }

func nopApply(record.Record) error { return nil }

// refused opens a store that must not open, and returns the sentence.
func refused(t *testing.T, fs vfs.FS, kind mqerr.Kind) string {
	t.Helper()
	_, err := store.Open(options(fs))
	require.Error(t, err)
	require.Equal(t, kind, mqerr.KindOf(err), "%v", err)
	lock, lockErr := fs.Lock(filepath.Join(dir, store.LockName))
	require.NoError(t, lockErr, "a refused start keeps the lock")
	require.NoError(t, lock.Close())
	return err.Error()
}

func TestBind(t *testing.T) {
	fs := memfs.New()
	s := open(t, fs)
	id := s.Identity()
	require.NotEqual(t, store.UUID{}, id.UUID)
	require.Empty(t, id.ClusterID)
	require.NoError(t, s.Bind("c1", "a", 1))
	require.NoError(t, s.Bind("c1", "a", 1))
	require.NoError(t, s.Close())

	s = open(t, fs)
	require.Equal(t, store.Identity{Format: 1, UUID: id.UUID, ClusterID: "c1", Shard: "a", Replica: 1}, s.Identity())
	for _, other := range []struct {
		cluster, shard string
		replica        uint32
		say            string
	}{{"c2", "a", 1, "belongs to cluster c1"}, {"c1", "b", 1, "replica 1 of broker group a"}, {"c1", "a", 2, "replica 1 of broker group a"}} {
		err := s.Bind(other.cluster, other.shard, other.replica)
		require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
		require.ErrorContains(t, err, other.say)
		require.ErrorContains(t, err, "check --")
	}
	require.NoError(t, s.Close())
}

//fault:damage the files that say whose a directory is, or what it promised, are missing, damaged or of a newer release => the start is refused with what to do, and nothing is changed
func TestRefusedDirectories(t *testing.T) {
	write := func(fs vfs.FS, name, text string) {
		require.NoError(t, vfs.ReplaceFile(fs, filepath.Join(dir, name), []byte(text)))
	}
	fresh := func() *memfs.FS {
		fs := memfs.New()
		storetest.MustOpen(t, fs, dir).CloseClean()
		return fs
	}
	fs := fresh()
	write(fs, "identity.json", `{"format": 2, "uuid": "00112233445566778899aabbccddeeff"}`)
	require.Contains(t, refused(t, fs, mqerr.Unsupported), "start the release of perigee that wrote it")
	write(fs, "identity.json", `{"format": 1, "uuid": "001122"}`)
	require.Contains(t, refused(t, fs, mqerr.Corrupt), "bring it back")
	write(fs, "identity.json", ``)
	require.Contains(t, refused(t, fs, mqerr.Corrupt), "damaged")
	write(fs, "identity.json", `{}`)
	require.Contains(t, refused(t, fs, mqerr.Corrupt), "format 0")
	require.NoError(t, fs.Remove(dir+"/identity.json"))
	require.Contains(t, refused(t, fs, mqerr.Corrupt), "holds a log but no identity.json")

	fs = fresh()
	write(fs, "promise.json", `{"epoch": `)
	require.Contains(t, refused(t, fs, mqerr.Corrupt), "promise.json is damaged")
	require.NoError(t, fs.Remove(dir+"/promise.json"))
	s := open(t, fs) // the refused start has not cost the marker
	_, err := s.Log().Recover(s.Checkpoint().Pos, nopApply)
	require.NoError(t, err)
	require.True(t, s.Clean())
	require.NoError(t, s.Close())
}

func TestPromise(t *testing.T) {
	fs := memfs.New()
	s := open(t, fs)
	epoch, incarnation := s.Promised()
	require.Zero(t, epoch)
	require.Zero(t, incarnation)
	require.NoError(t, s.Promise(5, 9))
	require.NoError(t, s.Promise(5, 9))
	require.NoError(t, s.Promise(5, 10))
	require.True(t, mqerr.Is(s.Promise(4, 11), mqerr.Fenced))
	require.True(t, mqerr.Is(s.Promise(6, 9), mqerr.Fenced))

	s = open(t, fs.Crash(rand.New(rand.NewPCG(1, 1)), 0)) // it was durable when Promise returned
	epoch, incarnation = s.Promised()
	require.Equal(t, []uint64{5, 10}, []uint64{uint64(epoch), incarnation})
	require.NoError(t, s.Close())
}

// everyCut runs act with the power cut at each of its operations in turn, and gives what Crash left to
// look: with the error of act, nil once it got through.
func everyCut(t *testing.T, prepare func() *memfs.FS, act func(fs *memfs.FS) error, look func(found *memfs.FS, err error)) {
	t.Helper()
	for nth := 1; ; nth++ {
		var err error
		for seed := range uint64(6) {
			fs := prepare()
			fs.CutPower(nth)
			err = act(fs)
			look(fs.Crash(rand.New(rand.NewPCG(seed, uint64(nth))), float64(seed%3)/2), err)
			if t.Failed() {
				t.Fatalf("operation %d seed %d", nth, seed)
			}
		}
		if err == nil {
			require.Greater(t, nth, 1)
			return
		}
	}
}

//fault:power the power goes at each operation of the first start of a directory => the next start works, and knows what was answered
func TestPowerLossInFirstOpenAndBind(t *testing.T) {
	everyCut(t, memfs.New, func(fs *memfs.FS) error {
		s, err := store.Open(options(fs))
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		if err := s.Bind("c1", "a", 1); err != nil {
			return err
		}
		return s.Promise(3, 3)
	}, func(found *memfs.FS, err error) {
		s := open(t, found)
		id := s.Identity()
		epoch, _ := s.Promised()
		if err == nil {
			require.Equal(t, "c1", id.ClusterID)
			require.EqualValues(t, 3, epoch)
		}
		require.NotEqual(t, store.UUID{}, id.UUID)
		require.NoError(t, s.Bind("c1", "a", 1))
		require.NoError(t, s.Promise(3, 3))
		require.NoError(t, s.Close())
	})
}

// TestMarkerVouchesOnce cuts the power at each operation of a start after a clean stop: once something
// was appended the marker never says clean again, even if its removal had to be repeated.
func TestMarkerVouchesOnce(t *testing.T) {
	k := queue.Key{Topic: 1}
	everyCut(t, func() *memfs.FS {
		fs := memfs.New()
		b := storetest.MustOpen(t, fs, dir)
		b.Send(k, 3)
		b.CloseClean()
		return fs
	}, func(fs *memfs.FS) error {
		b, err := storetest.Open(t, fs, dir)
		if b != nil {
			_ = b.Store.Close()
		}
		return err
	}, func(found *memfs.FS, err error) {
		s := open(t, found)
		_, recovered := s.Log().Recover(s.Checkpoint().Pos, nopApply)
		require.NoError(t, recovered)
		if err == nil {
			require.False(t, s.Clean())
		}
		if s.Clean() {
			require.Equal(t, s.Checkpoint().Pos, s.Log().Written(), "clean, but something was appended")
		}
		require.NoError(t, s.Close())
	})
}

// TestMarkerIsGoneBeforeTheFirstAppend loses what was appended and shown, but not synced: the log is as
// the marker says, and yet a suffix of it is gone.
func TestMarkerIsGoneBeforeTheFirstAppend(t *testing.T) {
	fs := memfs.New()
	storetest.MustOpen(t, fs, dir).CloseClean()
	s := open(t, fs)
	_, err := s.Log().Recover(s.Checkpoint().Pos, nopApply)
	require.NoError(t, err)
	require.True(t, s.Clean())
	b := s.Log().NewBatch()
	b.Begin(record.Header{Type: record.TypeEpoch, Epoch: 9, Time: 1 << 42}, 8)
	b.Seal()
	require.NoError(t, s.Log().Write(b))
	found := fs.Crash(rand.New(rand.NewPCG(1, 1)), 0)
	require.NoError(t, s.Close())

	s = open(t, found)
	_, err = s.Log().Recover(s.Checkpoint().Pos, nopApply)
	require.NoError(t, err)
	require.False(t, s.Clean())
	require.NoError(t, s.Close())
}

func TestMarkerOfAnotherLogIsNotClean(t *testing.T) {
	for name, text := range map[string]string{
		"other end": `{"incarnation":1,"end":8,"last":0,"crc":1}`, "other record": "", "damaged": `{"incarn`, "absurd": `{"end":5,"last":9}`,
	} {
		fs := memfs.New()
		b := storetest.MustOpen(t, fs, dir)
		b.Send(queue.Key{Topic: 1}, 3)
		b.CloseClean()
		path := dir + "/clean.json"
		was, err := vfs.ReadFile(fs, path)
		require.NoError(t, err)
		if text == "" {
			text = strings.Replace(string(was), `"crc":`, `"crc":1`, 1)
		}
		require.NoError(t, vfs.ReplaceFile(fs, path, []byte(text)))
		s := open(t, fs)
		_, err = s.Log().Recover(s.Checkpoint().Pos, nopApply)
		require.NoError(t, err)
		require.False(t, s.Clean(), name)
		require.NoError(t, s.Close())
	}
}

//fault:damage the newest checkpoint is damaged => the one before is taken, or the log from its begin
func TestDamagedCheckpointIsSetAside(t *testing.T) {
	fs := memfs.New()
	k := queue.Key{Topic: 1}
	b := storetest.MustOpen(t, fs, dir)
	b.Send(k, 200)
	require.NoError(t, b.Checkpoint())
	first := b.Store.Log().Written()
	b.Send(k, 200)
	require.NoError(t, b.Checkpoint())
	newest := filepath.Join(dir, store.CheckpointDir, checkpoint.Name(b.Store.Log().Written()))
	b.Close()
	data, err := vfs.ReadFile(fs, newest)
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	require.NoError(t, vfs.ReplaceFile(fs, newest, data))

	var said bytes.Buffer
	o := options(fs)
	o.Log = slog.New(slog.NewTextHandler(&said, nil))
	s, err := store.Open(o)
	require.NoError(t, err)
	require.Equal(t, first, s.Checkpoint().Pos)
	require.Empty(t, said.String(), "nothing is changed before the log is found to be well")
	_, err = s.Log().Recover(first, nopApply)
	require.NoError(t, err)
	require.Contains(t, said.String(), "set aside")
	require.NoError(t, s.Close())
	b = storetest.MustOpen(t, fs, dir)
	require.EqualValues(t, 200, b.Replayed)
	b.Require(k, 400)
	b.CloseClean()
}

//fault:damage all files of views are deleted => they are rebuilt from the log
func TestViewsMayBeDeleted(t *testing.T) {
	storetest.Backends(t, func(t *testing.T, fs vfs.FS, dir string) {
		k := queue.Key{Topic: 1}
		b := storetest.MustOpen(t, fs, dir)
		b.Send(k, 500)
		b.CloseClean()
		for _, view := range []string{store.QueueDir, store.CheckpointDir} {
			names, err := fs.List(filepath.Join(dir, view))
			require.NoError(t, err)
			require.NotEmpty(t, names)
			for _, n := range names {
				require.NoError(t, fs.Remove(filepath.Join(dir, view, n)))
			}
			b = storetest.MustOpen(t, fs, dir)
			require.GreaterOrEqual(t, b.Replayed, int64(500), "without %s", view)
			b.Require(k, 500)
			b.CloseClean()
		}
	})
}

//fault:storage fdatasync fails => no checkpoint says more than the log has
func TestFailedSyncSavesNoCheckpoint(t *testing.T) {
	mem := memfs.New()
	fs := faultfs.Wrap(mem)
	k := queue.Key{Topic: 1}
	b := storetest.MustOpen(t, fs, dir)
	b.Send(k, 150)
	b.Sync()
	fs.Set(faultfs.Fault{Op: faultfs.OpSync, Nth: 1, Path: store.QueueDir})
	require.ErrorIs(t, b.Checkpoint(), faultfs.ErrInjected)
	require.ErrorIs(t, b.Checkpoint(), faultfs.ErrInjected, "what is on disk is unknown from then on")
	b.Close()
	b = storetest.MustOpen(t, mem, dir)
	require.EqualValues(t, 151, b.Replayed)
	b.Require(k, 150)
	b.Close()
}

// TestPowerLossUnderWork cuts the power at a random operation of a run with sends, syncs, checkpoints
// and restarts. Every message that was synced is found, in its place.
//
//fault:power the power goes at any operation under sends, syncs, checkpoints and restarts => every message that was synced is in its place
func TestPowerLossUnderWork(t *testing.T) {
	for seed := range uint64(90) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := work{t: t, rng: rng, fs: memfs.New(), synced: map[queue.Key]int{}}
		for range 3 {
			w.run()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

type work struct {
	t      *testing.T
	rng    *rand.Rand
	fs     *memfs.FS
	synced map[queue.Key]int // messages that must be there
}

// run goes on until the power fails, and looks at what is left.
func (w *work) run() {
	w.fs.CutPower(1 + w.rng.IntN(150))
	for w.session() == nil {
	}
	w.fs = w.fs.Crash(w.rng, []float64{0, 0.5, 1}[w.rng.IntN(3)])
	b, err := storetest.Open(w.t, w.fs, dir)
	require.NoError(w.t, err)
	defer b.Close()
	for k, n := range w.synced {
		_, hi := b.Store.Queues().Bounds(k)
		require.GreaterOrEqual(w.t, int(hi), n, "messages of %v were lost", k)
		b.Require(k, int(hi))
		w.synced[k] = int(hi)
	}
}

// session is one process; the error is the power cut.
func (w *work) session() (err error) {
	b, err := storetest.Open(w.t, w.fs, dir)
	if err != nil {
		return err
	}
	defer func() { _ = b.Store.Close() }()
	written := map[queue.Key]int{}
	for range 12 {
		k := queue.Key{Topic: 1, Queue: record.QueueID(w.rng.IntN(2))}
		for range 1 + w.rng.IntN(120) {
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
		if w.rng.IntN(3) == 0 {
			if err := b.Checkpoint(); err != nil {
				return err
			}
		}
	}
	return nil
}
