package commitlog

import (
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// batchKeepBytes is the largest buffer that a Batch keeps for the next time.
const batchKeepBytes = 8 << 20

// Batch is a run of records that one Write appends. It belongs to the goroutine that appends.
//
// For each record: Begin, fill the body, Seal. The records of a chain (FlagMore) must all be in one
// batch. A mistake is kept and returned by Write, which then writes nothing.
type Batch struct {
	l      *Log
	base   record.Pos
	pos    record.Pos // end of the last record
	segEnd record.Pos // end of the segment that pos is in
	buf    []byte
	pieces []piece
	open   int // start in buf of the record begun last, -1 if it is sealed
	head   record.Header
	last   Last
	epoch  record.Epoch
	time   int64
	chain  bool // the last record has FlagMore
	fault  error
}

// piece is the part of a batch that goes into one segment, from byte lo of the buffer on.
type piece struct {
	pos record.Pos
	lo  int
}

// NewBatch returns an empty batch. Keep it: it uses its memory again.
func (l *Log) NewBatch() *Batch {
	b := &Batch{l: l}
	b.Reset()
	return b
}

// Reset empties the batch and places it behind what is written.
func (b *Batch) Reset() {
	b.base = b.l.Written()
	b.pos, b.segEnd = b.base, record.Pos(b.l.tail.Load())
	if cap(b.buf) > batchKeepBytes {
		b.buf = nil
	}
	b.buf, b.pieces = b.buf[:0], b.pieces[:0]
	b.open, b.fault, b.chain, b.last = -1, nil, false, Last{Pos: -1}
	b.epoch, b.time = b.l.epoch, b.l.time
}

// Begin places a record of type, flags, epoch and time of h, and returns its position and its body to be
// filled, bodySize bytes of no particular content, valid until Seal. What does not fit in the segment
// goes to the next.
func (b *Batch) Begin(h record.Header, bodySize int) (record.Pos, []byte) {
	if !b.mayBegin(&h, bodySize) {
		return b.pos, make([]byte, max(bodySize, 0))
	}
	size := record.Pos(record.Total(bodySize))
	if size > b.segEnd-b.pos {
		b.roll(&h)
	}
	if rest := b.segEnd - b.pos - size; rest < record.HeaderSize {
		size += rest // no room for another record: this one ends the segment
	}
	if len(b.pieces) == 0 {
		b.pieces = append(b.pieces, piece{pos: b.pos, lo: len(b.buf)})
	}
	h.Pos, h.Size = b.pos, uint32(size)
	h.Tail = uint16(int(size) - record.HeaderSize - bodySize)
	b.open, b.head = len(b.buf), h
	b.epoch, b.time, b.chain = h.Epoch, h.Time, h.Flags&record.FlagMore != 0
	b.buf = slices.Grow(b.buf, int(size))[:b.open+int(size)]
	lo := b.open + record.HeaderSize
	return b.pos, b.buf[lo : lo+bodySize : lo+bodySize]
}

// mayBegin keeps what must never get into a log out of it.
func (b *Batch) mayBegin(h *record.Header, bodySize int) bool {
	switch {
	case b.fault != nil:
	case b.open >= 0:
		b.fault = mqerr.New(mqerr.Internal, "a record was begun before the one at %d was sealed", b.pos)
	case bodySize < 0 || bodySize > b.l.MaxBody():
		b.fault = mqerr.New(mqerr.Internal, "a record with a body of %d bytes was begun, the most is %d", bodySize, b.l.MaxBody())
	case h.Epoch < b.epoch || h.Time < b.time:
		b.fault = mqerr.New(mqerr.Internal, "a record of epoch %d and time %d was begun after one of epoch %d and time %d: neither may go back", h.Epoch, h.Time, b.epoch, b.time)
	}
	return b.fault == nil
}

// roll fills the rest of the segment with a Pad and goes to the next one.
func (b *Batch) roll(h *record.Header) {
	if rest := b.segEnd - b.pos; rest > 0 {
		if len(b.pieces) == 0 {
			b.pieces = append(b.pieces, piece{pos: b.pos, lo: len(b.buf)})
		}
		lo := len(b.buf)
		b.buf = slices.Grow(b.buf, record.HeaderSize)[:lo+record.HeaderSize]
		record.SealPad(b.buf[lo:], &record.Header{Size: uint32(rest), Pos: b.pos, Epoch: h.Epoch, Time: h.Time})
	}
	b.pos = b.segEnd
	b.segEnd += record.Pos(b.l.o.SegmentBytes)
	b.pieces = append(b.pieces, piece{pos: b.pos, lo: len(b.buf)})
}

// Seal completes the record begun last and returns its size in bytes, header included.
func (b *Batch) Seal() uint32 {
	if b.open < 0 || b.fault != nil {
		if b.fault == nil {
			b.fault = mqerr.New(mqerr.Internal, "a record was sealed that was not begun")
		}
		return 0
	}
	b.last = Last{Pos: b.head.Pos, Epoch: b.head.Epoch, CRC: record.Seal(b.buf[b.open:], &b.head)}
	b.open = -1
	b.pos += record.Pos(b.head.Size)
	return b.head.Size
}

// Size is how many bytes Write will write.
func (b *Batch) Size() int { return len(b.buf) }

// End is the position after the last record.
func (b *Batch) End() record.Pos { return b.pos }
