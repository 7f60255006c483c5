package commitlog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// some appends n batches at random: one record or several, chained or not, now and then of the next epoch.
func some(t testing.TB, l *commitlog.Log, rng *rand.Rand, n int, epoch *record.Epoch) (all []entry) {
	t.Helper()
	for range n {
		if rng.IntN(10) == 0 {
			*epoch++
		}
		bodies := make([][]byte, 1+rng.IntN(4))
		for i := range bodies {
			bodies[i] = body(int(l.Written())+i, rng.IntN(4000))
		}
		entries, err := appendTo(l, *epoch, rng.IntN(2) == 0, bodies...)
		require.NoError(t, err)
		all = append(all, entries...)
	}
	return all
}

// copyTo gives everything that from has, and to lacks, to it.
func copyTo(t testing.TB, from, to *commitlog.Log, n func() int) {
	t.Helper()
	for r := from.Chunks(to.Written()); ; {
		c, err := r.Next(from.Written(), n())
		require.NoError(t, err)
		if c.Start == c.End {
			return
		}
		require.Equal(t, to.Written(), c.Start)
		require.NoError(t, to.AppendChunk(c))
		require.Equal(t, c.End, to.Written())
		require.Equal(t, c.End, r.Pos())
	}
}

// sameFiles compares two logs byte for byte, up to the end of the second one.
func sameFiles(t testing.TB, a, b vfs.FS) {
	t.Helper()
	names, err := b.List(dir)
	require.NoError(t, err)
	n := 0
	for _, name := range names {
		if len(name) != 20 {
			continue
		}
		theirs, err := vfs.ReadFile(b, dir+"/"+name)
		require.NoError(t, err)
		if bytes.Count(theirs, []byte{0}) == len(theirs) {
			continue // made for later
		}
		ours, err := vfs.ReadFile(a, dir+"/"+name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(ours, theirs), "%s differs", name)
		n++
	}
	require.Positive(t, n)
}

// TestChunks copies random logs, whose files are of several lengths, chunk by chunk, beside appends and over
// restarts of either side: the files are the same.
func TestChunks(t *testing.T) {
	first := testseed.First(t)
	for seed := first; seed < first+30; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			n := func() int { return rng.IntN(20_000) }
			a, b := memfs.New(), memfs.New()
			epoch := record.Epoch(1)
			var all []entry
			for range 4 {
				o := options(a)
				o.SegmentBytes = int64(2+rng.IntN(4)) * 4096
				o.HotSegments = 1 + rng.IntN(3)
				master, _ := mustStart(t, o)
				o = options(b)
				o.SegmentBytes = int64(2+rng.IntN(4)) * 4096
				follower, have := mustStart(t, o)
				requireSame(t, all, have, "what was copied before")
				for range 3 {
					all = append(all, some(t, master, rng, rng.IntN(12), &epoch)...)
					copyTo(t, master, follower, n)
				}
				require.Equal(t, master.Last(), follower.Last())
				require.NoError(t, master.Close())
				require.NoError(t, follower.Close())
			}
			sameFiles(t, a, b)
		})
	}
}

// TestChunkThatDoesNotFit: what is not the next part of the same log is refused, and nothing is written.
func TestChunkThatDoesNotFit(t *testing.T) {
	o := options(memfs.New())
	master, _ := mustStart(t, o)
	mustAppend(t, master, false, body(1, 100), body(2, 100))
	middle := master.Written()
	mustAppend(t, master, true, body(3, 100), body(4, 9000), body(5, 9000))
	end := master.Written()

	next := func(from record.Pos) commitlog.Chunk {
		c, err := master.Chunks(from).Next(end, 1<<20)
		require.NoError(t, err)
		require.Equal(t, end, c.End)
		require.Len(t, c.Segments, 2, "the batch goes over the end of a segment")
		c.Bytes = bytes.Clone(c.Bytes)
		return c
	}
	follower, _ := mustStart(t, options(memfs.New()))
	c := next(0)
	first := record.Total(100)
	for name, change := range map[string]func(*commitlog.Chunk){
		"begins later":             func(c *commitlog.Chunk) { *c = next(middle) },
		"is cut":                   func(c *commitlog.Chunk) { c.Bytes = c.Bytes[:len(c.Bytes)-8] },
		"has more":                 func(c *commitlog.Chunk) { c.Bytes = append(c.Bytes, c.Bytes[:first]...) },
		"says another end":         func(c *commitlog.Chunk) { c.End -= 8 },
		"says another epoch":       func(c *commitlog.Chunk) { c.Epoch++ },
		"a flipped bit":            func(c *commitlog.Chunk) { c.Bytes[first+60] ^= 1 },
		"half of a batch":          func(c *commitlog.Chunk) { c.Bytes, c.End = c.Bytes[:3*first], record.Pos(3*first) },
		"records in another order": func(c *commitlog.Chunk) { c.Bytes = append(bytes.Clone(c.Bytes[first:2*first]), c.Bytes[first:]...) },
		"a segment is not named":   func(c *commitlog.Chunk) { c.Segments = c.Segments[:1] },
		"another segment length":   func(c *commitlog.Chunk) { c.Segments = []record.Pos{segBytes + 4096, 2 * segBytes} },
		"a segment of no length":   func(c *commitlog.Chunk) { c.Segments = []record.Pos{segBytes, segBytes} },
		"a segment too long":       func(c *commitlog.Chunk) { c.Segments = []record.Pos{segBytes, segBytes + 3<<30} },
		"a segment too short":      func(c *commitlog.Chunk) { c.Segments = []record.Pos{segBytes, segBytes + 4096} },
	} {
		bad := next(0)
		change(&bad)
		err := follower.AppendChunk(bad)
		require.True(t, mqerr.Is(err, mqerr.Invalid) || mqerr.Is(err, mqerr.Corrupt), "%s: %v", name, err)
		require.Zero(t, follower.Written(), name)
	}
	require.NoError(t, follower.Err())
	require.NoError(t, follower.AppendChunk(c))
	require.Error(t, follower.AppendChunk(c), "twice")
	require.Equal(t, end, follower.Written())

	// What is of an older epoch, or time, does not come later.
	_, err := appendTo(follower, 5, false, body(9, 10))
	require.NoError(t, err)
	mustAppend(t, master, false, body(9, 10))
	stale, err := master.Chunks(end).Next(master.Written(), 1<<20)
	require.NoError(t, err)
	require.True(t, mqerr.Is(follower.AppendChunk(stale), mqerr.Invalid))
}

// TestChunksOfDamage: damaged records are never given away, what is before them is.
func TestChunksOfDamage(t *testing.T) {
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	entries := mustAppend(t, l, false, body(1, 500), body(2, 500), body(3, 500))
	require.NoError(t, l.Sync())
	poke(t, fs, 0, entries[1].pos+100)
	r := l.Chunks(0)
	c, err := r.Next(l.Written(), 1<<20)
	require.NoError(t, err)
	require.Equal(t, entries[1].pos, c.End)
	_, err = r.Next(l.Written(), 1<<20)
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
	require.ErrorContains(t, err, "/log/00000000000000000000")
	require.Equal(t, entries[1].pos, r.Pos())

	some(t, l, rand.New(rand.NewPCG(1, 1)), 20, new(record.Epoch(1)))
	require.NoError(t, l.Sync())
	_, err = l.DropBefore(2 * segBytes)
	require.NoError(t, err)
	_, err = r.Next(l.Written(), 1<<20)
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
}
