// Package replica knows where the epochs of a log lie, and finds how far two logs are the same.
//
// A log is written by one master after another, each in an epoch of its own. A Span is the part that
// carries one epoch in its record headers; it begins with the first such record, which is the EPOCH record or
// a PAD that made room for it. An Index holds the spans of one log. Spans depend on the log alone, so
// replicas with the same bytes have the same spans, and an Index may be made anew from the log.
//
// Reconcile is the master's side of a handshake: from the spans of a follower's log it finds the point up to
// which that log and the master's have the same bytes. It is exact, because an epoch has one writer and begins
// at one place (I1, I3): two spans of one epoch are the same as far as both reach.
//
// Nothing here reads a file or a clock. An Index is not safe for concurrent use.
package replica

import (
	"fmt"
	"slices"
	"sort"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Span is the part [Start, End) of a log that was written in one epoch. Start may lie below the first position
// of a log whose beginning was deleted.
type Span struct {
	Epoch record.Epoch
	Start record.Pos // of the first record of the epoch
	End   record.Pos // of the last record that is there, exclusive
}

// mark is where an epoch begins. It ends where the next one begins, or at the end of the log.
type mark struct {
	epoch record.Epoch
	start record.Pos
}

// Index is the spans of one log, which has the positions [first, end).
//
// Invariants (Check): epochs rise strictly and starts rise strictly; the oldest span begins at or below first,
// the newest below end. Only where a log is empty behind a deleted beginning, its newest span is empty too:
// it is kept, so that epochs can't go back.
type Index struct {
	first, end record.Pos
	marks      []mark // oldest first
}

// New returns the index of an empty log whose first record will be at this position.
func New(at record.Pos) *Index { return &Index{first: at, end: at} }

// Restore returns the index of a log [first, end) with these spans, oldest first, as Spans gave them. Corrupt if
// they can't be the spans of such a log.
func Restore(first, end record.Pos, spans []Span) (*Index, error) {
	x := &Index{first: first, end: end}
	for i, s := range spans {
		next := end
		if i+1 < len(spans) {
			next = spans[i+1].Start
		}
		if s.End != next {
			return nil, mqerr.New(mqerr.Corrupt, "epoch %d ends at %d, what follows begins at %d", s.Epoch, s.End, next)
		}
		x.marks = append(x.marks, mark{s.Epoch, s.Start})
	}
	if err := x.Check(); err != nil {
		return nil, mqerr.New(mqerr.Corrupt, "epochs of a log: %w", err)
	}
	return x, nil
}

// First is the first position of the log.
func (x *Index) First() record.Pos { return x.first }

// End is the position behind the last record.
func (x *Index) End() record.Pos { return x.end }

// Epoch is the newest epoch, 0 if there is none.
func (x *Index) Epoch() record.Epoch {
	if len(x.marks) == 0 {
		return 0
	}
	return x.marks[len(x.marks)-1].epoch
}

// Len is the number of spans.
func (x *Index) Len() int { return len(x.marks) }

// Span returns the i-th span, oldest first.
func (x *Index) Span(i int) Span {
	end := x.end
	if i+1 < len(x.marks) {
		end = x.marks[i+1].start
	}
	return Span{Epoch: x.marks[i].epoch, Start: x.marks[i].start, End: end}
}

// Spans appends all spans to dst, oldest first: what Restore takes.
func (x *Index) Spans(dst []Span) []Span {
	for i := range x.marks {
		dst = append(dst, x.Span(i))
	}
	return dst
}

// Page appends at most n spans of epochs older than before to dst, newest first. The first page of a Hello is
// that before NewestPage.
func (x *Index) Page(dst []Span, before record.Epoch, n int) []Span {
	i, _ := x.search(before)
	for i--; i >= 0 && n > 0; i, n = i-1, n-1 {
		dst = append(dst, x.Span(i))
	}
	return dst
}

// NewestPage is above every epoch that a log may hold.
const NewestPage = ^record.Epoch(0)

// Find returns the span of an epoch.
func (x *Index) Find(epoch record.Epoch) (Span, bool) {
	i, ok := x.search(epoch)
	if !ok {
		return Span{}, false
	}
	return x.Span(i), true
}

// At returns the span that holds a position of [first, end).
func (x *Index) At(pos record.Pos) (Span, bool) {
	i := sort.Search(len(x.marks), func(i int) bool { return x.marks[i].start > pos }) - 1
	if i < 0 || pos < x.first || pos >= x.end {
		return Span{}, false
	}
	return x.Span(i), true
}

func (x *Index) search(epoch record.Epoch) (int, bool) {
	i := sort.Search(len(x.marks), func(i int) bool { return x.marks[i].epoch >= epoch })
	return i, i < len(x.marks) && x.marks[i].epoch == epoch
}

// Append takes note of records [start, end) whose headers have this epoch. Internal if the epoch is 0 or goes
// back, or if they do not stand where the log ends; the index stays as it was then.
func (x *Index) Append(epoch record.Epoch, start, end record.Pos) error {
	switch last := x.Epoch(); {
	case start != x.end || end <= start:
		return mqerr.New(mqerr.Internal, "records [%d, %d) do not continue a log that ends at %d", start, end, x.end)
	case epoch == 0 || epoch < last:
		return mqerr.New(mqerr.Internal, "a record of epoch %d at %d follows epoch %d: epochs never go back", epoch, start, last)
	case epoch > last:
		if x.first == x.end {
			x.marks = x.marks[:0] // what was kept behind a deleted log
		}
		x.marks = append(x.marks, mark{epoch, start})
	}
	x.end = end
	return nil
}

// Truncate makes the log end at a position of [first, end]. Epochs that began at or behind it are forgotten.
func (x *Index) Truncate(to record.Pos) error {
	if to < x.first || to > x.end {
		return mqerr.New(mqerr.Internal, "a log [%d, %d) can't be cut at %d", x.first, x.end, to)
	}
	if to < x.end {
		n := sort.Search(len(x.marks), func(i int) bool { return x.marks[i].start >= to })
		x.marks = x.marks[:n]
	}
	x.end = to
	return nil
}

// DropBelow makes the log begin at a position of [first, end]. Epochs that lie below it are forgotten, but never
// the newest one.
func (x *Index) DropBelow(first record.Pos) error {
	if first < x.first || first > x.end {
		return mqerr.New(mqerr.Internal, "a log [%d, %d) can't begin at %d", x.first, x.end, first)
	}
	n := 0
	for n+1 < len(x.marks) && x.marks[n+1].start <= first {
		n++
	}
	x.marks = slices.Delete(x.marks, 0, n)
	x.first = first
	return nil
}

// Check returns the first invariant that does not hold.
func (x *Index) Check() error {
	if x.first < 0 || x.first > x.end {
		return fmt.Errorf("a log [%d, %d)", x.first, x.end)
	}
	if len(x.marks) == 0 {
		if x.first != x.end {
			return fmt.Errorf("a log [%d, %d) without an epoch", x.first, x.end)
		}
		return nil
	}
	for i, m := range x.marks {
		if m.epoch == 0 || m.start < 0 || i > 0 && (m.epoch <= x.marks[i-1].epoch || m.start <= x.marks[i-1].start) {
			return fmt.Errorf("epoch %d at %d is out of order", m.epoch, m.start)
		}
	}
	newest := x.marks[len(x.marks)-1].start
	switch {
	case x.marks[0].start > x.first:
		return fmt.Errorf("the oldest epoch begins at %d, the log at %d", x.marks[0].start, x.first)
	case len(x.marks) > 1 && x.marks[1].start <= x.first:
		return fmt.Errorf("epoch %d lies below %d, where the log begins", x.marks[0].epoch, x.first)
	case newest > x.end || newest == x.end && x.first != x.end:
		return fmt.Errorf("the newest epoch begins at %d, the log ends at %d", newest, x.end)
	}
	return nil
}
