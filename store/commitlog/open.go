package commitlog

import (
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// openSegments opens every segment and checks that they are of one log. Damage passes if it is to be
// skipped or only to be looked at, or if it is known.
func openSegments(o Options, holes []Hole) (segs []*segment.Segment, err error) {
	defer func() {
		if err != nil {
			for _, s := range segs {
				s.Close()
			}
		}
	}()
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, err
	}
	gone := lastGone(names)
	lenient := o.SkipDamage || o.ReadOnly
	for _, name := range names { // sorted, so by position
		base, ok := segment.ParseName(name)
		if !ok || base <= gone {
			continue
		}
		open := segment.Open
		if lenient || len(holes) > 0 {
			open = segment.OpenCut
		}
		s, err := open(o.FS, o.Dir, base, o.ReadOnly)
		if err != nil {
			return segs, err
		}
		segs = append(segs, s)
		if n := len(segs); n > 1 {
			if err := checkNeighbour(o, segs[n-2], s, lenient, holes); err != nil {
				return segs, err
			}
		}
		if _, known := holeAt(holes, base); lenient || known {
			continue
		}
		if err := checkHead(s); err != nil {
			return segs, err
		}
	}
	return segs, nil
}

func checkNeighbour(o Options, before, s *segment.Segment, lenient bool, holes []Hole) error {
	end := before.End()
	if end > s.Base() {
		return mqerr.New(mqerr.Corrupt, "log %s: %s goes up to position %d, but %s begins at %d: one of them is a copy or of another log; move it away",
			o.Dir, before.Path(), end, s.Path(), s.Base())
	}
	if h, known := holeAt(holes, end); end == s.Base() || lenient || known && h.To >= s.Base() {
		return nil
	}
	return mqerr.New(mqerr.Corrupt, "log %s: after %s comes %s, so what is from position %d on is missing or of another log; bring it back from a copy, or %s",
		o.Dir, before.Path(), s.Path(), end, repairAdvice)
}

// checkHead looks at the first record of a segment. One that is not there, or damaged, is for Recover to
// judge; one of another position says that the file was renamed.
func checkHead(s *segment.Segment) error {
	h, err := headOf(s)
	if err == nil && h.Pos != s.Base() {
		return mqerr.New(mqerr.Corrupt, "%s begins with the record of position %d: the file was renamed or is of another log; rename it back, bring the right one from a copy, or %s",
			s.Path(), h.Pos, repairAdvice)
	}
	if err != nil && !mqerr.Is(err, mqerr.Corrupt) {
		return err
	}
	return nil
}

func headOf(s *segment.Segment) (record.Header, error) {
	head := make([]byte, record.HeaderSize)
	if err := s.ReadAt(head, s.Base()); err != nil {
		return record.Header{}, err
	}
	return record.DecodeHeader(head)
}

// look looks for damage below from, which the replay does not read, where that is cheap: at the first
// record of each segment, and at the last record of a clean stop or of a checkpoint. It returns the holes if they are to be
// skipped, else an error.
func (l *Log) look(segs []*segment.Segment, from, promised record.Pos) ([]Hole, error) {
	var suspects []record.Pos
	for _, s := range segs {
		if s.Base() < from {
			suspects = append(suspects, s.Base())
		}
	}
	var ends []Tail // that somebody has seen at from
	for _, t := range []Tail{l.o.Tail, l.seen} {
		if t.End > 0 && t.End == from && t.Pos >= 0 && t.Pos < from {
			suspects, ends = append(suspects, t.Pos), append(ends, t)
		}
	}
	var found []Hole
	for _, pos := range suspects {
		if _, known := holeAt(merge(l.Holes(), found...), pos); known {
			continue
		}
		s := l.scanner(pos)
		s.promised = from
		r, ok, err := s.next()
		s.leave()
		if err != nil {
			return nil, err
		}
		if ok && !slices.ContainsFunc(ends, func(t Tail) bool { return t.Pos == pos && t.CRC != r.CRC }) {
			continue
		}
		if ok {
			s.pos, s.why = pos, mqerr.New(mqerr.Corrupt, "it is not the record that stood there when the log was closed")
		}
		h := s.damageAt()
		if !l.o.SkipDamage {
			return nil, mqerr.New(mqerr.Corrupt, "%s at byte %d (position %d): no whole record of this log, but the log was durable up to position %d%s: bring the file back from a copy or a replica, or %s: %s",
				h.File, h.Offset, h.From, promised, l.witness(promised), repairAdvice, h.Why)
		}
		if err := s.skipDamage(); err != nil {
			return nil, err
		}
		found = append(found, s.past[len(s.past)-1].Hole)
	}
	return found, nil
}

// checkUnpromised guards a log whose mark is lost: nothing tells a torn tail from damage then but whole
// records behind it.
func (l *Log) checkUnpromised(r Recovered, read record.Pos) error {
	if _, known, err := readMark(l.o.FS, l.o.Dir); known || err != nil || l.o.SkipDamage {
		return err
	}
	f := finder{segs: *l.segs.Load(), epoch: r.Epoch}
	at, ok, err := f.next(read)
	if err != nil || !ok {
		return err
	}
	return mqerr.New(mqerr.Corrupt, "%s: no whole record, but one at position %d, and %s, which would tell whether that is damage, is missing: bring the files back from a copy or a replica, or %s",
		l.where(read), at, MarkName, repairAdvice)
}
