package commitlog

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// Chunk is a run of whole records as they lie in the log, for a log that is to be the same, byte for byte.
// Batches (FlagMore) are whole, all records are of one epoch, and Pads are among them.
type Chunk struct {
	Start, End record.Pos
	Epoch      record.Epoch
	// Bytes are the records without gaps; of a Pad only its header, the rest is zero.
	Bytes []byte
	// Segments are the ends of the segments that the records lie in, in order. The first one is that of the
	// segment which holds Start, each further one begins at the end before.
	Segments []record.Pos
}

// Each gives the records to fn, in order. Their bodies alias Bytes.
func (c *Chunk) Each(fn func(record.Record) error) error {
	for lo := 0; lo < len(c.Bytes); {
		r, err := decode(c.Bytes[lo:])
		if err != nil {
			return err
		}
		if err := fn(r); err != nil {
			return err
		}
		lo += r.Stored()
	}
	return nil
}

// ChunkReader reads a log from a record on, chunk by chunk, each record verified. It is for one goroutine, and
// may read beside the one that appends.
type ChunkReader struct {
	l   *Log
	pos record.Pos
	to  record.Pos // of the present Next: nothing behind it is read
	buf []byte     // bytes from lo on, of a segment that is not mapped
	lo  record.Pos
	out []byte
	end []record.Pos
}

// Chunks returns a reader that begins at a record.
func (l *Log) Chunks(from record.Pos) *ChunkReader { return &ChunkReader{l: l, pos: from} }

// Pos is where the next chunk begins.
func (r *ChunkReader) Pos() record.Pos { return r.pos }

// Into gives the reader memory for the chunk that comes next, which is the caller's with it; a chunk that needs
// more has other memory.
func (r *ChunkReader) Into(b []byte) { r.out = b[:0] }

// Next returns the records from Pos on up to a position, the end of a record at or below Written: at most n
// bytes, but at least one record with its whole batch. It is empty at that position. Its bytes are valid until
// the call after. An error of kind NotFound says that the position was deleted, one of kind Corrupt that a
// record is damaged or lost; neither moves the reader.
func (r *ChunkReader) Next(to record.Pos, n int) (Chunk, error) {
	c := Chunk{Start: r.pos, End: r.pos}
	r.out, r.end, r.to = r.out[:0], r.end[:0], to
	if first := r.l.First(); r.pos < first {
		return c, r.l.deleted(r.pos)
	}
	pos, chain := r.pos, false
	for pos < to {
		in, err := r.segment(pos)
		if err != nil {
			return r.upTo(c, err)
		}
		r.end = append(r.end, in.seg.End())
		for pos < min(to, in.seg.End()) {
			h, b, err := r.record(in, pos)
			if err != nil {
				in.view.Release()
				return r.upTo(c, err)
			}
			if c.End > c.Start && (h.Epoch != c.Epoch || !chain && len(c.Bytes)+len(b) > n) {
				in.view.Release()
				return r.done(c), nil
			}
			c.Epoch = h.Epoch
			r.out = append(r.out, b...)
			pos = h.End()
			if h.Type != record.TypePad {
				chain = h.Flags&record.FlagMore != 0
			}
			if !chain {
				c.End, c.Bytes, c.Segments = pos, r.out, r.end
			}
		}
		in.view.Release()
	}
	if chain {
		return c, mqerr.New(mqerr.Internal, "position %d is within a batch", to)
	}
	return r.done(c), nil
}

// done moves the reader behind a chunk.
func (r *ChunkReader) done(c Chunk) Chunk {
	r.pos = c.End
	return c
}

// upTo returns what was read before an error, or the error if that is nothing.
func (r *ChunkReader) upTo(c Chunk, err error) (Chunk, error) {
	if c.End > c.Start {
		return r.done(c), nil
	}
	return c, err
}

// source is a segment with a view of it, if it is mapped.
type source struct {
	seg    *segment.Segment
	view   segment.View
	mapped bool
}

// segment returns the one that holds pos.
func (r *ChunkReader) segment(pos record.Pos) (source, error) {
	if h, in := holeAt(r.l.Holes(), pos); in {
		return source{}, mqerr.New(mqerr.Corrupt, "position %d is lost: %s", pos, h)
	}
	s := r.l.find(pos)
	switch {
	case s != nil:
		v, ok := s.View()
		return source{s, v, ok}, nil
	case pos < r.l.First():
		return source{}, r.l.deleted(pos)
	}
	return source{}, mqerr.New(mqerr.Corrupt, "%s: no file holds position %d", r.l.o.Dir, pos)
}

// record returns the header and the stored bytes of the record at pos, verified. What the disk cannot read is Corrupt.
func (r *ChunkReader) record(in source, pos record.Pos) (h record.Header, b []byte, err error) {
	if !in.mapped {
		return r.verified(in, pos)
	}
	if lost := in.view.Guard(func() error { h, b, err = r.verified(in, pos); return nil }); lost != nil {
		err = at(in.seg, pos, lost)
	}
	return h, b, err
}

func (r *ChunkReader) verified(in source, pos record.Pos) (record.Header, []byte, error) {
	head, err := r.bytes(in, pos, record.HeaderSize)
	if err != nil {
		return record.Header{}, nil, err
	}
	h, err := check(head, pos, 0)
	if err == nil && h.End() > in.seg.End() {
		err = mqerr.New(mqerr.Corrupt, "its %d bytes go beyond the segment", h.Size)
	}
	if err != nil {
		return h, nil, at(in.seg, pos, err)
	}
	b, err := r.bytes(in, pos, h.Stored())
	if err != nil {
		return h, nil, err
	}
	if err := h.Check(b); err != nil {
		return h, nil, at(in.seg, pos, err)
	}
	return h, b, nil
}

// bytes returns n bytes of a segment. Nothing is read ahead behind where the caller wants to go: it may be cut
// there, and written anew, before the next call.
func (r *ChunkReader) bytes(in source, pos record.Pos, n int) ([]byte, error) {
	s := in.seg
	if pos+record.Pos(n) > s.End() {
		return nil, at(in.seg, pos, mqerr.New(mqerr.Corrupt, "the segment ends within the record"))
	}
	if in.mapped {
		return in.view.Bytes(pos, n), nil
	}
	off := int(pos - r.lo)
	if pos < r.lo || off+n > len(r.buf) {
		want := max(n, int(min(scanBytes, s.End()-pos, max(0, r.to-pos))))
		if cap(r.buf) < want {
			r.buf = make([]byte, want)
		}
		r.buf, r.lo, off = r.buf[:want], pos, 0
		if err := s.ReadAt(r.buf, pos); err != nil {
			r.buf = r.buf[:0]
			return nil, err
		}
	}
	return r.buf[off : off+n], nil
}
