package commitlog_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	dir      = "/log"
	segBytes = 16 << 10
)

func options(fs vfs.FS) commitlog.Options {
	return commitlog.Options{FS: fs, Dir: dir, SegmentBytes: segBytes}
}

// entry is a record as the tests remember it.
type entry struct {
	pos  record.Pos
	size uint32
	body []byte
	more bool
}

func (e entry) end() record.Pos { return e.pos + record.Pos(e.size) }

// start opens and recovers a log and returns what is in it.
func start(o commitlog.Options) (*commitlog.Log, []entry, error) {
	l, err := commitlog.Open(o)
	if err != nil {
		return nil, nil, err
	}
	entries, _, err := recoverFrom(l, l.First())
	if err != nil {
		l.Kill()
		return nil, nil, err
	}
	return l, entries, nil
}

func recoverFrom(l *commitlog.Log, from record.Pos) (entries []entry, r commitlog.Recovered, err error) {
	r, err = l.Recover(from, func(r record.Record) error {
		entries = append(entries, entry{r.Pos, r.Size, bytes.Clone(r.Body), r.Flags&record.FlagMore != 0})
		return nil
	})
	return entries, r, err
}

func mustStart(t testing.TB, o commitlog.Options) (*commitlog.Log, []entry) {
	t.Helper()
	l, entries, err := start(o)
	require.NoError(t, err)
	t.Cleanup(func() { l.Kill() })
	return l, entries
}

// appendTo writes bodies as one batch; chained makes it a chain.
func appendTo(l *commitlog.Log, epoch record.Epoch, chained bool, bodies ...[]byte) ([]entry, error) {
	b := l.NewBatch()
	var entries []entry
	for i, body := range bodies {
		h := record.Header{Type: record.TypeMsg, Epoch: epoch, Time: int64(b.End())}
		if chained && i < len(bodies)-1 {
			h.Flags = record.FlagMore
		}
		pos, dst := b.Begin(h, len(body))
		copy(dst, body)
		entries = append(entries, entry{pos, b.Seal(), body, h.Flags != 0})
	}
	return entries, l.Write(b)
}

func mustAppend(t testing.TB, l *commitlog.Log, chained bool, bodies ...[]byte) []entry {
	t.Helper()
	entries, err := appendTo(l, 1, chained, bodies...)
	require.NoError(t, err)
	return entries
}

// body is n bytes that differ from those of other numbers.
func body(number, n int) []byte {
	text := fmt.Appendf(nil, "%d.", number)
	return bytes.Repeat(text, n/len(text)+1)[:n]
}

// requireSame compares without printing thousands of bytes.
func requireSame(t testing.TB, want, got []entry, msg string) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%s: %d records, want %d", msg, len(got), len(want))
	}
	for i := range want {
		if want[i].pos != got[i].pos || want[i].size != got[i].size || want[i].more != got[i].more || !bytes.Equal(want[i].body, got[i].body) {
			t.Fatalf("%s: record %d at %d (%d bytes) differs from the one written at %d (%d bytes)", msg, i, got[i].pos, got[i].size, want[i].pos, want[i].size)
		}
	}
}

// poke changes a byte of the file that holds a position.
func poke(t testing.TB, fs vfs.FS, base, pos record.Pos) {
	t.Helper()
	f, err := fs.Open(filepath.Join(dir, fmt.Sprintf("%020d", base)))
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, int64(pos-base))
	require.NoError(t, err)
	b[0] ^= 0x40
	_, err = f.WriteAt(b, int64(pos-base))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
