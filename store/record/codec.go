package record

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// sink takes the fields of a body in order: with b nil it counts their bytes, else it appends them to
// b. So each type says its layout once, for its size and for its bytes.
type sink struct {
	b []byte
	n int
}

// start returns the sink that fills dst.
func start(dst []byte) sink { return sink{b: dst[:0:len(dst)]} }

// end checks that dst was filled exactly. Anything else is a bug of the caller: the size it took was
// another one's.
func (s *sink) end(dst []byte) {
	if len(s.b) != len(dst) {
		panic("record: the buffer was not made with the size of this body")
	}
}

func (s *sink) u8(v uint8) {
	if s.b == nil {
		s.n++
		return
	}
	s.b = append(s.b, v)
}

func (s *sink) u16(v uint16) {
	if s.b == nil {
		s.n += 2
		return
	}
	s.b = binary.LittleEndian.AppendUint16(s.b, v)
}

func (s *sink) u32(v uint32) {
	if s.b == nil {
		s.n += 4
		return
	}
	s.b = binary.LittleEndian.AppendUint32(s.b, v)
}

func (s *sink) u64(v uint64) {
	if s.b == nil {
		s.n += 8
		return
	}
	s.b = binary.LittleEndian.AppendUint64(s.b, v)
}

func (s *sink) raw(v []byte) {
	if s.b == nil {
		s.n += len(v)
		return
	}
	s.b = append(s.b, v...)
}

func (s *sink) uvarint(v uint64) {
	if s.b == nil {
		s.n += (bits.Len64(v|1) + 6) / 7
		return
	}
	s.b = binary.AppendUvarint(s.b, v)
}

// varint is for numbers of either sign, near 0.
func (s *sink) varint(v int64) { s.uvarint(uint64(v)<<1 ^ uint64(v>>63)) }

// num is for numbers that are never negative; one that is must not get into a log.
func (s *sink) num(v int64) {
	if v < 0 {
		panic("record: a negative number, or offsets that do not rise")
	}
	s.uvarint(uint64(v))
}

func (s *sink) bytes(v []byte) {
	s.uvarint(uint64(len(v)))
	s.raw(v)
}

// count is for numbers of items.
func (s *sink) count(n int) {
	if n > MaxItems {
		panic("record: more items than one record may have")
	}
	s.uvarint(uint64(n))
}

// source gives the fields of a body in order. After the first fault everything is zero and end tells.
type source struct {
	b     []byte
	bad   bool
	items int // read so far, of all lists
}

// end returns the error of a body that was not exactly what its type says.
func (s *source) end(t Type) error {
	switch {
	case s.bad:
		return mqerr.New(mqerr.Corrupt, "%s record: its body is not what the type says", t)
	case len(s.b) > 0:
		return mqerr.New(mqerr.Corrupt, "%s record: %d bytes too many in its body", t, len(s.b))
	}
	return nil
}

func (s *source) fail() {
	s.bad, s.b = true, nil
}

func (s *source) raw(n uint64) []byte {
	if n > uint64(len(s.b)) {
		s.fail()
		return nil
	}
	v := s.b[:n:n]
	s.b = s.b[n:]
	return v
}

func (s *source) u8() uint8 {
	if v := s.raw(1); v != nil {
		return v[0]
	}
	return 0
}

func (s *source) u16() uint16 {
	if v := s.raw(2); v != nil {
		return binary.LittleEndian.Uint16(v)
	}
	return 0
}

func (s *source) u32() uint32 {
	if v := s.raw(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (s *source) u64() uint64 {
	if v := s.raw(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

func (s *source) uvarint() uint64 {
	v, n := binary.Uvarint(s.b)
	if n <= 0 || (n > 1 && s.b[n-1] == 0) { // cut short, too long, or longer than needed
		s.fail()
		return 0
	}
	s.b = s.b[n:]
	return v
}

func (s *source) varint() int64 {
	v := s.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// num reads a number from 0 to limit.
func (s *source) num(limit int64) int64 {
	v := s.uvarint()
	if v > uint64(limit) {
		s.fail()
		return 0
	}
	return int64(v)
}

func (s *source) id32() uint32 { return uint32(s.num(math.MaxUint32)) }

func (s *source) queue() QueueID { return QueueID(s.num(math.MaxInt32)) }

func (s *source) offset() QueueOffset { return QueueOffset(s.num(math.MaxInt64)) }

func (s *source) pos() Pos { return Pos(s.num(math.MaxInt64)) }

// span is raw, but nil for no bytes.
func (s *source) span(n uint64) []byte {
	if n == 0 {
		return nil
	}
	return s.raw(n)
}

func (s *source) bytes() []byte { return s.span(s.uvarint()) }

// flags reads a byte of which only the bits of known may be set.
func (s *source) flags(known uint8) uint8 {
	v := s.u8()
	if v&^known != 0 {
		s.fail()
		return 0
	}
	return v
}

// count reads a number of items, of at least size bytes each.
func (s *source) count(size int) int {
	n := s.num(MaxItems)
	if s.items += int(n); s.items > MaxItems || n*int64(size) > int64(len(s.b)) {
		s.fail()
		return 0
	}
	return int(n)
}
