package commitlog

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Standing says what a log has in a place where somebody has seen its end.
type Standing uint8

const (
	// Stands says that the record that was the last one then is there, or lies in a hole that is known.
	Stands Standing = iota
	// Replaced says that the log has another record there, one that goes over the place, or begins behind it. What was seen
	// was another log, or this one before a part of it was lost and written anew.
	Replaced
	// Absent says that there is no whole record, since it is damaged or missing, or since the log ends before.
	Absent
)

// Stands compares the log with an end that somebody has seen. Where the place has no whole record it reads the
// file from its beginning, to tell damage from a record of another length. An error is of the disk.
func (l *Log) Stands(t Tail) (Standing, error) {
	if h, in := holeAt(l.Holes(), t.Pos); in && h.From <= t.Pos {
		return Stands, nil
	}
	if t.Pos < l.First() {
		return Replaced, nil
	}
	r, ref, err := l.Read(t.Pos, 0)
	switch {
	case mqerr.Is(err, mqerr.Corrupt):
		return l.spans(t.Pos)
	case err != nil && !mqerr.Is(err, mqerr.Unsupported):
		return Absent, err
	case err != nil: // of a later release: Recover says so
		return Stands, nil
	}
	defer ref.Release()
	if r.CRC != t.CRC || r.Epoch != t.Epoch {
		return Replaced, nil
	}
	return Stands, nil
}

// spans tells whether a whole record goes over a position at which none begins.
func (l *Log) spans(pos record.Pos) (Standing, error) {
	seg := l.find(pos)
	if seg == nil {
		return Absent, nil
	}
	s := l.scanner(seg.Base())
	defer s.leave()
	for s.pos < pos {
		_, ok, err := s.next()
		if err != nil && !mqerr.Is(err, mqerr.Unsupported) {
			return Absent, err
		}
		if err != nil || !ok {
			return Absent, nil
		}
	}
	if s.pos > pos {
		return Replaced, nil
	}
	return Absent, nil
}

// Expect says where the views have seen the log end that Recover is going to read on from there: if the record
// below is not there any more, that is damage. Call it before Recover.
func (l *Log) Expect(t Tail) { l.seen = t }

// Tail is where the log ends, and the record there. Ask the goroutine that appends.
func (l *Log) Tail() Tail {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Tail{End: l.Written(), Last: l.last}
}

// witness says to people who knows that the log was durable up to a position.
func (l *Log) witness(promised record.Pos) string {
	const onPurpose = "; if an older copy of the log was put here on purpose, move that away"
	marked, _, err := readMark(l.o.FS, l.o.Dir)
	switch {
	case err == nil && marked >= promised:
		return " (as " + MarkName + " beside it says" + onPurpose + ")"
	case l.o.Tail.End >= promised:
		return " (as the marker of the last clean stop says" + onPurpose + ")"
	case l.seen.End >= promised:
		return " (as the newest checkpoint of the views says" + onPurpose + ")"
	}
	return ""
}
