package commitlog_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// ends are the positions at which a log with these entries may be cut.
func ends(entries []entry) []record.Pos {
	at := []record.Pos{0}
	for _, e := range entries {
		if !e.more {
			at = append(at, e.end())
		}
	}
	return at
}

func upTo(entries []entry, end record.Pos) []entry {
	n := 0
	for n < len(entries) && entries[n].end() <= end {
		n++
	}
	return entries[:n]
}

// TestTruncate cuts random logs and goes on with other records, again and again, over restarts.
func TestTruncate(t *testing.T) {
	first := testseed.First(t)
	for seed := first; seed < first+30; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			fs := memfs.New()
			epoch := record.Epoch(1)
			var all []entry
			for range 4 {
				l, have := mustStart(t, options(fs))
				requireSame(t, all, have, "after a restart")
				for range 3 {
					all = append(all, some(t, l, rng, rng.IntN(12), &epoch)...)
					if rng.IntN(2) == 0 {
						require.NoError(t, l.Sync())
					}
					at := ends(all)
					to := at[rng.IntN(len(at))]
					require.NoError(t, l.Truncate(to))
					require.Equal(t, to, l.Written())
					if n := len(all); n > 0 && to < all[n-1].end() {
						require.Equal(t, to, l.Durable())
					}
					all = slices.Clone(upTo(all, to))
					epoch++
				}
				require.NoError(t, l.Close())
			}
		})
	}
}

func TestTruncateRefuses(t *testing.T) {
	l, _ := mustStart(t, options(memfs.New()))
	a := mustAppend(t, l, true, body(1, 100), body(2, 100))
	b := mustAppend(t, l, false, body(3, 100))
	for name, to := range map[string]record.Pos{
		"above the end": l.Written() + 8, "within a record": b[0].pos + 8, "within a batch": a[0].end(), "below the first": -8,
	} {
		require.True(t, mqerr.Is(l.Truncate(to), mqerr.Invalid), name)
	}
	require.NoError(t, l.Truncate(l.Written()), "nothing to do")
	require.NoError(t, l.Truncate(b[0].pos))
	require.Equal(t, a[1].pos, l.Last().Pos)
	mustAppend(t, l, false, body(4, 100))
}

// TestPowerCutInTruncate: the power goes at each operation of a truncation. The next start finds a log that
// ends at the old end, the new one or between, with nothing else in it; cut again, it goes on, and what was cut
// is never found.
//
//fault:power the power goes at each operation of the disk while a log is cut, on several seeds => the log ends at the old end, the new one or between; it is cut again, and nothing that was cut comes back
func TestPowerCutInTruncate(t *testing.T) {
	first := testseed.First(t)
	for seed := first; seed < first+10; seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		base := memfs.New()
		l, _ := mustStart(t, options(base))
		epoch := record.Epoch(1)
		all := some(t, l, rng, 20, &epoch)
		require.NoError(t, l.Sync())
		if rng.IntN(2) == 0 {
			all = append(all, some(t, l, rng, 4, &epoch)...)
		}
		require.NoError(t, l.Close())
		at := ends(all)
		to := at[rng.IntN(len(at)-1)]
		for cut := 1; ; cut++ {
			fs := base.Crash(rand.New(rand.NewPCG(seed, 2)), 2)
			l, _ := mustStart(t, options(fs))
			fs.CutPower(cut)
			err := l.Truncate(to)
			l.Kill()
			if err == nil {
				require.Greater(t, cut, 3)
				after, found := mustStart(t, options(fs.Crash(rand.New(rand.NewPCG(seed, 3)), 0.5)))
				require.Equal(t, to, after.Written(), "it was durable when it returned")
				requireSame(t, upTo(all, to), found, "it was durable when it returned")
				break
			}
			after := fs.Crash(rand.New(rand.NewPCG(seed, uint64(cut))), 0.5)
			again, found := mustStart(t, options(after))
			require.GreaterOrEqual(t, again.Written(), to, "seed %d, power cut at operation %d", seed, cut)
			requireSame(t, upTo(all, again.Written()), found, fmt.Sprintf("seed %d, power cut at operation %d", seed, cut))
			require.NoError(t, again.Truncate(to))
			more := some(t, again, rng, 3, new(epoch+1))
			require.NoError(t, again.Close())
			after = after.Crash(rand.New(rand.NewPCG(seed, uint64(cut))), 0.5)
			_, found = mustStart(t, options(after))
			requireSame(t, slices.Concat(upTo(all, to), more), found, "after it was cut again")
		}
	}
}

// FuzzChunk gives any bytes to a log as records: nothing but the next part of a log gets in.
func FuzzChunk(f *testing.F) {
	master, _ := mustStart(f, options(memfs.New()))
	mustAppend(f, master, true, body(1, 100), body(2, 9000), body(3, 9000))
	c, err := master.Chunks(0).Next(master.Written(), 1<<20)
	require.NoError(f, err)
	f.Add(c.Bytes, int64(c.End), int64(segBytes), int64(2*segBytes))
	f.Add([]byte{}, int64(0), int64(0), int64(0))
	f.Add(c.Bytes[:200], int64(200), int64(-8), int64(1<<62))
	l, _ := mustStart(f, options(memfs.New()))
	f.Fuzz(func(t *testing.T, b []byte, end, one, two int64) {
		if max(one, two) > 1<<20 {
			return // a file of that length would be made in memory
		}
		from := l.Written()
		in := commitlog.Chunk{End: record.Pos(end), Epoch: 1, Bytes: b, Segments: []record.Pos{record.Pos(one), record.Pos(two)}}
		if err := l.AppendChunk(in); err != nil {
			require.Equal(t, from, l.Written())
			require.NoError(t, l.Err())
			return
		}
		require.Equal(t, in.End, l.Written())
		require.NoError(t, l.Scan(0, func(record.Record) error { return nil }))
		require.NoError(t, l.Truncate(0))
	})
}

// TestChunksOverACut: what was cut behind a reader, and written anew, is read as it is now.
func TestChunksOverACut(t *testing.T) {
	o := options(memfs.New())
	o.HotSegments = 1
	l, _ := mustStart(t, o)
	write := func(n int) (all []entry) {
		for l.Written() < 2*segBytes {
			all = append(all, mustAppend(t, l, false, body(n, 400))...)
			n++
		}
		return all
	}
	all := write(0)
	r := l.Chunks(0)
	c, err := r.Next(all[1].end(), 1<<20)
	require.NoError(t, err)
	require.Equal(t, all[1].end(), c.End)
	require.NoError(t, l.Truncate(c.End))
	all = append(all[:2], write(1000)...)
	var have [][]byte
	for r.Pos() < segBytes {
		memory := make([]byte, 0, 8<<10)
		r.Into(memory)
		c, err := r.Next(l.Written(), 4000)
		require.NoError(t, err)
		require.Same(t, &memory[:1][0], &c.Bytes[0])
		require.NoError(t, c.Each(func(rec record.Record) error {
			if rec.Type != record.TypePad {
				have = append(have, rec.Body)
			}
			return nil
		}))
	}
	for i, b := range have {
		require.Equal(t, all[2+i].body, b, "record %d", i)
	}
}
