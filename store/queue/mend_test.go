package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// spoil writes over everything behind the heads of the files of a store, and empties its cache.
func spoil(t *testing.T, fs vfs.FS, s *Store) {
	t.Helper()
	names, err := fs.List("queue")
	require.NoError(t, err)
	for _, n := range names {
		f, err := fs.Open("queue/" + n)
		require.NoError(t, err)
		size, err := f.Size()
		require.NoError(t, err)
		_, err = f.WriteAt(make([]byte, size-ExtentBytes), ExtentBytes)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	s.cache.clear()
}

// mend gives a store back what is unreadable.
func mend(t *testing.T, s *Store, k Key) (n int) {
	t.Helper()
	for _, p := range s.Unreadable(k, 0, 1<<20) {
		var entries []Entry
		for off := p.Lo; off < p.Hi; off++ {
			entries = append(entries, entryAt(k, off))
		}
		done, err := s.Mend(k, p, entries, false)
		require.NoError(t, err)
		require.True(t, done)
		n++
	}
	return n
}

//fault:damage extents of a consume queue are damaged, full ones, one that is read in part, the last one => their entries are put into others; checkpoints before and behind that name what can be read
func TestMend(t *testing.T) {
	k, other := Key{Topic: 1}, Key{Topic: 2, Queue: 3}
	for name, c := range map[string]struct {
		lo, hi record.QueueOffset
		cold   bool // the buffer was dropped
		bad    int
	}{
		"full":                     {0, 2 * ExtentEntries, true, 2},
		"a tail in its extent":     {0, 2*ExtentEntries + 7, true, 3},
		"a tail with a buffer":     {0, 2*ExtentEntries + 7, false, 2},
		"a part of the first":      {ExtentEntries + 50, 3*ExtentEntries + 1, true, 3},
		"a part of the only one":   {20, 30, true, 1},
		"nothing that is in files": {0, 5, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fs := memfs.New()
			s := openStore(t, small(fs))
			fill(t, s, other, 130)
			fill(t, s, k, c.hi)
			s.DropBefore(k, c.lo)
			if c.cold {
				for range 2 { // the second one drops the buffers
					_, err := s.Encode(nil)
					require.NoError(t, err)
				}
			}
			spoil(t, fs, s)
			dst := make([]Entry, c.hi)
			_, err := s.Read(k, c.lo, dst)
			if d, is := DamageOf(fmt.Errorf("wrapped: %w", err)); c.bad > 0 {
				require.True(t, is && mqerr.Is(err, mqerr.Corrupt), "%v", err)
				require.Equal(t, Damage{Key: k, First: c.lo - c.lo%ExtentEntries, err: d.err}, *d)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, c.bad, mend(t, s, k))
			mend(t, s, other)
			requireQueue(t, s, k, c.lo, c.hi)
			fill(t, s, k, c.hi+ExtentEntries)
			requireQueue(t, s, k, c.lo, c.hi+ExtentEntries)
			state, err := s.Encode(nil)
			require.NoError(t, err)
			require.NoError(t, s.Sync())
			require.NoError(t, s.Close())

			s = openStore(t, small(fs))
			require.NoError(t, s.Decode(state))
			requireQueue(t, s, k, c.lo, c.hi+ExtentEntries)
			requireQueue(t, s, other, 0, 130)
			require.Empty(t, s.Unreadable(k, 0, 100))
			require.NoError(t, s.Close())
		})
	}
}

// TestMendTakesNoOther: entries that are not what was there, or not of what is there now, are not taken.
func TestMendTakesNoOther(t *testing.T) {
	k, fs := Key{Topic: 1}, memfs.New()
	s := openStore(t, small(fs))
	fill(t, s, k, ExtentEntries+10)
	for range 2 {
		_, err := s.Encode(nil)
		require.NoError(t, err)
	}
	spoil(t, fs, s)
	parts := s.Unreadable(k, 0, 10)
	require.Equal(t, []Part{{0, ExtentEntries}, {ExtentEntries, ExtentEntries + 10}}, parts)
	require.Equal(t, parts[1:], s.Unreadable(k, ExtentEntries+5, 1))
	_, err := s.Mend(k, parts[1], make([]Entry, 10), false)
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
	done, err := s.Mend(k, parts[0], make([]Entry, 3), false)
	require.NoError(t, err)
	require.False(t, done, "too few")
	fill(t, s, k, 2*ExtentEntries)
	done, err = s.Mend(k, parts[1], make([]Entry, 10), false)
	require.NoError(t, err)
	require.False(t, done, "it has got full")
	done, err = s.Mend(Key{Topic: 9}, parts[1], nil, false)
	require.NoError(t, err)
	require.True(t, done, "there is no such queue any more")
	mend(t, s, k)
	requireQueue(t, s, k, 0, 2*ExtentEntries)
	require.NoError(t, s.Close())
}

//fault:damage a file of consume queues is cut short while it is in use => what it had is damage, and is put into others
func TestMendCutFile(t *testing.T) {
	k, fs := Key{Topic: 1}, memfs.New()
	s := openStore(t, small(fs))
	fill(t, s, k, 4*ExtentEntries)
	f, err := fs.Open("queue/" + fileName(0))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(2*ExtentBytes+100))
	require.NoError(t, f.Close())
	s.cache.clear()
	_, err = s.At(k, ExtentEntries)
	_, is := DamageOf(err)
	require.True(t, is && mqerr.Is(err, mqerr.Corrupt), "%v", err)
	require.Equal(t, 3, mend(t, s, k))
	requireQueue(t, s, k, 0, 4*ExtentEntries)
	require.NoError(t, s.Close())
}
