package commitlog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

func skipping(fs vfs.FS) commitlog.Options {
	o := options(fs)
	o.SkipDamage = true
	return o
}

func file(n int) string { return filepath.Join(dir, fmt.Sprintf("%020d", n*segBytes)) }

// nine is a log of nine records of 5,000 bytes, three in each file, the second batch of three a chain.
func nine(t *testing.T) (*memfs.FS, []entry) {
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	var all []entry
	for i := range 3 {
		all = append(all, mustAppend(t, l, i == 1, body(3*i, 5000), body(3*i+1, 5000), body(3*i+2, 5000))...)
	}
	require.NoError(t, l.Close())
	return fs, all
}

// TestHoles: each kind of damage is refused by default and changes nothing; an operator who chose so goes on
// without what is lost, keeps what was left of it, and is asked only once.
//
//fault:damage a bit flip, a zeroed part, a cut, missing or swapped file in the log, on-damage skip => all whole records stay, the hole is noted and not refused again
func TestHoles(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, fs *memfs.FS, all []entry)
		lost   []int // of the nine
		holes  int
	}{
		{"body", func(t *testing.T, fs *memfs.FS, all []entry) { poke(t, fs, 0, all[1].pos+100) }, []int{1}, 1},
		{"header", func(t *testing.T, fs *memfs.FS, all []entry) { poke(t, fs, 0, all[1].pos+5) }, []int{1}, 1},
		{"position", func(t *testing.T, fs *memfs.FS, all []entry) { poke(t, fs, 0, all[0].pos+17) }, []int{0}, 1},
		{"in a batch", func(t *testing.T, fs *memfs.FS, all []entry) { poke(t, fs, segBytes, all[4].pos+100) }, []int{4}, 1},
		{"end of a batch", func(t *testing.T, fs *memfs.FS, all []entry) { poke(t, fs, segBytes, all[5].pos+100) }, []int{5}, 1},
		{"last record", func(t *testing.T, fs *memfs.FS, all []entry) { poke(t, fs, 2*segBytes, all[8].pos+100) }, []int{8}, 1},
		{"two places", func(t *testing.T, fs *memfs.FS, all []entry) {
			poke(t, fs, 0, all[1].pos+100)
			poke(t, fs, 2*segBytes, all[7].pos+100)
		}, []int{1, 7}, 2},
		{"zeroed", func(t *testing.T, fs *memfs.FS, all []entry) {
			f, err := fs.Open(file(1))
			require.NoError(t, err)
			require.NoError(t, f.ZeroRange(4096, 4096))
		}, []int{3, 4}, 1},
		{"cut", func(t *testing.T, fs *memfs.FS, all []entry) { cutFile(t, fs, file(1), 5103) }, []int{4, 5}, 1},
		{"cut at the end", func(t *testing.T, fs *memfs.FS, all []entry) { cutFile(t, fs, file(2), 9001) }, []int{7, 8}, 1},
		{"empty", func(t *testing.T, fs *memfs.FS, all []entry) { cutFile(t, fs, file(2), 0) }, []int{6, 7, 8}, 1},
		{"missing", func(t *testing.T, fs *memfs.FS, all []entry) { require.NoError(t, fs.Remove(file(1))) }, []int{3, 4, 5}, 1},
		{"newest missing", func(t *testing.T, fs *memfs.FS, all []entry) {
			require.NoError(t, fs.Remove(file(3)))
			require.NoError(t, fs.Remove(file(2)))
		}, []int{6, 7, 8}, 1},
		{"all missing", func(t *testing.T, fs *memfs.FS, all []entry) {
			for n := range 4 {
				require.NoError(t, fs.Remove(file(n)))
			}
		}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, 1},
		{"swapped", func(t *testing.T, fs *memfs.FS, all []entry) {
			require.NoError(t, fs.Rename(file(1), dir+"/x"))
			require.NoError(t, fs.Rename(file(2), file(1)))
			require.NoError(t, fs.Rename(dir+"/x", file(2)))
		}, []int{3, 4, 5, 6, 7, 8}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs, all := nine(t)
			c.damage(t, fs, all)
			before := fs.Ops()
			_, _, err := start(options(fs))
			require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
			require.ErrorContains(t, err, dir)
			require.Equal(t, before, fs.Ops(), "nothing was changed")

			var left []entry
			for i, e := range all {
				if !slices.Contains(c.lost, i) {
					left = append(left, e)
				}
			}
			l, found := mustStart(t, skipping(fs))
			requireSame(t, left, found, "on damage skip")
			require.Len(t, l.Holes(), c.holes)
			for _, i := range c.lost {
				_, _, err := l.Read(all[i].pos, all[i].size)
				require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
			}
			for _, e := range left {
				_, ref, err := l.Read(e.pos, e.size)
				require.NoError(t, err)
				ref.Release()
			}
			for _, h := range l.Holes() {
				_, err := fs.Stat(filepath.Join(dir, commitlog.DamagedName(h)))
				require.NoError(t, err, "what was left is kept")
			}
			require.GreaterOrEqual(t, l.Written(), all[8].end(), "no position is used again")
			more := mustAppend(t, l, true, body(20, 6000), body(21, 6000), body(22, 6000))
			left = append(left, more...)
			require.NoError(t, l.Close())

			l, found = mustStart(t, options(fs)) // it was said once
			requireSame(t, left, found, "again")
			var past []commitlog.Past
			n := 0
			end, torn, err := l.ScanPast(l.First(), func(record.Record) error { n++; return nil }, func(p commitlog.Past) error { past = append(past, p); return nil })
			require.NoError(t, err)
			require.NoError(t, torn)
			require.Equal(t, l.Written(), end)
			require.NotZero(t, n)
			for _, p := range past {
				require.True(t, p.Known)
			}
			require.NoError(t, l.Close())
		})
	}
}

// cutFile makes a file of the first n bytes of another.
func cutFile(t *testing.T, fs *memfs.FS, name string, n int) {
	t.Helper()
	b, err := vfs.ReadFile(fs, name)
	require.NoError(t, err)
	require.NoError(t, vfs.ReplaceFile(fs, name, b[:n]))
}

// TestFakeRecord: a message whose bytes are a record with the very position they were stored at is not
// taken for one when its own body is damaged.
func TestFakeRecord(t *testing.T) {
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	at := record.Pos(record.HeaderSize + 80)
	fake := make([]byte, 200)
	record.Seal(fake[80:128], &record.Header{Type: record.TypeMsg, Size: 48, Pos: at, Epoch: 1, Time: 1})
	all := mustAppend(t, l, false, fake, body(1, 50))
	require.NoError(t, l.Close())
	poke(t, fs, 0, all[0].pos+record.HeaderSize+10)
	_, found := mustStart(t, skipping(fs))
	requireSame(t, all[1:], found, "behind it")
}

// TestWrongSize: the size of a record is damaged so that it seems to end with a later one: those between are not
// lost.
func TestWrongSize(t *testing.T) {
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	var bodies [][]byte
	for i := range 40 {
		bodies = append(bodies, body(i, 88)) // 128 bytes each
	}
	all := mustAppend(t, l, false, bodies...)
	require.NoError(t, l.Close())
	f, err := fs.Open(file(0))
	require.NoError(t, err)
	size := []byte{0, 1} // 256
	_, err = f.WriteAt(size, int64(all[3].pos)+record.SizeOffset)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, found := mustStart(t, skipping(fs))
	requireSame(t, append(slices.Clone(all[:3]), all[4:]...), found, "behind it")
}

// TestHolesFile: a damaged list is refused, since it would hide records, and one of a later release.
//
//fault:damage the list of holes is damaged => the start is refused and names the file
func TestHolesFile(t *testing.T) {
	fs, all := nine(t)
	poke(t, fs, 0, all[1].pos+100)
	l, _ := mustStart(t, skipping(fs))
	require.NoError(t, l.Close())
	path := filepath.Join(dir, commitlog.HolesName)
	whole, err := vfs.ReadFile(fs, path)
	require.NoError(t, err)
	for i := range whole[:len(whole)-1] {
		bad := bytes.Clone(whole)
		bad[i] ^= 1
		require.NoError(t, vfs.ReplaceFile(fs, path, bad))
		if l, err := commitlog.Open(options(fs)); err == nil {
			require.Equal(t, mustDecode(t, whole), l.Holes(), "byte %d: names of fields may differ in case", i)
			l.Kill()
		} else {
			require.ErrorContains(t, err, path)
		}
	}
	require.NoError(t, fs.Remove(path))
	_, _, err = start(options(fs))
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "without the list it is damage again: %v", err)
}

func mustDecode(t *testing.T, b []byte) []commitlog.Hole {
	holes, err := commitlog.DecodeHoles(b)
	require.NoError(t, err)
	return holes
}

// TestLostMark: with the mark missing a torn tail is cut as before, but not if whole records stand behind it.
//
//fault:damage the durable mark is missing and a record in the middle is damaged => refused, for nothing tells that it was not promised
func TestLostMark(t *testing.T) {
	fs, all := nine(t)
	require.NoError(t, fs.Remove(filepath.Join(dir, commitlog.MarkName)))
	poke(t, fs, 0, all[1].pos+100)
	before := fs.Ops()
	_, _, err := start(options(fs))
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
	require.Equal(t, before, fs.Ops())
	o := options(fs)
	o.ReadOnly = true
	l, err := commitlog.Open(o)
	require.NoError(t, err)
	var past []commitlog.Past
	_, torn, err := l.ScanPast(0, func(record.Record) error { return nil }, func(p commitlog.Past) error { past = append(past, p); return nil })
	require.NoError(t, err)
	require.NoError(t, torn)
	require.Len(t, past, 1, "a repair finds what the start refused")
	require.Equal(t, all[1].pos, past[0].From)
	require.Equal(t, all[2].pos, past[0].To)
	l.Kill()
	skipped, found := mustStart(t, skipping(fs.Crash(rand.New(rand.NewPCG(1, 1)), 1)))
	requireSame(t, append([]entry{all[0]}, all[2:]...), found, "on damage skip: whole records behind it stay")
	require.Len(t, skipped.Holes(), 1)
	poke(t, fs, 0, all[1].pos+100)
	poke(t, fs, 2*segBytes, all[8].pos+100)
	_, found = mustStart(t, options(fs))
	requireSame(t, all[:8], found, "the tail is cut")
}

// TestVouchedTail: what a clean stop vouches for is looked at, although nothing is replayed there, and so is
// the first record of each file.
//
//fault:damage the last record, or the first of a file, is damaged after a clean stop => noticed at the start, although no log is read
func TestVouchedTail(t *testing.T) {
	for _, i := range []int{0, 3, 6, 8} {
		fs, all := nine(t)
		base := all[i].pos / segBytes * segBytes
		l, err := commitlog.Open(options(fs))
		require.NoError(t, err)
		r, ref, err := l.Read(all[8].pos, 0)
		require.NoError(t, err)
		o := options(fs)
		o.Tail = commitlog.Tail{End: all[8].end(), Last: commitlog.Last{Pos: r.Pos, CRC: r.CRC}}
		ref.Release()
		l.Kill()
		poke(t, fs, base, all[i].pos+100)
		before := fs.Ops()
		l, err = commitlog.Open(o)
		require.NoError(t, err)
		_, _, err = recoverFrom(l, o.Tail.End)
		require.ErrorContains(t, err, fmt.Sprintf("%020d at byte %d", base, all[i].pos-base))
		require.Equal(t, before, fs.Ops())
		l.Kill()

		o.SkipDamage = true
		l, err = commitlog.Open(o)
		require.NoError(t, err)
		_, _, err = recoverFrom(l, o.Tail.End)
		require.NoError(t, err)
		require.Len(t, l.Holes(), 1)
		require.Equal(t, all[i].pos, l.Holes()[0].From)
		require.NoError(t, l.Close())
	}
}

// TestPowerLossInNote cuts the power at each operation of a start that skips damage: the next one finds the
// same records.
//
//fault:power in a start that goes on without damaged records => the next start finds the same
func TestPowerLossInNote(t *testing.T) {
	for nth := 1; ; nth++ {
		fs, all := nine(t)
		poke(t, fs, 0, all[1].pos+100)
		f, err := fs.Open(file(0))
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		fs.CutPower(nth)
		l, _, err := start(skipping(fs))
		if err == nil {
			l.Kill()
		}
		after := fs.Crash(rand.New(rand.NewPCG(uint64(nth), 1)), 0.5)
		again, found := mustStart(t, skipping(after))
		requireSame(t, append([]entry{all[0]}, all[2:]...), found, fmt.Sprintf("operation %d", nth))
		require.NoError(t, again.Close())
		if err == nil {
			require.Greater(t, nth, 8)
			return
		}
	}
}
