package commitlog_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// TestUnreadableSector: the disk loses one sector of the log, each in its turn. By default the start is refused, names the
// file, and changes nothing. An operator who goes on loses the records in that sector and no other. A log that serves
// answers Corrupt for those, and readers go on behind them.
//
//fault:damage the disk cannot read a sector of the log (EIO) => a start is refused with file and byte, or goes on without the records in it with on-damage skip; a running broker takes them for damaged, readers go on behind them
func TestUnreadableSector(t *testing.T) {
	const sector = 512
	whole, all := nine(t)
	for n := range 3 {
		for at := int64(0); at < segBytes; at += sector {
			var touched, rest []entry
			for _, e := range all {
				from, to := int64(e.pos)-int64(n*segBytes), int64(e.end())-int64(n*segBytes)
				if from < at+sector && to > at {
					touched = append(touched, e)
				} else {
					rest = append(rest, e)
				}
			}
			if len(touched) == 0 {
				continue // the pad behind the records
			}
			inner := whole.Clone()
			fs := faultfs.Wrap(inner)
			fs.Bad(file(n), at, at+sector)
			before := contents(t, inner)
			_, _, err := start(options(fs))
			require.True(t, mqerr.Is(err, mqerr.Corrupt), "file %d, byte %d: %v", n, at, err)
			require.ErrorContains(t, err, file(n))
			require.ErrorContains(t, err, "perigee debug repair")
			require.Equal(t, before, contents(t, inner))

			l, got := mustStart(t, skipping(fs))
			requireSame(t, rest, got, "what the disk can read")
			require.Len(t, l.Holes(), 1, "file %d, byte %d", n, at)
			more := mustAppend(t, l, false, body(20, 100))
			require.NoError(t, l.Close())
			l, got = mustStart(t, options(fs)) // it was said once
			requireSame(t, append(rest, more...), got, "the next start")
			require.NoError(t, l.Close())
		}
	}
}

// TestUnreadableWhileServing: the sector goes while the log serves.
func TestUnreadableWhileServing(t *testing.T) {
	inner, all := nine(t)
	fs := faultfs.Wrap(inner)
	l, _ := mustStart(t, options(fs))
	defer l.Close()
	fs.Bad(file(0), int64(all[1].pos)+2000, int64(all[1].pos)+2512)
	require.False(t, l.Hot(all[1].pos), "it is mapped: nothing is tested")
	_, _, err := l.Read(all[1].pos, all[1].size)
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
	require.ErrorContains(t, err, file(0))
	_, ref, err := l.Read(all[0].pos, all[0].size)
	require.NoError(t, err)
	ref.Release()
	var got []record.Pos
	var lost []commitlog.Past
	_, torn, err := l.ScanPast(0, func(r record.Record) error {
		if r.Type != record.TypePad {
			got = append(got, r.Pos)
		}
		return nil
	}, func(p commitlog.Past) error { lost = append(lost, p); return nil })
	require.NoError(t, err)
	require.NoError(t, torn)
	require.Len(t, got, 8)
	require.Len(t, lost, 1)
	require.Equal(t, all[1].pos, lost[0].From)
	require.Equal(t, all[2].pos, lost[0].To)
}

// TestMappedFileIsCut: the file under a mapping gets shorter, or loses a page. The system answers the read with a signal.
//
//fault:damage a file of the log is cut, or its disk loses a page, while it is mapped => the message is damaged; the process goes on
func TestMappedFileIsCut(t *testing.T) {
	o := options(vfs.OS)
	o.Dir = filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.Mkdir(o.Dir, 0o755))
	l, _ := mustStart(t, o)
	defer l.Close()
	e := mustAppend(t, l, false, body(1, 3000), body(2, 6000))
	require.True(t, l.Hot(e[1].pos))
	path := filepath.Join(o.Dir, filepath.Base(file(0)))
	require.NoError(t, os.Truncate(path, 4096))
	_, _, err := l.Read(e[1].pos, e[1].size)
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
	require.ErrorContains(t, err, path)
	_, ref, err := l.Read(e[0].pos, e[0].size)
	require.NoError(t, err, "it lies in the page that is left")
	ref.Release()
}

// contents are the files of a log.
func contents(t *testing.T, fs *memfs.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, err := fs.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		b, err := vfs.ReadFile(fs, filepath.Join(dir, name))
		require.NoError(t, err)
		out[name] = string(b)
	}
	return out
}
