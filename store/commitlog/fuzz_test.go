package commitlog_test

import (
	"path/filepath"
	"testing"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// FuzzRecover takes any bytes for a segment: recovery ends, what it shows is verified, and a second one
// finds the same.
func FuzzRecover(f *testing.F) {
	fs := memfs.New()
	l, _ := mustStart(f, options(fs))
	mustAppend(f, l, true, body(1, 100), body(2, 200))
	mustAppend(f, l, false, body(3, 300))
	l.Kill()
	data, err := vfs.ReadFile(fs, filepath.Join(dir, segment.Name(0)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:l.Written()])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		data := make([]byte, segBytes)
		copy(data, b)
		fs := memfs.New()
		if err := fs.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := vfs.ReplaceFile(fs, filepath.Join(dir, segment.Name(0)), data); err != nil {
			t.Fatal(err)
		}
		l, found, err := start(options(fs))
		if err != nil {
			if !mqerr.Is(err, mqerr.Unsupported) && !mqerr.Is(err, mqerr.Corrupt) {
				t.Fatal(err)
			}
			return
		}
		l.Kill()
		l, again, err := start(options(fs))
		if err != nil {
			t.Fatal(err)
		}
		l.Kill()
		requireSame(t, found, again, "again")
	})
}

func FuzzMark(f *testing.F) {
	f.Add(commitlog.EncodeMark(1, 4096))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		pos, whole, err := commitlog.DecodeMark(b)
		if err == nil && pos < 0 || !whole && pos != 0 || err != nil && !mqerr.Is(err, mqerr.Unsupported) {
			t.Fatalf("%d, %v", pos, err)
		}
		if pos > 0 && string(commitlog.EncodeMark(1, pos)) != string(b[:20]) {
			t.Fatalf("%d is of another mark", pos)
		}
	})
}

func FuzzHoles(f *testing.F) {
	for _, holes := range [][]commitlog.Hole{{}, {{From: 0, To: 8, File: "a", Why: "b"}, {From: 16, To: 4096, Offset: 16}}} {
		b, err := commitlog.EncodeHoles(holes)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		holes, err := commitlog.DecodeHoles(b)
		if err != nil && !mqerr.Is(err, mqerr.Unsupported) && !mqerr.Is(err, mqerr.Corrupt) {
			t.Fatal(err)
		}
		last := record.Pos(-1)
		for _, h := range holes {
			if h.From <= last || h.Bytes() <= 0 {
				t.Fatalf("%v", holes)
			}
			last = h.To
		}
	})
}
