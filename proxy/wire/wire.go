// Package wire reads and writes the public protocol's messages as bytes, without generated code:
// a request is scanned once and its fields become sub-slices of it, a reply is appended field by
// field. Bodies and properties are never decoded and encoded again; what a client wrote is what a
// consumer gets. Nothing here allocates for a message of the usual form.
//
// The rules are those of protobuf: the last value of a singular field counts, a sub-message that
// occurs again is merged, unknown fields (groups too) are skipped, broken bytes and strings that are
// not UTF-8 are an error. Tests compare every decoder with protobuf-go. All slices that decoding
// returns alias the request.
package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Error says why bytes are not the message they should be.
type Error string

// Error returns the text.
func (e Error) Error() string { return string(e) }

// Errors of decoding.
const (
	ErrMalformed Error = "request is not valid protobuf"
	ErrUTF8      Error = "request has a string that is not valid UTF-8"
	ErrTooMany   Error = "request has more than 16384 entries"
)

// MaxEntries is how many messages or handles a request may have: two bytes of a request must not
// become hundreds of ours without end.
const MaxEntries = 16384

// Wire types of protobuf that the decoders ask for.
const (
	typeVarint = 0
	typeFixed8 = 1
	typeBytes  = 2
	typeGroup  = 3
	typeFixed4 = 5
)

// field is one field of a message as found.
type field struct {
	num  int32
	typ  uint8
	val  uint64 // of a varint
	data []byte // content of a length-delimited field
	raw  []byte // the whole field, tag included
}

// is reports whether the field has the number and the wire type. One with another wire type is an
// unknown field, as in protobuf.
func (f *field) is(num int32, typ uint8) bool { return f.num == num && f.typ == typ }

// reader goes through the fields of one message.
type reader struct {
	b   []byte
	err error
}

// next reads the next field; false at the end or at broken bytes, which err tells apart.
func (r *reader) next(f *field) bool {
	b := r.b
	if len(b) == 0 {
		return false
	}
	tag, n := uint64(b[0]), 1
	if tag >= 0x80 {
		tag, n = protowire.ConsumeVarint(b)
	}
	if n < 0 || tag>>3 < uint64(protowire.MinValidNumber) || tag>>3 > uint64(protowire.MaxValidNumber) {
		return r.fail()
	}
	f.num, f.typ, f.data = int32(tag>>3), uint8(tag&7), nil
	size := 0 // of the value
	switch f.typ {
	case typeVarint:
		f.val, size = varint(b[n:])
	case typeBytes:
		f.data, size = protowire.ConsumeBytes(b[n:])
	default: // fixed sizes and groups are never asked for; a lone end of a group is an error
		size = protowire.ConsumeFieldValue(protowire.Number(f.num), protowire.Type(f.typ), b[n:])
	}
	if size < 0 {
		return r.fail()
	}
	f.raw, r.b = b[:n+size], b[n+size:]
	return true
}

func (r *reader) fail() bool {
	r.b, r.err = nil, ErrMalformed
	return false
}

func varint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return protowire.ConsumeVarint(b)
}

// text sets dst to the field's content and reports an error if that is not UTF-8.
func (r *reader) text(dst *[]byte, f *field) {
	if !utf8.Valid(f.data) {
		r.b, r.err = nil, ErrUTF8
		return
	}
	*dst = f.data
}

// also stops the reader if err is not nil, so that a fault in a sub-message ends the whole.
func (r *reader) also(err error) {
	if err != nil {
		r.b, r.err = nil, err
	}
}
