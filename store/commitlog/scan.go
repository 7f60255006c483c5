package commitlog

import (
	"bytes"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// scanBytes is how much a scanner reads at once, unless a record is longer. Where the disk cannot read something it is
// a page: what is lost are such, or parts of them.
const scanBytes = 1 << 20

var zeroHeader [record.HeaderSize]byte

// scanner reads records one after the other, verified, until something that is none.
type scanner struct {
	dir   string
	segs  []*segment.Segment
	pos   record.Pos // of the next record
	limit record.Pos // stop here
	epoch record.Epoch
	in    *segment.Segment // is held: it is read to its end, also if it leaves the log meanwhile
	holes []Hole           // those that are known
	// promised is the position below which what is no record is damage, and skip goes on behind it.
	promised record.Pos
	skip     bool
	// unmarked: no mark tells what was promised. Then what has a whole record behind it is damage, too.
	unmarked bool
	past     []Past // what was skipped since crossed

	buf    []byte // bytes from lo on
	lo     record.Pos
	narrow record.Pos // a read that went up to here met something that the disk cannot read
	why    error      // after the end: what stands there instead of a record, nil for nothing
	blind  bool       // why is that the disk cannot read it
}

// scanner returns one that reads the log from a record's position on and stops at damage.
func (l *Log) scanner(from record.Pos) *scanner {
	return &scanner{dir: l.o.Dir, segs: *l.segs.Load(), pos: from, limit: record.Pos(l.limit.Load()), holes: l.Holes()}
}

// next returns the next record, whose body is valid until the call after. ok is false at the end, and
// why tells if it is a good one. An error is of the disk, or of a record that a later release wrote.
func (s *scanner) next() (r record.Record, ok bool, err error) {
	for {
		if h, in := holeAt(s.holes, s.pos); in {
			s.past = append(s.past, Past{Hole: h, Known: true})
			s.pos, s.why = h.To, nil
		}
		r, ok, err = s.read()
		if ok || err != nil || !s.skip {
			return r, ok, err
		}
		if damage, err := s.inDamage(); err != nil || !damage {
			return r, false, err
		}
		if err := s.skipDamage(); err != nil {
			return r, false, err
		}
	}
}

// inDamage tells whether what stands at pos, which is no record, is damage and not the end.
func (s *scanner) inDamage() (bool, error) {
	if s.pos < s.promised || s.blind || !s.unmarked {
		return s.pos < s.promised || s.blind, nil
	}
	f := finder{segs: s.segs, epoch: s.epoch}
	at, ok, err := f.next(s.pos)
	if ok {
		s.promised = at
	}
	return ok, err
}

// skipDamage goes on with the next whole record, or with what was never promised.
func (s *scanner) skipDamage() error {
	h := s.damageAt()
	f := finder{segs: s.segs, epoch: s.epoch}
	to, ok, err := f.next(s.pos)
	if err != nil {
		return err
	}
	if !ok {
		to = (max(s.pos, s.promised) + record.Align - 1) &^ (record.Align - 1)
		if s.blind {
			if to, err = s.readable(to); err != nil {
				return err
			}
		}
	}
	for _, known := range s.holes { // what is known already is not found again
		if known.From > s.pos {
			to = min(to, known.From)
		}
	}
	h.To = to
	s.past, s.pos, s.why = append(s.past, Past{Hole: h}), to, nil
	return nil
}

// readable is pos, if the disk can read its page, or the begin of the next page that it can, or the end of the file: who
// appends within a page reads the rest of it.
func (s *scanner) readable(pos record.Pos) (record.Pos, error) {
	i := slices.IndexFunc(s.segs, func(seg *segment.Segment) bool { return pos >= seg.Base() && pos < seg.End() })
	if i < 0 {
		return pos, nil
	}
	seg, page := s.segs[i], make([]byte, pageBytes)
	for at := pos - (pos-seg.Base())%pageBytes; at < seg.End(); at += pageBytes {
		err := seg.ReadAt(page[:min(pageBytes, seg.End()-at)], at)
		if !mqerr.Is(err, mqerr.Corrupt) {
			return max(pos, at), err
		}
	}
	return seg.End(), nil
}

// damageAt describes what stands at pos instead of a record.
func (s *scanner) damageAt() Hole {
	h := Hole{From: s.pos, File: s.dir, Offset: int64(s.pos), Why: "nothing was written here"}
	if len(s.segs) > 0 && s.pos >= s.segs[0].Base() {
		h.File, h.Offset = s.segs[0].Path(), int64(s.pos-s.segs[0].Base())
	}
	if s.why != nil {
		h.Why = s.why.Error()
	}
	return h
}

// crossed returns what was skipped since it was asked last.
func (s *scanner) crossed() []Past {
	p := s.past
	s.past = nil
	return p
}

func (s *scanner) read() (r record.Record, ok bool, err error) {
	for len(s.segs) > 0 && s.pos >= s.segs[0].End() {
		s.segs = s.segs[1:]
	}
	if s.why, s.blind = nil, false; len(s.segs) == 0 || s.pos >= s.limit {
		return r, false, nil
	}
	seg := s.segs[0]
	if s.pos < seg.Base() {
		s.why = errGap(s.pos, seg.Base())
		return r, false, nil
	}
	if err := s.enter(seg); err != nil {
		return r, false, err
	}
	head, err := s.bytes(seg, record.HeaderSize)
	if err != nil || s.blind {
		return r, false, err
	}
	if head == nil {
		s.why = mqerr.New(mqerr.Corrupt, "the segment ends within a record header")
		return r, false, nil
	}
	if bytes.Equal(head, zeroHeader[:]) {
		return r, false, nil
	}
	if r.Header, s.why = s.header(seg, head); s.why != nil {
		return r, false, nil
	}
	b, err := s.bytes(seg, r.Stored())
	if err != nil || s.blind {
		return r, false, err
	}
	if s.why = r.Check(b); s.why != nil {
		return r, false, nil
	}
	r, err = record.Decode(b)
	if err != nil { // it is whole, so it is of a later release
		return r, false, err
	}
	s.pos, s.epoch = r.End(), r.Epoch
	return r, true, nil
}

// enter holds the segment that pos is in, and lets go of the one before.
func (s *scanner) enter(seg *segment.Segment) error {
	if s.in == seg {
		return nil
	}
	s.leave()
	if !seg.Hold() {
		return mqerr.New(mqerr.Unavailable, "%s was closed while the log was read", seg.Path())
	}
	s.in = seg
	return nil
}

// leave must follow the last call of next.
func (s *scanner) leave() {
	if s.in != nil {
		s.in.Release()
		s.in = nil
	}
}

// header reads the header at pos and checks that a record of this log can begin so.
func (s *scanner) header(seg *segment.Segment, head []byte) (record.Header, error) {
	h, err := record.DecodeHeader(head)
	switch {
	case err != nil:
		return h, err
	case h.Pos != s.pos:
		return h, mqerr.New(mqerr.Corrupt, "its header is of position %d", h.Pos)
	case h.End() > seg.End():
		return h, mqerr.New(mqerr.Corrupt, "its %d bytes go beyond the segment", h.Size)
	case h.Epoch < s.epoch:
		return h, mqerr.New(mqerr.Corrupt, "its epoch %d is older than epoch %d before it", h.Epoch, s.epoch)
	}
	return h, nil
}

// bytes returns n bytes from pos on, nil if the segment ends before, or if the disk cannot read them: then blind is
// set, and why. What was read ahead does not count.
func (s *scanner) bytes(seg *segment.Segment, n int) ([]byte, error) {
	if s.pos+record.Pos(n) > seg.End() {
		return nil, nil
	}
	off := int(s.pos - s.lo)
	if s.pos < s.lo || off+n > len(s.buf) {
		ahead := scanBytes
		if s.pos < s.narrow {
			ahead = pageBytes
		}
		want := min(record.Pos(max(n, ahead)), seg.End()-s.pos)
		if cap(s.buf) < int(want) {
			s.buf = make([]byte, want)
		}
		s.buf, s.lo, off = s.buf[:want], s.pos, 0
		err := seg.ReadAt(s.buf, s.pos)
		if mqerr.Is(err, mqerr.Corrupt) && int(want) > n {
			s.narrow = max(s.narrow, s.pos+want)
			s.buf = s.buf[:n]
			err = seg.ReadAt(s.buf, s.pos)
		}
		if err != nil {
			s.buf = s.buf[:0]
		}
		if mqerr.Is(err, mqerr.Corrupt) {
			s.why, s.blind = err, true
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return s.buf[off : off+n], nil
}

// where names the position of the next record for people.
func (l *Log) where(pos record.Pos) string {
	if s := l.find(pos); s != nil {
		return s.Where(pos)
	}
	return l.o.Dir
}

// Scan reads the records from a record's position on, verified, until the end of the log or fn returns
// an error, which it returns. Bodies are valid until fn returns. A position that was deleted is an error of
// kind NotFound, also if that happens on the way; the file that is being read is read to its end. If the log was not recovered, bytes
// that are no record end it with an error of kind Corrupt that names the place: what a crash may leave
// behind is told apart from damage by Recover only. Holes that are known are passed over.
func (l *Log) Scan(from record.Pos, fn func(record.Record) error) error {
	s := l.scanner(from)
	defer s.leave()
	for {
		if s.in == nil && s.pos < l.First() {
			return l.deleted(s.pos)
		}
		r, ok, err := s.next()
		switch {
		case err != nil && s.pos < l.First():
			return l.deleted(s.pos)
		case err != nil:
			return err
		case s.why != nil:
			return mqerr.New(mqerr.Corrupt, "%s: no whole record: %w", l.where(s.pos), s.why)
		case !ok:
			return nil
		}
		if err := fn(r); err != nil {
			return err
		}
	}
}
