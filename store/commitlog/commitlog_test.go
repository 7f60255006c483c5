package commitlog_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

func TestAppendReadReopen(t *testing.T) {
	fs := memfs.New()
	l, found := mustStart(t, options(fs))
	require.Empty(t, found)
	require.Zero(t, l.First())
	var all []entry
	for i := range 100 { // several segments
		all = append(all, mustAppend(t, l, i%3 == 0, body(i, 0), body(i, 1+i*7%900), body(i, 700))...)
		require.Equal(t, all[len(all)-1].end(), l.Written())
	}
	require.Greater(t, l.Written(), record.Pos(4*segBytes))
	require.Zero(t, l.Durable())
	require.NoError(t, l.Sync())
	require.Equal(t, l.Written(), l.Durable())
	check := func(l *commitlog.Log) {
		t.Helper()
		hot := 0
		for _, e := range all {
			for _, size := range []uint32{e.size, 0} {
				r, ref, err := l.Read(e.pos, size)
				require.NoError(t, err)
				require.Equal(t, e.body, append([]byte{}, r.Body...))
				require.Equal(t, e.pos, r.Pos)
				require.Equal(t, record.TypeMsg, r.Type)
				ref.Release()
			}
			if l.Hot(e.pos) {
				hot++
			}
		}
		require.Positive(t, hot)
		require.Less(t, hot, len(all))
		i := 0
		require.NoError(t, l.Scan(0, func(r record.Record) error {
			if r.Type == record.TypePad {
				return nil
			}
			require.Equal(t, all[i].pos, r.Pos)
			i++
			return nil
		}))
		require.Equal(t, len(all), i)
	}
	check(l)
	last := l.Last()
	require.Equal(t, all[len(all)-1].pos, last.Pos)
	require.NoError(t, l.Close())

	l, found = mustStart(t, options(fs))
	requireSame(t, all, found, "reopened")
	require.Equal(t, last, l.Last())
	check(l)
	all = append(all, mustAppend(t, l, false, body(1, 10))...)
	require.NoError(t, l.Close())

	l, err := commitlog.Open(options(fs))
	require.NoError(t, err)
	from := all[len(all)-5].pos
	found, r, err := recoverFrom(l, from)
	require.NoError(t, err)
	requireSame(t, all[len(all)-5:], found, "from a checkpoint")
	require.Equal(t, commitlog.Recovered{End: all[len(all)-1].end(), Records: 5, Epoch: 1, Time: r.Time, Last: l.Last()}, r)
	require.NoError(t, l.Close())

	o := options(fs)
	o.ReadOnly = true
	before := fs.Ops()
	l, err = commitlog.Open(o)
	require.NoError(t, err)
	n := 0
	require.NoError(t, l.Scan(0, func(record.Record) error { n++; return nil }))
	require.GreaterOrEqual(t, n, len(all))
	promised, err := l.Promised()
	require.NoError(t, err)
	require.Equal(t, all[len(all)-1].end(), promised)
	_, err = l.Recover(0, nil)
	require.Error(t, err)
	require.NoError(t, l.Close())
	require.Equal(t, before, fs.Ops(), "reading changes nothing")
}

// TestSegmentsEndWithARecord tries every size around what fits: there is never room for less than a
// header at the end, and the largest body fits.
func TestSegmentsEndWithARecord(t *testing.T) {
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	var all []entry
	for left := range 150 {
		at := l.Written() % segBytes
		fill := segBytes - int(at) - record.HeaderSize - left
		if fill < 0 {
			fill += segBytes - record.HeaderSize
		}
		all = append(all, mustAppend(t, l, true, body(left, min(fill, l.MaxBody())), body(left, 33))...)
	}
	all = append(all, mustAppend(t, l, true, body(1, l.MaxBody()), body(2, l.MaxBody()), body(3, 0))...)
	require.NoError(t, l.Close())
	_, found := mustStart(t, options(fs))
	requireSame(t, all, found, "reopened")
}

// TestOneWritePerBatch counts system calls: one for a batch, two for one that rolls.
func TestOneWritePerBatch(t *testing.T) {
	fs := faultfs.Wrap(memfs.New())
	l, _ := mustStart(t, options(fs))
	count := func() int { return fs.Count(faultfs.OpWrite, "") }
	before := count()
	mustAppend(t, l, false, body(1, 1000), body(2, 1000), body(3, 1000))
	require.Equal(t, before+1, count())
	before = count()
	mustAppend(t, l, false, body(1, 8000), body(2, 8000))
	require.Equal(t, before+2, count(), "a pad is its header only")
	before = count()
	require.NoError(t, l.Sync())
	require.Equal(t, before+1, count(), "the mark")
	require.NoError(t, l.Sync())
	require.Equal(t, before+1, count(), "nothing to sync")
}

func TestWriteRefusesMistakes(t *testing.T) {
	h := record.Header{Type: record.TypeMsg, Epoch: 2, Time: 10}
	for name, make := range map[string]func(l *commitlog.Log, b *commitlog.Batch){
		"time goes back": func(_ *commitlog.Log, b *commitlog.Batch) {
			b.Begin(record.Header{Type: record.TypeMsg, Epoch: 2, Time: 9}, 1)
		},
		"epoch goes back": func(_ *commitlog.Log, b *commitlog.Batch) {
			b.Begin(record.Header{Type: record.TypeMsg, Epoch: 1, Time: 11}, 1)
		},
		"too long":     func(l *commitlog.Log, b *commitlog.Batch) { b.Begin(h, l.MaxBody()+1) },
		"not sealed":   func(_ *commitlog.Log, b *commitlog.Batch) { b.Begin(h, 1) },
		"begun twice":  func(_ *commitlog.Log, b *commitlog.Batch) { b.Begin(h, 1); b.Begin(h, 1); b.Seal() },
		"sealed twice": func(_ *commitlog.Log, b *commitlog.Batch) { b.Begin(h, 1); b.Seal(); b.Seal() },
		"open chain": func(_ *commitlog.Log, b *commitlog.Batch) {
			more := h
			more.Flags = record.FlagMore
			b.Begin(more, 1)
			b.Seal()
		},
		"stale": func(l *commitlog.Log, b *commitlog.Batch) {
			other := l.NewBatch()
			other.Begin(h, 1)
			other.Seal()
			_ = l.Write(other)
			b.Begin(h, 1)
			b.Seal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := memfs.New()
			l, _ := mustStart(t, options(fs))
			b := l.NewBatch()
			b.Begin(h, 1)
			b.Seal()
			require.NoError(t, l.Write(b))
			b.Reset()
			make(l, b)
			written := l.Written()
			err := l.Write(b)
			require.True(t, mqerr.Is(err, mqerr.Internal), "%v", err)
			require.Equal(t, err, l.Write(l.NewBatch()), "final")
			require.Equal(t, err, l.Sync())
			require.GreaterOrEqual(t, written+100, l.Written())
			l.Kill()
			_, found := mustStart(t, options(fs))
			require.LessOrEqual(t, len(found), 2)
		})
	}
}

func TestWriteBeforeRecoverAndAfterClose(t *testing.T) {
	fs := memfs.New()
	l, err := commitlog.Open(options(fs))
	require.NoError(t, err)
	require.Error(t, l.Write(l.NewBatch()))
	_, _, err = recoverFrom(l, 0)
	require.NoError(t, err)
	require.NoError(t, l.Write(l.NewBatch()))
	_, _, err = recoverFrom(l, 0)
	require.Error(t, err, "twice")
	require.NoError(t, l.Close())
	require.Error(t, l.Write(l.NewBatch()))
	_, _, err = l.Read(0, 0)
	require.Error(t, err)
}

func TestOptions(t *testing.T) {
	for _, bytes := range []int64{1, 4095, 4097, 3 << 30, -4096} {
		o := options(memfs.New())
		o.SegmentBytes = bytes
		_, err := commitlog.Open(o)
		require.True(t, mqerr.Is(err, mqerr.Invalid), "%d: %v", bytes, err)
	}
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	all := mustAppend(t, l, false, body(1, 9000))
	require.NoError(t, l.Close())
	o := options(fs)
	o.SegmentBytes = 64 << 10 // existing segments keep their length
	l, found := mustStart(t, o)
	requireSame(t, all, found, "other segment size")
	all = append(all, mustAppend(t, l, true, body(2, 9000), body(3, 60000), body(4, 60000))...)
	require.NoError(t, l.Close())
	_, found = mustStart(t, options(fs))
	requireSame(t, all, found, "back again")
}

// TestFailureIsFinal fails a write and a sync: nothing is appended any more, Durable stays.
//
//fault:storage a write or fdatasync of the log fails => nothing is appended any more, and nothing more counts as durable
func TestFailureIsFinal(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.OpSync, faultfs.OpWrite} {
		t.Run(op.String(), func(t *testing.T) {
			mem := memfs.New()
			fs := faultfs.Wrap(mem)
			o := options(fs)
			var failures atomic.Int32
			o.Events.Failed = func(error) { failures.Add(1) }
			l, _ := mustStart(t, o)
			kept := mustAppend(t, l, false, body(1, 100))
			require.NoError(t, l.Sync())
			durable := l.Durable()
			mustAppend(t, l, false, body(2, 100))
			fs.Set(faultfs.Fault{Op: op, Path: "/log/0", Nth: 1, Short: true, Err: errors.New("disk on fire")})
			var err error
			if op == faultfs.OpSync {
				err = l.Sync()
			} else {
				_, err = appendTo(l, 1, false, body(3, 2000))
			}
			require.True(t, fs.Hit())
			require.ErrorContains(t, err, "disk on fire")
			fs.Clear()
			_, again := appendTo(l, 1, false, body(4, 100))
			require.Equal(t, err, again)
			require.Equal(t, err, l.Sync())
			require.Equal(t, err, l.Err())
			require.Equal(t, durable, l.Durable())
			require.EqualValues(t, 1, failures.Load())
			r, ref, err := l.Read(kept[0].pos, kept[0].size)
			require.NoError(t, err, "reading goes on")
			require.Equal(t, kept[0].body, r.Body)
			ref.Release()
			l.Kill()
			_, found := mustStart(t, options(mem))
			requireSame(t, kept, found[:1], "kept")
			require.LessOrEqual(t, len(found), 2, "half a record is none")
		})
	}
}

// TestNextSegmentFails shows that appends go on while the next segment cannot be made, until there is no
// room, and that the preparer tries again.
//
//fault:storage the next file of the log cannot be made => appends go on in the one that is there, and it is tried again
func TestNextSegmentFails(t *testing.T) {
	fs := faultfs.Wrap(memfs.New())
	o := options(fs)
	failed := make(chan error, 100)
	prepared := make(chan record.Pos, 100)
	o.Events.PrepareFailed = func(err error) { failed <- err }
	o.Events.SegmentPrepared = func(base record.Pos, _ time.Duration) { prepared <- base }
	l, _ := mustStart(t, o)
	require.EqualValues(t, segBytes, <-prepared)
	require.Eventually(t, func() bool { return l.Room() == 2*segBytes }, 5*time.Second, time.Millisecond)
	fs.Set(faultfs.Fault{Op: faultfs.OpAllocate, Nth: 1, Err: errors.New("no space")})
	all := mustAppend(t, l, false, body(1, 12000), body(2, 12000)) // in the second segment now
	require.ErrorContains(t, <-failed, "no space")
	require.Less(t, l.Room(), int64(segBytes))
	all = append(all, mustAppend(t, l, false, body(3, 100))...)
	require.EqualValues(t, 2*segBytes, <-prepared, "tried again")
	all = append(all, mustAppend(t, l, false, body(4, 12000))...)
	require.EqualValues(t, 3*segBytes, <-prepared)

	fs.Set(faultfs.Fault{Op: faultfs.OpAllocate, Nth: 1, Always: true, Err: errors.New("no space")})
	all = append(all, mustAppend(t, l, false, body(5, 12000))...)
	require.NoError(t, l.Sync())
	require.EqualValues(t, 4*segBytes, l.Reach(1<<40), "nobody waits for a disk")
	for range 2 {
		_, err := appendTo(l, 1, false, body(6, 12000))
		require.True(t, mqerr.Is(err, mqerr.DiskFull), "%v", err)
		require.ErrorContains(t, err, "no space")
		require.NoError(t, l.Err(), "nothing was written, nothing is broken")
	}
	require.ErrorContains(t, l.Stuck(), "no space")
	fs.Clear()
	require.EqualValues(t, 4*segBytes, <-prepared, "the disk has space again")
	all = append(all, mustAppend(t, l, false, body(7, 12000))...)
	require.NoError(t, l.Sync())
	require.NoError(t, l.Stuck())
	l.Kill()
	fs.Clear()
	_, found := mustStart(t, options(fs))
	requireSame(t, all, found, "kept")
}

// TestReach shows that files for a batch of any size can be had before it is written, and that a log that is
// held makes no further one.
func TestReach(t *testing.T) {
	o := options(memfs.New())
	l, _ := mustStart(t, o)
	require.GreaterOrEqual(t, l.Reach(5*segBytes-100), record.Pos(5*segBytes))
	require.GreaterOrEqual(t, l.Room(), int64(5*segBytes))
	all := mustAppend(t, l, true, body(1, 12000), body(2, 12000), body(3, 12000), body(4, 12000))
	l.Hold(true)
	l.Reach(1 << 20)
	require.ErrorContains(t, l.Stuck(), "last watermark")
	end := l.Reach(1 << 20)
	for i := 5; l.Written()+12500 < end; i++ {
		all = append(all, mustAppend(t, l, false, body(i, 12000))...)
	}
	_, err := appendTo(l, 1, false, body(90, 12000), body(91, 12000))
	require.True(t, mqerr.Is(err, mqerr.DiskFull), "%v", err)
	l.Hold(false)
	require.Eventually(t, func() bool { return l.Stuck() == nil }, time.Minute, time.Millisecond, "it is tried again each second")
	all = append(all, mustAppend(t, l, false, body(92, 12000), body(93, 12000))...)
	require.NoError(t, l.Sync())
	l.Kill()
	_, found := mustStart(t, options(o.FS.(*memfs.FS)))
	requireSame(t, all, found, "kept")
}

func TestReadRefuses(t *testing.T) {
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	all := mustAppend(t, l, false, body(1, 9000), body(2, 9000), body(3, 9000), body(4, 100))
	read := func(pos record.Pos, size uint32) error {
		_, ref, err := l.Read(pos, size)
		if err == nil {
			ref.Release()
		}
		return err
	}
	for _, e := range all {
		require.NoError(t, read(e.pos, e.size))
		require.True(t, mqerr.Is(read(e.pos, e.size+8), mqerr.Corrupt))
		require.True(t, mqerr.Is(read(e.pos+8, e.size), mqerr.Corrupt))
		require.True(t, mqerr.Is(read(e.pos+8, 0), mqerr.Corrupt))
	}
	require.True(t, mqerr.Is(read(l.Written(), 0), mqerr.Corrupt))
	require.True(t, mqerr.Is(read(1<<40, 100), mqerr.Corrupt))
	require.True(t, mqerr.Is(read(-8, 100), mqerr.NotFound))
	require.False(t, l.Hot(all[0].pos))
	require.True(t, l.Hot(all[3].pos))
	for _, e := range []entry{all[0], all[2]} { // cold, hot
		poke(t, fs, e.pos/segBytes*segBytes, e.pos+5000)
		err := read(e.pos, e.size)
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
		require.ErrorContains(t, err, fmt.Sprintf("%020d", e.pos/segBytes*segBytes))
		require.ErrorContains(t, err, fmt.Sprintf("position %d", e.pos))
	}
	require.NoError(t, read(all[3].pos, 0))
}

// TestRefOutlivesLog releases bytes after their segment left the hot ones and the log was closed.
func TestRefOutlivesLog(t *testing.T) {
	o := options(vfs.OS)
	o.Dir = t.TempDir()
	l, _ := mustStart(t, o)
	e := mustAppend(t, l, false, body(1, 5000))[0]
	r, ref, err := l.Read(e.pos, e.size)
	require.NoError(t, err)
	for i := range 5 {
		mustAppend(t, l, false, body(i, 12000))
	}
	require.False(t, l.Hot(e.pos))
	cold, coldRef, err := l.Read(e.pos, e.size)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Equal(t, e.body, r.Body)
	require.Equal(t, e.body, cold.Body)
	ref.Release()
	coldRef.Release()
}

// TestConcurrent writes, syncs and reads at once, on real files; run with -race.
func TestConcurrent(t *testing.T) {
	o := commitlog.Options{Dir: t.TempDir(), SegmentBytes: 64 << 10, HotSegments: 1}
	l, _ := mustStart(t, o)
	var mu sync.Mutex
	var all []entry
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				written := l.Written()
				if err := l.Sync(); err != nil || l.Durable() < written {
					t.Errorf("sync: %v, durable %d of %d", err, l.Durable(), written)
					return
				}
			}
		}
	})
	for range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				mu.Lock()
				n := len(all)
				var e entry
				if n > 0 {
					e = all[(i*7919)%n]
				}
				mu.Unlock()
				if n == 0 {
					continue
				}
				r, ref, err := l.Read(e.pos, e.size)
				if err != nil || string(r.Body) != string(e.body) {
					t.Errorf("read %d: %v", e.pos, err)
					return
				}
				ref.Release()
			}
		})
	}
	for i := range 1500 {
		entries, err := appendTo(l, 1, false, body(i, 100+i%1000), body(i, 50))
		require.NoError(t, err)
		mu.Lock()
		all = append(all, entries...)
		mu.Unlock()
	}
	close(stop)
	wg.Wait()
	require.NoError(t, l.Close())
	_, found := mustStart(t, o)
	requireSame(t, all, found, "reopened")
}
