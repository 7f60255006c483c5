package commitlog

import (
	"encoding/binary"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// finder looks for the next whole record behind damage. Each record has its own position in its header,
// so nothing else passes for one: bytes of a message that look like a record would have to name the very
// place they were stored at, and to fit the checksum.
type finder struct {
	segs   []*segment.Segment
	epoch  record.Epoch // of the last record before the damage
	buf    []byte
	lo     record.Pos // of buf
	narrow record.Pos // a read that went up to here met something that the disk cannot read
	body   []byte
}

// next returns the position of the first whole record behind pos; false if there is none.
func (f *finder) next(pos record.Pos) (record.Pos, bool, error) {
	for _, s := range f.segs {
		if s.End() <= pos {
			continue
		}
		if pos < s.Base() {
			if at, ok, err := f.in(s, s.Base()); ok || err != nil {
				return at, ok, err
			}
			continue
		}
		said, believed, err := f.behind(s, pos)
		if err != nil {
			return 0, false, err
		}
		at, ok, err := f.in(s, pos+record.Align)
		if err != nil {
			return 0, false, err
		}
		if believed && at < said {
			only, err := f.sizeOnly(s, pos, at)
			if err != nil || !only {
				return said, err == nil, err
			}
		}
		if ok {
			return at, true, nil
		}
	}
	return 0, false, nil
}

// behind tries the record at pos itself: if its header says what follows and a record is there, its body is
// damaged, and nothing in its body counts. The size may be what is damaged, and a record be there by chance:
// see sizeOnly.
func (f *finder) behind(s *segment.Segment, pos record.Pos) (record.Pos, bool, error) {
	var head [record.HeaderSize]byte
	if pos+record.HeaderSize > s.End() {
		return 0, false, nil
	}
	if err := s.ReadAt(head[:], pos); err != nil {
		return 0, false, unlessLost(err)
	}
	h, err := record.DecodeHeader(head[:])
	if err != nil || h.Pos != pos || h.End() >= s.End() {
		return 0, false, nil
	}
	ok, err := f.whole(s, h.End())
	return h.End(), ok, err
}

// sizeOnly tells whether the record at pos is whole but for its size, which should be up to at.
func (f *finder) sizeOnly(s *segment.Segment, pos, at record.Pos) (bool, error) {
	if at-pos > bodyBytesMax+record.HeaderSize {
		return false, nil
	}
	b := make([]byte, at-pos)
	if err := s.ReadAt(b, pos); err != nil {
		return false, unlessLost(err)
	}
	binary.LittleEndian.PutUint32(b[record.SizeOffset:], uint32(len(b)))
	h, err := record.DecodeHeader(b)
	return err == nil && h.Check(b) == nil, nil
}

// in looks through one segment.
func (f *finder) in(s *segment.Segment, pos record.Pos) (record.Pos, bool, error) {
	for ; pos+record.HeaderSize <= s.End(); pos += record.Align {
		if pos < f.lo || pos+record.HeaderSize > f.lo+record.Pos(len(f.buf)) {
			behind, err := f.load(s, pos)
			if err != nil {
				return 0, false, err
			}
			if behind > pos {
				pos = behind - record.Align
				continue
			}
		}
		if binary.LittleEndian.Uint64(f.buf[pos-f.lo+record.PosOffset:]) != uint64(pos) {
			continue
		}
		if ok, err := f.whole(s, pos); ok || err != nil {
			return pos, ok, err
		}
	}
	return 0, false, nil
}

// sectorBytes is the least that a disk loses.
const sectorBytes = 512

// load reads from pos on, a header at least. If the disk cannot, it returns where to go on behind that.
func (f *finder) load(s *segment.Segment, pos record.Pos) (behind record.Pos, err error) {
	sector := pos + record.Pos(sectorBytes-int64(pos-s.Base())%sectorBytes) // the end of the one that pos is in
	for _, end := range []record.Pos{pos + scanBytes, sector + record.HeaderSize, sector} {
		n := min(end, s.End()) - pos
		if end == pos+scanBytes && pos < f.narrow || n < record.HeaderSize {
			continue
		}
		if cap(f.buf) < scanBytes {
			f.buf = make([]byte, scanBytes)
		}
		f.buf, f.lo = f.buf[:n], pos
		if err = s.ReadAt(f.buf, pos); err == nil {
			return pos, nil
		}
		f.buf = f.buf[:0]
		if !mqerr.Is(err, mqerr.Corrupt) {
			return 0, err
		}
		f.narrow = max(f.narrow, pos+n)
	}
	return sector, nil
}

// unlessLost is an error of a read, nil if it is that the disk cannot read what was to be read.
func unlessLost(err error) error {
	if mqerr.Is(err, mqerr.Corrupt) {
		return nil
	}
	return err
}

// whole tells whether a record of this log stands at pos.
func (f *finder) whole(s *segment.Segment, pos record.Pos) (bool, error) {
	var head [record.HeaderSize]byte
	if pos+record.HeaderSize > s.End() {
		return false, nil
	}
	if err := s.ReadAt(head[:], pos); err != nil {
		return false, unlessLost(err)
	}
	h, err := record.DecodeHeader(head[:])
	if err != nil || h.Pos != pos || h.End() > s.End() || h.Epoch < f.epoch || h.Size > bodyBytesMax+record.HeaderSize {
		return false, nil
	}
	grow(&f.body, h.Stored())
	if err := s.ReadAt(f.body, pos); err != nil {
		return false, unlessLost(err)
	}
	return h.Check(f.body) == nil, nil
}

// Past is what ScanPast tells of damage: a hole that is known, or one that was just found.
type Past struct {
	Hole
	Known bool
}

// ScanPast is Scan that goes on behind damage: lost is told of each part that is skipped, in order with
// the records. Damage is what is no record below the position that Promised tells, or, if there is no mark,
// before a whole record; in a log that was recovered, what is no record below Written. It returns where it ended, and what stood there instead
// of a record, nil for nothing.
func (l *Log) ScanPast(from record.Pos, fn func(record.Record) error, lost func(Past) error) (end record.Pos, torn, err error) {
	promised, marked := l.Written(), true
	if promised == 0 {
		if promised, err = l.Promised(); err == nil {
			_, marked, err = readMark(l.o.FS, l.o.Dir)
		}
		if err != nil {
			return from, nil, err
		}
	}
	s := l.scanner(from)
	s.promised, s.skip, s.unmarked = promised, true, !marked
	if l.Written() > 0 {
		s.promised = min(promised, s.limit) // a batch that has come since is for others
	}
	defer s.leave()
	for {
		if s.in == nil && s.pos < l.First() {
			return s.pos, nil, l.deleted(s.pos)
		}
		r, ok, err := s.next()
		if err != nil && s.pos < l.First() {
			err = l.deleted(s.pos)
		}
		for _, h := range s.crossed() {
			if err := lost(h); err != nil {
				return s.pos, nil, err
			}
		}
		if err != nil || !ok {
			return s.pos, s.why, err
		}
		if err := fn(r); err != nil {
			return s.pos, nil, err
		}
	}
}

// errGap is what stands where a file is missing.
func errGap(from, to record.Pos) error {
	return mqerr.New(mqerr.Corrupt, "positions %d to %d are in no file", from, to)
}
