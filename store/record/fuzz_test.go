package record_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// fuzz feeds any bytes to a decoder: it must not panic, refuses with Corrupt, and what it takes is
// written and read again as the same value.
func fuzz(f *testing.F, typ record.Type) {
	var k kind
	for _, one := range kinds {
		if one.typ == typ {
			k = one
			f.Add(k.encode(k.sample))
		}
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := k.decode(b)
		if err != nil {
			if !mqerr.Is(err, mqerr.Corrupt) {
				t.Fatalf("%v", err)
			}
			return
		}
		again, err := k.decode(k.encode(v))
		if err != nil || !reflect.DeepEqual(v, again) {
			t.Fatalf("%#v became %#v, %v", v, again, err)
		}
	})
}

func FuzzMsg(f *testing.F)        { fuzz(f, record.TypeMsg) }
func FuzzPopCk(f *testing.F)      { fuzz(f, record.TypePopCk) }
func FuzzPopAck(f *testing.F)     { fuzz(f, record.TypePopAck) }
func FuzzPopChange(f *testing.F)  { fuzz(f, record.TypePopChange) }
func FuzzDeliver(f *testing.F)    { fuzz(f, record.TypeDeliver) }
func FuzzTxnEnd(f *testing.F)     { fuzz(f, record.TypeTxnEnd) }
func FuzzTxnCheck(f *testing.F)   { fuzz(f, record.TypeTxnCheck) }
func FuzzRecall(f *testing.F)     { fuzz(f, record.TypeRecall) }
func FuzzDead(f *testing.F)       { fuzz(f, record.TypeDead) }
func FuzzOffset(f *testing.F)     { fuzz(f, record.TypeOffset) }
func FuzzMeta(f *testing.F)       { fuzz(f, record.TypeMeta) }
func FuzzEpoch(f *testing.F)      { fuzz(f, record.TypeEpoch) }
func FuzzMove(f *testing.F)       { fuzz(f, record.TypeMove) }
func FuzzSnapshot(f *testing.F)   { fuzz(f, record.TypeSnapshot) }
func FuzzSessionEnd(f *testing.F) { fuzz(f, record.TypeSessionEnd) }
func FuzzSkip(f *testing.F)       { fuzz(f, record.TypeSkip) }
func FuzzTrim(f *testing.F)       { fuzz(f, record.TypeTrim) }

// FuzzUnwrap feeds any bytes as the body of a MOVE: what is taken out of it goes in again.
func FuzzUnwrap(f *testing.F) {
	for _, k := range kinds {
		if k.typ == record.TypeMove {
			f.Add(k.encode(k.sample))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := record.Unwrap(record.Record{Header: record.Header{Type: record.TypeMove}, Body: b})
		if err != nil {
			if !mqerr.Is(err, mqerr.Corrupt) && !mqerr.Is(err, mqerr.Unsupported) {
				t.Fatalf("%v", err)
			}
			return
		}
		m := record.Wrap(&r)
		again := make([]byte, record.MoveSize(&m))
		record.PutMove(again, &m)
		if !bytes.Equal(b, again) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

// FuzzRecord feeds any bytes to the header and checksum; seeds are whole records.
func FuzzRecord(f *testing.F) {
	for _, k := range kinds {
		f.Add(whole(k.typ, k.encode(k.sample)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := record.DecodeHeader(b); err != nil && !mqerr.Is(err, mqerr.Corrupt) {
			t.Fatalf("%v", err)
		}
		r, err := record.Decode(b)
		if err == nil && (int(r.Size) > len(b) && r.Type != record.TypePad || len(r.Body) > len(b)) {
			t.Fatalf("record of %d bytes from %d", r.Size, len(b))
		}
		if err != nil && !mqerr.Is(err, mqerr.Corrupt) && !mqerr.Is(err, mqerr.Unsupported) {
			t.Fatalf("%v", err)
		}
	})
}
