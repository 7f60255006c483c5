package queue

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

const testFileBytes = 8 * ExtentBytes

func small(fs vfs.FS) Options {
	return Options{FS: fs, Dir: "queue", FileBytes: testFileBytes, CacheBytes: 8 * ExtentBytes}
}

func openStore(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	require.NoError(t, err)
	return s
}

// entryAt is the entry that tests append at an offset: different for each queue and offset. Now and then it is
// of a message that was stored long before.
func entryAt(k Key, off record.QueueOffset) Entry {
	n := int64(k.Topic)<<40 + int64(k.Queue)<<32 + int64(off)
	pos := 8 * n
	if off%53 == 7 {
		pos -= 8*int64(min(off, 300)) - 1
	}
	return Entry{Pos: record.Pos(pos), Size: uint32(off)*8 + 48, Time: 1000 + 10*int64(off), TagHash: uint64(n) * 31, GroupHash: uint64(n) * 37}
}

func fill(t testing.TB, s *Store, k Key, to record.QueueOffset) {
	t.Helper()
	_, hi := s.Bounds(k)
	for ; hi < to; hi++ {
		require.NoError(t, s.Append(k, hi, entryAt(k, hi)))
	}
}

// requireQueue reads a whole queue and compares every entry.
func requireQueue(t tester, s *Store, k Key, lo, hi record.QueueOffset) {
	t.Helper()
	gotLo, gotHi := s.Bounds(k)
	require.Equal(t, [2]record.QueueOffset{lo, hi}, [2]record.QueueOffset{gotLo, gotHi}, "bounds of %v", k)
	dst := make([]Entry, hi-lo+5)
	n, err := s.Read(k, lo, dst)
	require.NoError(t, err)
	require.Equal(t, int(hi-lo), n)
	for i, e := range dst[:n] {
		if want := entryAt(k, lo+record.QueueOffset(i)); e != want {
			require.Equal(t, want, e, "%v offset %d", k, lo+record.QueueOffset(i))
		}
	}
	requireLate(t, s, k, lo/2, hi+1, entryAt(k, (lo+hi)/2).Pos)
}

// requireLate compares Late with a look at every entry.
func requireLate(t tester, s *Store, k Key, from, to record.QueueOffset, pos record.Pos) {
	t.Helper()
	lo, hi := s.Bounds(k)
	type found struct {
		off record.QueueOffset
		e   Entry
	}
	var want, got []found
	for off := max(from, lo); off < min(to, hi); off++ {
		if e := entryAt(k, off); e.Pos < pos {
			want = append(want, found{off, e})
		}
	}
	require.NoError(t, s.Late(k, from, to, pos, func(off record.QueueOffset, e Entry) error {
		got = append(got, found{off, e})
		return nil
	}))
	if slices.Equal(want, got) {
		return
	}
	require.Equal(t, want, got, "late ones of %v in [%d, %d) below %d", k, from, to, pos)
}

// checkpoint does what store.Store does with the directory: encode, sync, save, saved.
func checkpoint(t testing.TB, s *Store) []byte {
	t.Helper()
	b, err := s.Encode(nil)
	require.NoError(t, err)
	require.NoError(t, s.Sync())
	require.NoError(t, s.Saved())
	return b
}

func TestAppendAndRead(t *testing.T) {
	s := openStore(t, small(memfs.New()))
	a, b := Key{1, 0}, Key{1, 3}
	fill(t, s, a, 350)
	fill(t, s, b, 7)
	requireQueue(t, s, a, 0, 350)
	requireQueue(t, s, b, 0, 7)
	requireQueue(t, s, Key{9, 9}, 0, 0)

	e, err := s.At(a, 101)
	require.NoError(t, err)
	require.Equal(t, entryAt(a, 101), e)
	_, err = s.At(a, 350)
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
	n, err := s.Read(a, 345, make([]Entry, 3))
	require.NoError(t, err)
	require.Equal(t, 3, n)
}

func TestAppendRefusesAGap(t *testing.T) {
	s := openStore(t, small(memfs.New()))
	k := Key{1, 0}
	for _, c := range []struct {
		k   Key
		off record.QueueOffset
	}{{k, 1}, {k, -1}, {Key{1, -1}, 0}} {
		require.True(t, mqerr.Is(s.Append(c.k, c.off, Entry{}), mqerr.Corrupt), "%v", c)
	}
	require.NoError(t, s.Append(k, 0, entryAt(k, 0)))
	require.True(t, mqerr.Is(s.Append(k, 0, Entry{}), mqerr.Corrupt))
	require.True(t, mqerr.Is(s.Append(k, 2, Entry{}), mqerr.Corrupt))
	requireQueue(t, s, k, 0, 1)
}

func TestSeekTime(t *testing.T) {
	s := openStore(t, small(memfs.New()))
	k := Key{1, 0}
	fill(t, s, k, 300)
	s.DropBefore(k, 20)
	for _, c := range []struct{ ms, want int64 }{{0, 20}, {1200, 20}, {1201, 21}, {1210, 21}, {1010 + 10*101, 102}, {3990, 299}, {3991, 300}} {
		off, err := s.SeekTime(k, c.ms)
		require.NoError(t, err)
		require.Equal(t, record.QueueOffset(c.want), off, "time %d", c.ms)
	}
	off, err := s.SeekTime(Key{2, 0}, 5)
	require.NoError(t, err)
	require.Zero(t, off)
}

func TestStartBehindLostMessages(t *testing.T) {
	for _, at := range []record.QueueOffset{1, 100, 101, 102, 1000} {
		fs := memfs.New()
		s := openStore(t, small(fs))
		k := Key{1, 0}
		require.NoError(t, s.Start(k, at))
		fill(t, s, k, at+150)
		require.NoError(t, s.Start(k, 5), "a queue with messages stays")
		requireQueue(t, s, k, at, at+150)
		_, err := s.At(k, at-1)
		require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)

		again := openStore(t, small(fs))
		require.NoError(t, again.Decode(checkpoint(t, s)))
		requireQueue(t, again, k, at, at+150)
	}
}

func TestDropBefore(t *testing.T) {
	s := openStore(t, small(memfs.New()))
	k := Key{1, 0}
	fill(t, s, k, 500)
	require.Equal(t, 4, s.Stats().Extents)
	s.DropBefore(k, 100)
	requireQueue(t, s, k, 100, 500)
	require.Equal(t, 4, s.Stats().Extents)
	s.DropBefore(k, 50)
	requireQueue(t, s, k, 100, 500)
	s.DropBefore(k, 303)
	requireQueue(t, s, k, 303, 500)
	require.Equal(t, 1, s.Stats().Extents)
	s.DropBefore(k, 1000)
	requireQueue(t, s, k, 500, 500)
	fill(t, s, k, 900)
	requireQueue(t, s, k, 500, 900)
}

func TestExtentsAreReusedOnlyWhenNoCheckpointNamesThem(t *testing.T) {
	s := openStore(t, small(memfs.New()))
	fill(t, s, Key{1, 0}, 10*ExtentEntries)
	checkpoint(t, s)
	s.Drop(1)
	require.Equal(t, 10, s.Stats().Retired)
	checkpoint(t, s) // the one before still names them
	require.Equal(t, 10, s.Stats().Retired)
	fill(t, s, Key{2, 0}, 4*ExtentEntries)
	require.Equal(t, 2, s.Stats().Files)
	checkpoint(t, s)
	require.Equal(t, 0, s.Stats().Retired)
	require.Equal(t, 4, s.Stats().Extents)
	fill(t, s, Key{3, 0}, 10*ExtentEntries)
	require.Equal(t, 2, s.Stats().Files)
	requireQueue(t, s, Key{2, 0}, 0, 4*ExtentEntries)
	requireQueue(t, s, Key{3, 0}, 0, 10*ExtentEntries)
}

func TestEmptyFilesGo(t *testing.T) {
	fs := memfs.New()
	s := openStore(t, small(fs))
	fill(t, s, Key{1, 0}, 40*ExtentEntries)
	require.Equal(t, 6, s.Stats().Files)
	s.Drop(1)
	checkpoint(t, s)
	checkpoint(t, s)
	require.Equal(t, 1, s.Stats().Files)
	names, err := fs.List("queue")
	require.NoError(t, err)
	require.Equal(t, []string{"0000000000.queue"}, names)
	fill(t, s, Key{2, 0}, 20*ExtentEntries)
	requireQueue(t, s, Key{2, 0}, 0, 20*ExtentEntries)
}

func TestTailBytesAreBounded(t *testing.T) {
	o := small(memfs.New())
	o.TailBytes = 20 * 1024
	s := openStore(t, o)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		k := Key{record.TopicID(rng.IntN(50)), record.QueueID(rng.IntN(4))}
		_, hi := s.Bounds(k)
		require.NoError(t, s.Append(k, hi, entryAt(k, hi)))
		require.LessOrEqual(t, s.Stats().TailBytes, o.TailBytes)
	}
	for topic := range 50 {
		for q := range 4 {
			k := Key{record.TopicID(topic), record.QueueID(q)}
			_, hi := s.Bounds(k)
			requireQueue(t, s, k, 0, hi)
		}
	}
}

func TestIdleTailsLeaveMemory(t *testing.T) {
	fs := memfs.New()
	s := openStore(t, small(fs))
	k := Key{1, 0}
	fill(t, s, k, 30)
	checkpoint(t, s)
	require.NotZero(t, s.Stats().TailBytes)
	checkpoint(t, s)
	require.Zero(t, s.Stats().TailBytes)
	requireQueue(t, s, k, 0, 30)
	fill(t, s, k, 60) // goes on in the same extent
	requireQueue(t, s, k, 0, 60)
	checkpoint(t, s)
	fill(t, s, k, 250)
	requireQueue(t, s, k, 0, 250)
	require.Equal(t, 2, s.Stats().Extents)
}

//fault:damage a block of the consume queues is damaged => it is found, never returned
func TestDamageIsFound(t *testing.T) {
	fs := memfs.New()
	s := openStore(t, small(fs))
	k := Key{1, 0}
	fill(t, s, k, 150)
	dir := checkpoint(t, s)
	f, err := fs.Open("queue/0000000000.queue")
	require.NoError(t, err)
	for _, off := range []int64{
		ExtentBytes, ExtentBytes + 9, ExtentBytes + 17, ExtentBytes + 25, ExtentBytes + 30, ExtentBytes + extentHeader, 2*ExtentBytes - 1, // full
		2 * ExtentBytes, 2*ExtentBytes + extentHeader + 48*EntryBytes, // tail
	} {
		b := []byte{0}
		_, err := f.ReadAt(b, off)
		require.NoError(t, err)
		b[0] ^= 0x10
		_, err = f.WriteAt(b, off)
		require.NoError(t, err)
		again := openStore(t, small(fs))
		require.NoError(t, again.Decode(dir))
		_, err = again.Read(k, 0, make([]Entry, 150))
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "byte %d: %v", off, err)
		b[0] ^= 0x10
		_, err = f.WriteAt(b, off)
		require.NoError(t, err)
	}
	// What is behind the entries that count is nobody's.
	_, err = f.WriteAt([]byte("any"), 2*ExtentBytes+extentHeader+49*EntryBytes)
	require.NoError(t, err)
	again := openStore(t, small(fs))
	require.NoError(t, again.Decode(dir))
	requireQueue(t, again, k, 0, 150)
}

func TestDecodeRefuses(t *testing.T) {
	fs := memfs.New()
	s := openStore(t, small(fs))
	fill(t, s, Key{1, 0}, 150)
	fill(t, s, Key{4, 2}, 300)
	dir := checkpoint(t, s)
	for n := range dir {
		require.True(t, mqerr.Is(s.Decode(dir[:n]), mqerr.Corrupt), "cut at %d", n)
	}
	require.True(t, mqerr.Is(s.Decode(append(dir, 0)), mqerr.Corrupt))
	requireQueue(t, s, Key{4, 2}, 0, 300) // nothing has changed
	later := append([]byte{directoryVersion + 1}, dir[1:]...)
	require.True(t, mqerr.Is(s.Decode(later), mqerr.Unsupported))
	other := openStore(t, small(memfs.New()))
	require.True(t, mqerr.Is(other.Decode(dir), mqerr.Corrupt), "its extents are missing")
}

func TestOpenKeepsFileSizeAndRefusesLaterFormat(t *testing.T) {
	fs := memfs.New()
	s := openStore(t, small(fs))
	fill(t, s, Key{1, 0}, 150)
	dir := checkpoint(t, s)
	o := small(fs)
	o.FileBytes = 0
	again := openStore(t, o)
	require.NoError(t, again.Decode(dir))
	fill(t, again, Key{1, 0}, 1500)
	requireQueue(t, again, Key{1, 0}, 0, 1500)

	o = small(fs)
	o.ReadOnly = true
	reader := openStore(t, o)
	require.NoError(t, reader.Decode(dir))
	requireQueue(t, reader, Key{1, 0}, 0, 150)

	h := fileHead{perFile: 7}
	b := h.encode()
	b[4] = 2
	sealHead(b)
	f, err := fs.Open("queue/0000000000.queue")
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	_, err = Open(small(fs))
	require.True(t, mqerr.Is(err, mqerr.Unsupported), "%v", err)
}

//fault:storage fdatasync of the consume queues fails => nothing more counts as saved
func TestFailedSyncIsFinal(t *testing.T) {
	fs := faultfs.Wrap(memfs.New())
	s := openStore(t, small(fs))
	fill(t, s, Key{1, 0}, 10)
	_, err := s.Encode(nil)
	require.NoError(t, err)
	fs.Set(faultfs.Fault{Op: faultfs.OpSync, Nth: 1})
	require.ErrorIs(t, s.Sync(), faultfs.ErrInjected)
	require.ErrorIs(t, s.Sync(), faultfs.ErrInjected)
	_, err = s.Encode(nil)
	require.ErrorIs(t, err, faultfs.ErrInjected)
}

//fault:storage a write to the consume queues fails => nothing of it is shown
func TestFailedWritesChangeNothing(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.OpWrite, faultfs.OpCreate, faultfs.OpAllocate} {
		for nth := 1; ; nth++ {
			fs := faultfs.Wrap(memfs.New())
			o := small(fs)
			o.TailBytes = 3000
			s := openStore(t, o)
			keys := []Key{{1, 0}, {1, 1}, {2, 0}}
			fs.Set(faultfs.Fault{Op: op, Nth: nth, Short: true})
			for i := range 900 {
				k := keys[i%3]
				_, hi := s.Bounds(k)
				if err := s.Append(k, hi, entryAt(k, hi)); err != nil {
					require.ErrorIs(t, err, faultfs.ErrInjected)
					require.NoError(t, s.Append(k, hi, entryAt(k, hi)), "%v %d", op, nth)
				}
			}
			for _, k := range keys {
				requireQueue(t, s, k, 0, 300)
			}
			if !fs.Hit() {
				require.Greater(t, nth, 1)
				break
			}
		}
	}
}

func TestReadersBesideAnAppender(t *testing.T) {
	o := small(memfs.New())
	o.TailBytes = 8 << 10
	s := openStore(t, o)
	const total = 3000
	keys := []Key{{1, 0}, {1, 1}, {7, 0}}
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for r := range 4 {
		wg.Go(func() {
			errs <- follow(s, keys[r%3], total, rand.New(rand.NewPCG(uint64(r), 0)))
		})
	}
	for i := range record.QueueOffset(total) {
		for _, k := range keys {
			require.NoError(t, s.Append(k, i, entryAt(k, i)))
		}
		if i%500 == 0 {
			checkpoint(t, s)
		}
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

// follow reads a queue up to total while it grows, and old places of it in between.
func follow(s *Store, k Key, total record.QueueOffset, rng *rand.Rand) error {
	dst := make([]Entry, 150)
	for from := record.QueueOffset(0); from < total; {
		at := from
		if from > 0 && rng.IntN(2) == 0 {
			at = record.QueueOffset(rng.Int64N(int64(from)))
		}
		n, err := s.Read(k, at, dst)
		if err != nil {
			return err
		}
		for i, e := range dst[:n] {
			if want := entryAt(k, at+record.QueueOffset(i)); e != want {
				return fmt.Errorf("%v offset %d: %v, not %v", k, at+record.QueueOffset(i), e, want)
			}
		}
		from = max(from, at+record.QueueOffset(n))
		if n == 0 {
			runtime.Gosched()
		}
	}
	return nil
}

func TestMemoryOfManyQueues(t *testing.T) {
	const queues, each = 100_000, 3
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	o := Options{FS: vfs.OS, Dir: t.TempDir()}
	s := openStore(t, o)
	before := heap()
	for i := range queues {
		k := Key{record.TopicID(i / 8), record.QueueID(i % 8)}
		for off := range record.QueueOffset(each) {
			if err := s.Append(k, off, Entry{Pos: record.Pos(i), Size: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	perQueue := float64(heap()-before) / queues
	t.Logf("%.0f bytes per queue with %d buffered entries", perQueue, each)
	require.Less(t, perQueue, 200.0+4*EntryBytes, "room for entries doubles: 2, 4, 8")
	if testing.Short() {
		return
	}
	_, err := s.Encode(nil)
	require.NoError(t, err)
	b, err := s.Encode(nil)
	require.NoError(t, err)
	perQueue = float64(heap()-before-uint64(cap(b))) / queues
	t.Logf("%.0f bytes per idle queue, %.1f bytes in the directory", perQueue, float64(len(b))/queues)
	require.Less(t, perQueue, 200.0)
	runtime.KeepAlive(s)
	require.NoError(t, s.Close())
}

func BenchmarkAppend(b *testing.B) {
	s := openStore(b, Options{FS: vfs.OS, Dir: b.TempDir()})
	k := Key{1, 0}
	e := Entry{Pos: 1, Size: 100}
	b.ReportAllocs()
	for i := range record.QueueOffset(b.N) {
		if err := s.Append(k, i, e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	s := openStore(b, Options{FS: vfs.OS, Dir: b.TempDir()})
	k := Key{1, 0}
	const total = 200_000
	for i := range record.QueueOffset(total) {
		require.NoError(b, s.Append(k, i, Entry{Pos: 1}))
	}
	var dst [32]Entry
	b.ReportAllocs()
	b.ResetTimer()
	from := record.QueueOffset(0)
	for n := 0; n < b.N; {
		got, err := s.Read(k, from, dst[:])
		if err != nil {
			b.Fatal(err)
		}
		n += got
		if from += record.QueueOffset(got); from == total {
			from = 0
		}
	}
}

func sealHead(b []byte) {
	binary.LittleEndian.PutUint32(b[20:], crc32.Checksum(b[:20], castagnoli))
}

// tester is what testing.TB and rapid.T have in common.
type tester interface {
	require.TestingT
	Helper()
}
