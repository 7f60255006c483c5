package commitlog_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// TestTornTailIsCut damages what was never synced: it and everything behind it goes, durably.
//
//fault:damage what was never synced is damaged, over several files => it and all behind it is cut, for good
func TestTornTailIsCut(t *testing.T) {
	for _, far := range []int{0, 3} { // how many segments the lost part reaches on
		t.Run(fmt.Sprint(far), func(t *testing.T) {
			fs := memfs.New()
			l, _ := mustStart(t, options(fs))
			kept := mustAppend(t, l, false, body(1, 100), body(2, 5000))
			require.NoError(t, l.Sync())
			lost := mustAppend(t, l, false, body(3, 600), body(4, 600))
			for i := range far {
				mustAppend(t, l, false, body(i, 12000))
			}
			l.Kill()
			poke(t, fs, 0, lost[0].pos+300)
			l, err := commitlog.Open(options(fs))
			require.NoError(t, err)
			found, r, err := recoverFrom(l, 0)
			require.NoError(t, err)
			requireSame(t, kept, found, "cut")
			require.Equal(t, lost[0].pos, r.End)
			require.ErrorContains(t, r.Torn, "checksum")
			require.Equal(t, r.End, l.Written())
			require.Equal(t, r.End, l.Durable())

			// As long as the damaged one: the whole record that stood behind it must not come back.
			kept = append(kept, mustAppend(t, l, false, body(5, 600))...)
			l.Kill()
			l, found = mustStart(t, options(fs))
			requireSame(t, kept, found, "after new appends")
			names, err := fs.List(dir)
			require.NoError(t, err)
			require.LessOrEqual(t, len(names), 3, "later segments are gone: %v", names)
			l.Kill()
		})
	}
}

// TestIncompleteBatchIsCut loses the last record of a chain, within a segment and across segments.
//
//fault:power the end of a batch is lost, within a file and across files => nothing of the batch is there
func TestIncompleteBatchIsCut(t *testing.T) {
	for _, size := range []int{100, 7000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			fs := memfs.New()
			l, _ := mustStart(t, options(fs))
			kept := mustAppend(t, l, true, body(1, 100), body(2, 100))
			require.NoError(t, l.Sync())
			lost := mustAppend(t, l, true, body(3, size), body(4, size), body(5, size), body(6, size))
			l.Kill()
			last := lost[3].pos
			poke(t, fs, last/segBytes*segBytes, last+50)
			l, err := commitlog.Open(options(fs))
			require.NoError(t, err)
			found, r, err := recoverFrom(l, 0)
			require.NoError(t, err)
			requireSame(t, kept, found, "cut")
			require.Equal(t, 3, r.Incomplete)
			require.Equal(t, lost[0].pos, r.End)
			kept = append(kept, mustAppend(t, l, true, body(7, size), body(8, size))...)
			require.NoError(t, l.Close())
			_, found = mustStart(t, options(fs))
			requireSame(t, kept, found, "after new appends")
		})
	}
}

// TestDamageBelowDurable refuses to cut what was promised, and changes nothing.
//
//fault:damage a bit is flipped, or a file zeroed, below what was promised => the start is refused and names file and byte; nothing is changed
func TestDamageBelowDurable(t *testing.T) {
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	all := mustAppend(t, l, false, body(1, 100), body(2, 9000), body(3, 9000), body(4, 100))
	require.NoError(t, l.Close())
	for _, e := range all {
		base := e.pos / segBytes * segBytes
		poke(t, fs, base, e.pos+60)
		before := fs.Ops()
		_, _, err := start(options(fs))
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
		require.ErrorContains(t, err, fmt.Sprintf("%020d at byte %d", base, e.pos-base))
		require.ErrorContains(t, err, "bring the file back")
		require.ErrorContains(t, err, "checksum")
		require.Equal(t, before, fs.Ops(), "nothing was changed")
		poke(t, fs, base, e.pos+60)
	}

	// Bytes that are gone altogether are damage too.
	f, err := fs.Open(filepath.Join(dir, fmt.Sprintf("%020d", segBytes)))
	require.NoError(t, err)
	require.NoError(t, f.ZeroRange(0, segBytes))
	_, _, err = start(options(fs))
	require.ErrorContains(t, err, "nothing was written here")
	require.ErrorContains(t, err, commitlog.MarkName)

	// An operator may give it up.
	require.NoError(t, fs.Remove(filepath.Join(dir, commitlog.MarkName)))
	_, found := mustStart(t, options(fs))
	requireSame(t, all[:2], found, "given up")
}

//fault:damage a file of the log is missing, or has the name of another => the start is refused and says which
func TestMissingAndForeignSegments(t *testing.T) {
	build := func() (*memfs.FS, []entry) {
		fs := memfs.New()
		l, _ := mustStart(t, options(fs))
		var all []entry
		for i := range 5 {
			all = append(all, mustAppend(t, l, false, body(i, 12000))...)
		}
		require.NoError(t, l.Close())
		return fs, all
	}
	path := func(n int) string { return filepath.Join(dir, fmt.Sprintf("%020d", n*segBytes)) }

	fs, _ := build()
	require.NoError(t, fs.Remove(path(2)))
	_, _, err := start(options(fs))
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
	require.ErrorContains(t, err, "missing")

	fs, _ = build()
	require.NoError(t, fs.Rename(path(3), path(2)))
	_, _, err = start(options(fs))
	require.ErrorContains(t, err, "renamed")

	fs, _ = build()
	for n := 3; n < 6; n++ {
		require.NoError(t, fs.Remove(path(n)))
	}
	_, _, err = start(options(fs))
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
	require.ErrorContains(t, err, "was durable up to there")

	fs, all := build()
	require.NoError(t, fs.Remove(path(0)))
	l, err := commitlog.Open(options(fs))
	require.NoError(t, err)
	require.EqualValues(t, segBytes, l.First())
	_, _, err = recoverFrom(l, 0)
	require.ErrorContains(t, err, "begins at position")
	found, _, err := recoverFrom(l, l.First())
	require.NoError(t, err)
	requireSame(t, all[1:], found, "without the oldest")
	_, _, err = l.Read(0, 0)
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
	require.NoError(t, l.Close())
}

// TestNewerRecordRefuses: a record of a later release is not a torn tail.
func TestNewerRecordRefuses(t *testing.T) {
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	mustAppend(t, l, false, body(1, 100))
	b := l.NewBatch()
	b.Begin(record.Header{Type: 200, Epoch: 1, Time: 1000}, 10)
	b.Seal()
	require.NoError(t, l.Write(b))
	mustAppend(t, l, false)
	l.Kill()
	before := fs.Ops()
	_, _, err := start(options(fs))
	require.True(t, mqerr.Is(err, mqerr.Unsupported), "%v", err)
	require.ErrorContains(t, err, "type 200")
	require.Equal(t, before, fs.Ops())
}

func TestNewerMarkRefuses(t *testing.T) {
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	require.NoError(t, l.Close())
	raw := commitlog.EncodeMark(2, 0)
	require.NoError(t, vfs.ReplaceFile(fs, filepath.Join(dir, commitlog.MarkName), raw))
	_, _, err := start(options(fs))
	require.True(t, mqerr.Is(err, mqerr.Unsupported), "%v", err)
	require.ErrorContains(t, err, commitlog.MarkName)
}

// TestStaleEpochIsNoRecord puts a whole record of an older epoch, at its right position, behind the end:
// what a truncation would leave if it were not cleared.
//
//fault:power a whole record of an earlier life stands behind the end (stale bytes) => it is no record
func TestStaleEpochIsNoRecord(t *testing.T) {
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	kept, err := appendTo(l, 5, false, body(1, 100))
	require.NoError(t, err)
	end := l.Written()
	l.Kill()
	stale := make([]byte, record.HeaderSize)
	record.Seal(stale, &record.Header{Type: record.TypeMsg, Size: record.HeaderSize, Pos: end, Epoch: 4, Time: 1 << 40})
	f, err := fs.Open(filepath.Join(dir, fmt.Sprintf("%020d", 0)))
	require.NoError(t, err)
	_, err = f.WriteAt(stale, int64(end))
	require.NoError(t, err)
	l, err = commitlog.Open(options(fs))
	require.NoError(t, err)
	found, r, err := recoverFrom(l, 0)
	require.NoError(t, err)
	requireSame(t, kept, found, "without the stale one")
	require.ErrorContains(t, r.Torn, "epoch 4")
	require.NoError(t, l.Close())
}

// TestApplyErrorStops: the views refuse a record, so recovery ends and changes nothing.
func TestApplyErrorStops(t *testing.T) {
	fs := memfs.New()
	l, _ := mustStart(t, options(fs))
	mustAppend(t, l, false, body(1, 100), body(2, 100))
	l.Kill()
	before := fs.Ops()
	l, err := commitlog.Open(options(fs))
	require.NoError(t, err)
	refused := errors.New("no")
	_, err = l.Recover(0, func(r record.Record) error {
		if r.Pos > 0 {
			return refused
		}
		return nil
	})
	require.ErrorIs(t, err, refused)
	require.Equal(t, before, fs.Ops())
	require.NoError(t, l.Close())
}

// TestLeftoversAreDropped removes what an interrupted preparation left, and keeps foreign files.
func TestLeftoversAreDropped(t *testing.T) {
	fs := memfs.New()
	require.NoError(t, fs.MkdirAll(dir))
	for _, name := range []string{fmt.Sprintf("%020d%s", segBytes, vfs.TempSuffix), "README"} {
		require.NoError(t, vfs.ReplaceFile(fs, filepath.Join(dir, name), []byte("x")))
	}
	l, _ := mustStart(t, options(fs))
	require.NoError(t, l.Close())
	names, err := fs.List(dir)
	require.NoError(t, err)
	require.Contains(t, names, "README")
	for _, name := range names {
		require.NotContains(t, name, vfs.TempSuffix)
	}
}
