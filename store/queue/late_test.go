package queue

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// TestLateReadsFewExtents: those whose messages are all above are passed over, in a new store, in one that was
// loaded, and in one that was loaded from a directory of version 1, the second time.
func TestLateReadsFewExtents(t *testing.T) {
	fs := memfs.New()
	s := openStore(t, small(fs))
	k := Key{1, 0}
	for off := range record.QueueOffset(50 * ExtentEntries) {
		e := Entry{Pos: record.Pos(1000 + 8*off), Size: 48}
		if off == 20*ExtentEntries+5 {
			e.Pos = 16
		}
		require.NoError(t, s.Append(k, off, e))
	}
	reads := func(s *Store) int64 {
		before := s.Stats()
		found := 0
		require.NoError(t, s.Late(k, 0, 1<<40, 100, func(off record.QueueOffset, e Entry) error {
			require.EqualValues(t, 20*ExtentEntries+5, off)
			require.EqualValues(t, 16, e.Pos)
			found++
			return nil
		}))
		require.Equal(t, 1, found)
		after := s.Stats()
		return after.CacheMisses + after.CacheHits - before.CacheMisses - before.CacheHits
	}
	require.EqualValues(t, 1, reads(s))
	dir := checkpoint(t, s)
	old := versionOne(s)

	again := openStore(t, small(fs))
	require.NoError(t, again.Decode(dir))
	require.EqualValues(t, 1, reads(again))
	require.NoError(t, again.Decode(old))
	require.EqualValues(t, 50, reads(again), "nothing is known")
	require.EqualValues(t, 1, reads(again), "what was read is known")
	require.Equal(t, dir, checkpoint(t, again))

	stop := errors.New("stop")
	require.ErrorIs(t, s.Late(k, 0, 1<<40, 1<<40, func(record.QueueOffset, Entry) error { return stop }), stop)
	s.DropBefore(k, 30*ExtentEntries)
	require.NoError(t, s.Late(k, 0, 1<<40, 1000, func(record.QueueOffset, Entry) error { return stop }), "it is no longer there")
	require.NoError(t, s.Late(Key{9, 9}, 0, 1, 1, func(record.QueueOffset, Entry) error { return stop }))
}

// versionOne is the directory as a release before wrote it.
func versionOne(s *Store) []byte {
	dst := []byte{1, ExtentEntries, byte(s.files.perFile), byte(len(s.order))}
	topic, extent := record.TopicID(0), int64(0)
	for _, q := range s.order {
		for _, v := range []uint64{uint64(q.key.Topic - topic), uint64(q.key.Queue), uint64(q.min), uint64(q.max - q.min)} {
			dst = binary.AppendUvarint(dst, v)
		}
		if q.tail() > 0 {
			dst = binary.LittleEndian.AppendUint32(dst, q.crc)
		}
		for _, x := range q.extents {
			dst = binary.AppendVarint(dst, int64(x)-extent)
			extent = int64(x)
		}
		topic = q.key.Topic
	}
	return append(dst, 0)
}

func TestVersionOneGoesOn(t *testing.T) {
	fs := memfs.New()
	s := openStore(t, small(fs))
	fill(t, s, Key{1, 0}, 350)
	fill(t, s, Key{4, 2}, 99)
	checkpoint(t, s)
	again := openStore(t, small(fs))
	require.NoError(t, again.Decode(versionOne(s)))
	fill(t, again, Key{1, 0}, 700)
	fill(t, again, Key{4, 2}, 300)
	twice := openStore(t, small(fs))
	require.NoError(t, twice.Decode(checkpoint(t, again)))
	requireQueue(t, twice, Key{1, 0}, 0, 700)
	requireQueue(t, twice, Key{4, 2}, 0, 300)
}

// rebuilt is a store as a start makes it from bounds and the log behind the first of them.
func rebuilt(t tester, s *Store) *Store {
	b := s.EncodeBounds(nil)
	all, err := DecodeBounds(b)
	require.NoError(t, err)
	again, err := Open(small(memfs.New()))
	require.NoError(t, err)
	for _, q := range all {
		require.NoError(t, again.Start(q.Key, q.Min))
		for off := q.Min; off < q.Max; off++ {
			require.NoError(t, again.Append(q.Key, off, entryAt(q.Key, off)))
		}
	}
	require.Equal(t, b, again.EncodeBounds(nil))
	return again
}

func TestBounds(t *testing.T) {
	s := openStore(t, small(memfs.New()))
	require.NoError(t, s.Start(Key{7, 0}, 500))
	require.Equal(t, []byte{1, 1, 7, 0, 0xf4, 3, 0}, s.EncodeBounds(nil))
	fill(t, s, Key{1, 3}, 150)
	fill(t, s, Key{1, 0}, 350)
	s.DropBefore(Key{1, 0}, 120)
	s.DropBefore(Key{1, 3}, 150)
	b := s.EncodeBounds(nil)
	all, err := DecodeBounds(b)
	require.NoError(t, err)
	require.Equal(t, []Bounds{{Key{1, 0}, 120, 350}, {Key{1, 3}, 150, 150}, {Key{7, 0}, 500, 500}}, all)

	again := rebuilt(t, s)
	for _, q := range all {
		requireQueue(t, again, q.Key, q.Min, q.Max)
		fill(t, again, q.Key, q.Max+250)
		requireQueue(t, again, q.Key, q.Min, q.Max+250)
	}
	for n := range b {
		_, err := DecodeBounds(b[:n])
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "cut at %d: %v", n, err)
	}
	_, err = DecodeBounds(append([]byte{2}, b[1:]...))
	require.True(t, mqerr.Is(err, mqerr.Unsupported), "%v", err)
	_, err = DecodeBounds(append(b, 0))
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
}

func FuzzDecodeBounds(f *testing.F) {
	f.Add([]byte{1, 0})
	f.Add([]byte{1, 1, 7, 0, 0xf4, 3, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := DecodeBounds(b)
		if err != nil {
			if !mqerr.Is(err, mqerr.Corrupt) && !mqerr.Is(err, mqerr.Unsupported) {
				t.Fatalf("%v", err)
			}
			return
		}
		for i, q := range all {
			if q.Min < 0 || q.Max < q.Min || i > 0 && all[i-1].Compare(q.Key) >= 0 {
				t.Fatalf("%v", all)
			}
		}
	})
}
