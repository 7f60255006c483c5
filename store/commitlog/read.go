package commitlog

import (
	"sync"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// coldKeepBytes is the largest buffer kept for the next cold read.
const coldKeepBytes = 1 << 20

var coldBuffers = sync.Pool{New: func() any { return new([]byte) }}

// Ref keeps the bytes of a record that Read returned. The zero Ref keeps nothing.
type Ref struct {
	view segment.View
	cold *[]byte
}

// Release lets go of the bytes. It must be called exactly once.
func (r Ref) Release() {
	r.view.Release()
	if r.cold != nil && cap(*r.cold) <= coldKeepBytes {
		coldBuffers.Put(r.cold)
	}
}

// Hot tells whether a record is read without waiting for a disk, as far as one can know.
func (l *Log) Hot(pos record.Pos) bool {
	s := l.find(pos)
	return s != nil && s.Mapped()
}

// Read returns the record at a position, verified. size is its whole length as Seal returned it, or 0 if
// the caller does not know. The body is valid until the Ref is released. Damage, and what the disk cannot read, is an
// error of kind Corrupt, a position that was deleted, or that is in a hole, one of kind NotFound.
func (l *Log) Read(pos record.Pos, size uint32) (record.Record, Ref, error) {
	if pos < l.First() {
		return record.Record{}, Ref{}, l.deleted(pos)
	}
	r, ref, err := l.read(pos, size)
	if err != nil && pos < l.First() { // it went between the two looks
		err = l.deleted(pos)
	}
	return r, ref, err
}

func (l *Log) deleted(pos record.Pos) error {
	return mqerr.New(mqerr.NotFound, "position %d was deleted, the log begins at %d", pos, l.First())
}

func (l *Log) read(pos record.Pos, size uint32) (record.Record, Ref, error) {
	if h, in := holeAt(l.Holes(), pos); in {
		return record.Record{}, Ref{}, mqerr.New(mqerr.NotFound, "position %d is lost: %s", pos, h)
	}
	s := l.find(pos)
	if end := pos + record.Pos(max(size, record.HeaderSize)); s == nil || end > s.End() || end > record.Pos(l.limit.Load()) {
		return record.Record{}, Ref{}, mqerr.New(mqerr.Corrupt, "%s: there is no record of %d bytes, the log ends at %d", l.where(pos), size, l.limit.Load())
	}
	if v, ok := s.View(); ok {
		return l.readHot(s, v, pos, size)
	}
	return l.readCold(s, pos, size)
}

func (l *Log) readHot(s *segment.Segment, v segment.View, pos record.Pos, size uint32) (record.Record, Ref, error) {
	var r record.Record
	err := v.Guard(func() error {
		h, err := check(v.Bytes(pos, record.HeaderSize), pos, size)
		if err == nil {
			r, err = decode(v.Bytes(pos, h.Stored()))
		}
		return err
	})
	if err == nil {
		return r, Ref{view: v}, nil
	}
	v.Release()
	return record.Record{}, Ref{}, at(s, pos, err)
}

func (l *Log) readCold(s *segment.Segment, pos record.Pos, size uint32) (record.Record, Ref, error) {
	l.cold <- struct{}{}
	defer func() { <-l.cold }()
	buf := coldBuffers.Get().(*[]byte)
	n := int(size)
	if n == 0 {
		grow(buf, record.HeaderSize)
		if err := s.ReadAt(*buf, pos); err != nil {
			return record.Record{}, Ref{}, err
		}
		h, err := check(*buf, pos, 0)
		if err != nil {
			return record.Record{}, Ref{}, at(s, pos, err)
		}
		n = h.Stored()
	}
	grow(buf, n)
	if err := s.ReadAt(*buf, pos); err != nil {
		return record.Record{}, Ref{}, err
	}
	_, err := check(*buf, pos, size)
	if err == nil {
		var r record.Record
		if r, err = decode(*buf); err == nil {
			return r, Ref{cold: buf}, nil
		}
	}
	return record.Record{}, Ref{}, at(s, pos, err)
}

func grow(buf *[]byte, n int) {
	if cap(*buf) < n {
		*buf = make([]byte, n)
	}
	*buf = (*buf)[:n]
}

// check reads the header of the record that should stand at pos.
func check(head []byte, pos record.Pos, size uint32) (record.Header, error) {
	h, err := record.DecodeHeader(head)
	switch {
	case err != nil:
	case h.Pos != pos:
		err = mqerr.New(mqerr.Corrupt, "its header is of position %d", h.Pos)
	case size != 0 && h.Size != size:
		err = mqerr.New(mqerr.Corrupt, "its header says %d bytes, expected %d", h.Size, size)
	}
	return h, err
}

// decode is record.Decode, with an error for bytes that end before the record.
func decode(b []byte) (record.Record, error) {
	if b == nil {
		return record.Record{}, mqerr.New(mqerr.Corrupt, "its bytes go beyond the segment")
	}
	return record.Decode(b)
}

// at names the place of what err is about.
func at(s *segment.Segment, pos record.Pos, err error) error {
	return mqerr.New(mqerr.KindOf(err), "%s: %w", s.Where(pos), err)
}
