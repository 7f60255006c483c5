package store

import (
	"testing"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/record"
)

func FuzzIdentity(f *testing.F) {
	f.Add([]byte(`{"format":1,"uuid":"000102030405060708090a0b0c0d0e0f","cluster_id":"c","shard":"a","replica":1}`))
	f.Add([]byte(`{"format":9}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := decodeIdentity(b, "identity.json")
		if err != nil && !mqerr.Is(err, mqerr.Corrupt) && !mqerr.Is(err, mqerr.Unsupported) {
			t.Fatal(err)
		}
		if err == nil && (id.Format != FormatVersion || id.UUID == UUID{}) {
			t.Fatalf("%+v", id)
		}
	})
}

func FuzzPromise(f *testing.F) {
	f.Add([]byte(`{"epoch":7,"incarnation":3}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := memfs.New()
		if err := fs.MkdirAll("d"); err != nil {
			t.Fatal(err)
		}
		if err := vfs.ReplaceFile(fs, "d/promise.json", b); err != nil {
			t.Fatal(err)
		}
		if _, err := readPromise(fs, "d/promise.json"); err != nil && !mqerr.Is(err, mqerr.Corrupt) {
			t.Fatal(err)
		}
	})
}

// FuzzMarker: only a marker with its checksum vouches for an end.
func FuzzMarker(f *testing.F) {
	f.Add([]byte(`{"incarnation":1,"end":128,"last":64,"crc":5,"sum":"00000000"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := decodeMarker(b)
		if m != nil && (m.Last >= m.End || m.Sum != m.sum()) {
			t.Fatalf("%+v", m)
		}
	})
}

// FuzzOrigin gives any bytes to what reads of which log a checkpoint is.
func FuzzOrigin(f *testing.F) {
	f.Add([]byte(`{"format":1,"uuid":"000102030405060708090a0b0c0d0e0f","last":8,"epoch":2,"crc":77}`), int64(64))
	f.Add([]byte(`{"format":2,"last":8}`), int64(64))
	f.Add([]byte(`{"format":1,"last":-8}`), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, pos int64) {
		o, end, err := originOf(&checkpoint.Checkpoint{Pos: record.Pos(pos), Sections: []checkpoint.Section{{Name: originSection, Data: b}}})
		if err != nil {
			if !mqerr.Is(err, mqerr.Corrupt) && !mqerr.Is(err, mqerr.Unsupported) {
				t.Fatal(err)
			}
			return
		}
		if o.Format != originFormat || end.Pos < 0 || end.Pos >= end.End || end.End != record.Pos(pos) {
			t.Fatalf("%+v, %+v", o, end)
		}
	})
}

func FuzzCopying(f *testing.F) {
	f.Add([]byte(`{"at":4096,"emptied":true,"sum":"00000000"}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeCopying("copy.json", b)
		if err != nil && !mqerr.Is(err, mqerr.Corrupt) || err == nil && (c.At < 0 || c.At%record.Align != 0) {
			t.Fatal(c, err)
		}
	})
}
