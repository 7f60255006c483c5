// Package codec is the binary form of internal/brokerapi on the link between a proxy and a broker:
// requests, replies, errors and events.
//
// The form belongs to version 1 of the link (docs/format/link.md) and has no version of its own.
// Numbers are varints (zigzag where they may be negative), hashes and digests fixed, byte strings
// have their length in front. A decoder takes sub-slices of its input, so the input must stay as long
// as what was decoded from it. Deadlines are not part of it: the link carries the remaining time.
//
// Every decoder accepts any bytes: it returns an error of kind Invalid for what no encoder writes,
// and never allocates more than a small multiple of its input.
package codec

import (
	"encoding/binary"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Op is the number of a call. Numbers go over the wire: append only.
type Op uint8

// The calls of brokerapi.Broker.
const (
	OpSend          Op = 1
	OpPop           Op = 2
	OpAck           Op = 3
	OpChange        Op = 4
	OpAlive         Op = 5
	OpEndSession    Op = 6
	OpDescribeGroup Op = 7
	OpDescribeTopic Op = 8
	OpEndTxn        Op = 9
	OpChecks        Op = 10
	OpRecall        Op = 11
	OpForward       Op = 12
	OpPull          Op = 13
	// The calls from here on have JSON as their form.
	OpProducers  Op = 14
	OpSetOffsets Op = 15
	OpOffset     Op = 16
	OpReset      Op = 17
	OpSyncLite   Op = 18
	OpLiteGone   Op = 19
	OpRedrive    Op = 20
	OpFind       Op = 21
	OpTrace      Op = 22
	OpDrain      Op = 23
	OpLiteList   Op = 24
)

// ListMax is how many messages, handles or other parts one request or reply may have.
const ListMax = 1 << 16

// spanMin is the length from which a byte string is taken over by reference instead of being copied.
const spanMin = 256

// Encoder gathers the parts of one message: small fields in a buffer of its own, long byte strings by
// reference, so that these are copied only once, into the packet. The zero value is ready for use.
type Encoder struct {
	meta  []byte
	spans []span
	size  int // of all spans
}

type span struct {
	at    int // offset in meta before which it stands
	bytes []byte
}

// Parts returns the message: its concatenated parts. They refer to the byte strings that were
// encoded.
func (e *Encoder) Parts() [][]byte {
	if len(e.spans) == 0 {
		return [][]byte{e.meta}
	}
	parts := make([][]byte, 0, 2*len(e.spans)+1)
	at := 0
	for _, s := range e.spans {
		if s.at > at {
			parts = append(parts, e.meta[at:s.at])
			at = s.at
		}
		parts = append(parts, s.bytes)
	}
	if at < len(e.meta) {
		parts = append(parts, e.meta[at:])
	}
	return parts
}

// Size is the length of the message in bytes.
func (e *Encoder) Size() int { return len(e.meta) + e.size }

func (e *Encoder) byte(b byte) { e.meta = append(e.meta, b) }

func (e *Encoder) uint(v uint64) { e.meta = binary.AppendUvarint(e.meta, v) }

func (e *Encoder) int(v int64) { e.meta = binary.AppendVarint(e.meta, v) }

func (e *Encoder) fixed64(v uint64) { e.meta = binary.LittleEndian.AppendUint64(e.meta, v) }

func (e *Encoder) text(s string) {
	e.uint(uint64(len(s)))
	e.meta = append(e.meta, s...)
}

func (e *Encoder) bytes(b []byte) {
	e.uint(uint64(len(b)))
	if len(b) < spanMin {
		e.meta = append(e.meta, b...)
		return
	}
	e.spans = append(e.spans, span{at: len(e.meta), bytes: b})
	e.size += len(b)
}

// grow makes room for n bytes of small fields and k long byte strings.
func (e *Encoder) grow(n, k int) {
	if e.meta == nil {
		e.meta = make([]byte, 0, n)
	}
	if e.spans == nil && k > 0 {
		e.spans = make([]span, 0, k)
	}
}

// decoder reads fields from the front of b. After the first field that is not there every read gives
// zero, and end reports the failure.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) fail() {
	d.bad = true
	d.b = nil
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// uintMax reads a number that is at most limit.
func (d *decoder) uintMax(limit uint64) uint64 {
	v := d.uint()
	if v > limit {
		d.fail()
		return 0
	}
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int32() int32 {
	v := d.int()
	if v != int64(int32(v)) {
		d.fail()
		return 0
	}
	return int32(v)
}

func (d *decoder) fixed64() uint64 {
	b := d.take(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// take returns the next n bytes, nil if there are fewer.
func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// bytes reads a byte string; an empty one is nil.
func (d *decoder) bytes() []byte {
	n := d.uint()
	if n == 0 {
		return nil
	}
	return d.take(n)
}

func (d *decoder) text() string { return string(d.bytes()) }

func (d *decoder) bool() bool {
	switch d.byte() {
	case 0:
		return false
	case 1:
		return true
	}
	d.fail()
	return false
}

// count reads the length of a list whose parts take at least size bytes each.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > ListMax || n*uint64(size) > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(n)
}

// end tells whether the input was exactly one whole message.
func (d *decoder) end(what string) error {
	switch {
	case d.bad:
		return mqerr.New(mqerr.Invalid, "%s that cannot be decoded", what)
	case len(d.b) > 0:
		return mqerr.New(mqerr.Invalid, "%s with %d bytes too many", what, len(d.b))
	}
	return nil
}

// listed refuses lists that the decoder of the peer would refuse.
func listed(n int, what string) error {
	if n > ListMax {
		return mqerr.New(mqerr.Invalid, "%d %s in one request, at most %d", n, what, ListMax)
	}
	return nil
}
