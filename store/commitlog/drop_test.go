package commitlog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// removals collects the files that are gone for good.
type removals struct {
	mu    sync.Mutex
	names []string
	bytes int64
}

func (r *removals) options(fs vfs.FS) commitlog.Options {
	o := options(fs)
	o.Events.SegmentRemoved = func(path string, bytes int64) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.names, r.bytes = append(r.names, filepath.Base(path)), r.bytes+bytes
	}
	return o
}

func (r *removals) wait(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.names) >= n
	}, 10*time.Second, time.Millisecond, "files removed")
}

func goneName(base record.Pos) string { return fmt.Sprintf("%020d%s", base, commitlog.GoneSuffix) }

// filled appends two records to each of n segments and one to the next, all durable.
func filled(t *testing.T, l *commitlog.Log, n int) []entry {
	t.Helper()
	var all []entry
	for i := range 2*n + 1 {
		all = append(all, mustAppend(t, l, false, body(i, segBytes/2-record.HeaderSize))...)
	}
	require.NoError(t, l.Sync())
	return all
}

func from(all []entry, pos record.Pos) []entry {
	for len(all) > 0 && all[0].pos < pos {
		all = all[1:]
	}
	return all
}

func TestDropBefore(t *testing.T) {
	fs, gone := memfs.New(), &removals{}
	l, _ := mustStart(t, gone.options(fs))
	all := filled(t, l, 4)

	bytes, err := l.DropBefore(segBytes - 1)
	require.NoError(t, err)
	require.Zero(t, bytes, "the first one has a byte at it")
	bytes, err = l.DropBefore(2*segBytes + 100)
	require.NoError(t, err)
	require.EqualValues(t, 2*segBytes, bytes)
	require.EqualValues(t, 2*segBytes, l.First())
	gone.wait(t, 2)
	require.Equal(t, []string{goneName(0), goneName(segBytes)}, gone.names)
	require.EqualValues(t, 2*segBytes, gone.bytes)
	require.Zero(t, l.Leaving())

	_, _, err = l.Read(all[3].pos, all[3].size)
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
	require.ErrorContains(t, err, "was deleted")
	err = l.Scan(all[3].pos, func(record.Record) error { return nil })
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
	_, ref, err := l.Read(all[4].pos, all[4].size)
	require.NoError(t, err)
	ref.Release()

	bytes, err = l.DropBefore(l.Durable())
	require.NoError(t, err)
	require.EqualValues(t, 2*segBytes, bytes, "the newest one stays")
	require.EqualValues(t, 4*segBytes, l.First())
	_, err = l.DropBefore(l.Durable() + 8)
	require.True(t, mqerr.Is(err, mqerr.Internal), "%v: only what is durable may go", err)
	gone.wait(t, 4)
	require.NoError(t, l.Close())
	_, err = l.DropBefore(0)
	require.Error(t, err)

	l, found := mustStart(t, options(fs))
	requireSame(t, from(all, 4*segBytes), found, "after a start")
	require.EqualValues(t, 4*segBytes, l.First())
	_, _, err = recoverFrom(mustOpen(t, fs), 0)
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v: a start from a deleted position", err)
}

func mustOpen(t *testing.T, fs vfs.FS) *commitlog.Log {
	t.Helper()
	l, err := commitlog.Open(options(fs))
	require.NoError(t, err)
	t.Cleanup(func() { l.Kill() })
	return l
}

func TestSegments(t *testing.T) {
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	require.Equal(t, []commitlog.SegmentInfo{{End: segBytes, FirstTime: -1, LastTime: -1}}, l.Segments())
	all := filled(t, l, 2) // the time of a record is its position
	want := []commitlog.SegmentInfo{
		{Base: 0, End: segBytes, FirstTime: 0, LastTime: segBytes},
		{Base: segBytes, End: 2 * segBytes, FirstTime: segBytes, LastTime: 2 * segBytes},
		{Base: 2 * segBytes, End: 3 * segBytes, FirstTime: 2 * segBytes, LastTime: int64(all[4].pos)},
	}
	require.Equal(t, want, l.Segments())
	_, err := l.DropBefore(segBytes)
	require.NoError(t, err)
	require.Equal(t, want[1:], l.Segments())
	require.NoError(t, l.Close())

	l = mustOpen(t, fs)
	_, _, err = recoverFrom(l, all[4].end())
	require.NoError(t, err)
	want[2].LastTime = -1 // nothing was read of it yet
	require.Equal(t, want[1:], l.Segments())

	require.NoError(t, l.Close())
	poke(t, fs, segBytes, segBytes+record.HeaderSize+3)
	l, err = commitlog.Open(skipping(fs))
	require.NoError(t, err)
	defer l.Kill()
	_, _, err = recoverFrom(l, all[4].pos)
	require.NoError(t, err)
	behind := int64(l.Holes()[0].To)
	require.Equal(t, []int64{behind, 2 * segBytes}, []int64{l.Segments()[0].FirstTime, l.Segments()[0].LastTime}, "of a record that is lost, the one behind it tells")
}

// TestReadersKeepADroppedSegment: a record that was read, and a scan that is inside.
func TestReadersKeepADroppedSegment(t *testing.T) {
	fs, gone := memfs.New(), &removals{}
	o := gone.options(fs)
	o.HotSegments = 10
	l, _ := mustStart(t, o)
	all := filled(t, l, 3)
	r, ref, err := l.Read(all[0].pos, all[0].size)
	require.NoError(t, err)

	var seen []entry
	err = l.Scan(all[2].pos, func(r record.Record) error {
		if seen = append(seen, all[2+len(seen)]); len(seen) == 1 {
			_, err := l.DropBefore(3 * segBytes)
			require.NoError(t, err)
			gone.wait(t, 1)
			require.Equal(t, []string{goneName(2 * segBytes)}, gone.names, "those without readers go first")
			require.EqualValues(t, 2*segBytes, l.Leaving())
		}
		require.Equal(t, seen[len(seen)-1].body, r.Body)
		return nil
	})
	require.Len(t, seen, 2, "to the end of the file")
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
	gone.wait(t, 2)
	require.EqualValues(t, segBytes, l.Leaving())
	info, err := fs.Stat(filepath.Join(dir, goneName(0)))
	require.NoError(t, err)
	require.EqualValues(t, segBytes, info.Size, "nothing is cut off below a reader")
	require.Equal(t, all[0].body, r.Body)
	ref.Release()
	gone.wait(t, 3)
	require.Zero(t, l.Leaving())
}

// TestDropRate: the space comes back in steps, and a close does not wait for it.
func TestDropRate(t *testing.T) {
	fs, gone := memfs.New(), &removals{}
	o := gone.options(fs)
	o.SegmentBytes, o.DropRate = 4<<20, 1
	l, _ := mustStart(t, o)
	for i := range 3 {
		mustAppend(t, l, false, body(i, 3<<20))
	}
	require.NoError(t, l.Sync())
	_, err := l.DropBefore(8 << 20)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return l.Leaving() == 7<<20 }, 10*time.Second, time.Millisecond)
	require.NoError(t, l.Close())
	require.Empty(t, gone.names)
	info, err := fs.Stat(filepath.Join(dir, goneName(0)))
	require.NoError(t, err)
	require.EqualValues(t, 3<<20, info.Size)

	o.DropRate = -1
	_, err = commitlog.Open(o)
	require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
	o.DropRate = 0
	l, found := mustStart(t, o)
	require.Len(t, found, 1)
	require.EqualValues(t, 8<<20, l.First())
	require.Empty(t, leftovers(t, fs), "a start removes them")
}

func leftovers(t *testing.T, fs vfs.FS) (left []string) {
	t.Helper()
	names, err := fs.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, commitlog.GoneSuffix) {
			left = append(left, name)
		}
	}
	return left
}

// TestManyLeftovers: a start does not remove any number of files by itself.
func TestManyLeftovers(t *testing.T) {
	fs, gone := memfs.New(), &removals{}
	l, _ := mustStart(t, options(fs))
	all := filled(t, l, 30)
	require.NoError(t, l.Close())
	for i := range record.Pos(25) {
		path := filepath.Join(dir, fmt.Sprintf("%020d", i*segBytes))
		if i > 2 { // the power took the first ones' new names
			require.NoError(t, fs.Rename(path, path+commitlog.GoneSuffix))
		}
	}
	l, found := mustStart(t, gone.options(fs))
	requireSame(t, from(all, 25*segBytes), found, "what is left")
	gone.wait(t, 25-16)
	require.Zero(t, l.Leaving())
	require.Empty(t, leftovers(t, fs))
}

// TestPowerCutWhileDropping cuts the power at every operation of a drop, and at every operation of the start
// after it: there is never a gap, and nothing from the position on is lost.
func TestPowerCutWhileDropping(t *testing.T) {
	for cut := 1; ; cut++ {
		fs, gone := memfs.New(), &removals{}
		l, _ := mustStart(t, gone.options(fs))
		all := filled(t, l, 4)
		fs.CutPower(cut)
		_, err := l.DropBefore(3 * segBytes)
		if err == nil {
			require.Eventually(t, func() bool { return l.Leaving() == 0 || off(fs) }, 10*time.Second, time.Millisecond)
		}
		hit := off(fs)
		l.Kill()
		for _, keep := range []float64{0, 0.3, 0.5, 0.7, 1} {
			for seed := range uint64(4) {
				startCutShort(t, fs.Crash(rand.New(rand.NewPCG(seed, uint64(keep*10))), keep), all, fmt.Sprintf("cut %d, keep %v, seed %d", cut, keep, seed))
			}
		}
		if !hit {
			require.NoError(t, err)
			return
		}
	}
}

// startCutShort starts a log whose power fails at the first operation of the start, then at the second of the
// next one, and so on until a start is done.
func startCutShort(t *testing.T, fs *memfs.FS, all []entry, msg string) {
	t.Helper()
	for cut := 1; ; cut++ {
		fs.CutPower(cut)
		l, entries, err := start(options(fs))
		if errors.Is(err, memfs.ErrPowerLoss) {
			fs = fs.Crash(rand.New(rand.NewPCG(uint64(cut), 3)), 0.5)
			continue
		}
		require.NoError(t, err, msg)
		first := l.First()
		require.LessOrEqual(t, first, record.Pos(3*segBytes), msg)
		requireSame(t, from(all, first), entries, msg)
		l.Kill()
		fs.Restart()
		require.Empty(t, leftovers(t, fs), msg)
		return
	}
}

// off tells whether the power was cut.
func off(fs *memfs.FS) bool {
	_, err := fs.Stat(dir)
	return errors.Is(err, memfs.ErrPowerLoss)
}

// TestDropFaults fails operations of a drop: the log goes on, and a start finds no gap.
func TestDropFaults(t *testing.T) {
	for _, c := range []struct {
		op    faultfs.Op
		again bool // the next call does it
	}{{faultfs.OpRename, true}, {faultfs.OpSyncDir, false}} {
		for nth := 1; ; nth++ {
			mem := memfs.New()
			fs, gone := faultfs.Wrap(mem), &removals{}
			l, _ := mustStart(t, gone.options(fs))
			all := filled(t, l, 4)
			require.Eventually(t, func() bool { return l.Room() >= segBytes }, time.Minute, time.Millisecond, "the next file is there: its making must not meet the fault")
			fs.Set(faultfs.Fault{Op: c.op, Nth: nth})
			_, err := l.DropBefore(3 * segBytes)
			if !fs.Hit() {
				require.NoError(t, err)
				break
			}
			require.ErrorIs(t, err, faultfs.ErrInjected, "%v %d", c.op, nth)
			require.EqualValues(t, 3*segBytes, l.First())
			all = append(all, mustAppend(t, l, false, body(99, 100))...)
			require.NoError(t, l.Sync())
			_, err = l.DropBefore(3 * segBytes)
			if c.again {
				require.NoError(t, err)
				gone.wait(t, 3)
			} else {
				require.ErrorIs(t, err, faultfs.ErrInjected, "nobody knows which names are durable")
				require.Empty(t, gone.names)
			}
			l.Kill()
			for seed := range uint64(20) {
				l, found, err := start(options(mem.Crash(rand.New(rand.NewPCG(seed, 1)), 0.5)))
				require.NoError(t, err)
				requireSame(t, from(all, l.First()), found, "after a crash")
				require.LessOrEqual(t, l.First(), record.Pos(3*segBytes))
				l.Kill()
			}
		}
	}
}
