package replica

import (
	"fmt"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// PageMax is the most spans in one Hello.
const PageMax = 64

// Hello is what a follower says of its log.
type Hello struct {
	First, End record.Pos // the log is [First, End)
	// Confirm is the follower's confirm offset, at most End: what it knows to be acknowledged. It is never cut.
	Confirm record.Pos
	// Spans are newest first, at most PageMax. When asked for more a follower says Hello again with the spans before
	// those; Index.Page gives them.
	Spans []Span
	// Emptied says that the log holds only what came since it was emptied to take over all that the master has: an empty
	// one goes on at First, if the master's log begins there.
	Emptied bool
	// Tail is the last record of the log, for a look at the bytes themselves (I3). Size 0: unknown.
	Tail Tail
}

// Tail is the last record of a log.
type Tail struct {
	Pos  record.Pos
	Size uint32 // bytes, 0 if it is not known
	CRC  uint32 // of its header
}

// Verdict is what a follower has to do before it gets records.
type Verdict uint8

// Verdicts.
const (
	Resume    Verdict = iota + 1 // go on at At, the end of its log
	Truncate                     // cut the log at At, durably, then go on there
	MoreSpans                    // say Hello again, with older spans
	Snapshot                     // its log ends before the master's begins, or shares nothing with it: begin anew from a snapshot
	Diverged                     // acknowledged bytes differ: stop and touch nothing (I12)
)

var verdictNames = [...]string{"none", "resume", "truncate", "more spans", "snapshot", "diverged below confirm"}

// String returns the verdict in words.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// Answer is the result of Reconcile.
type Answer struct {
	Verdict Verdict
	At      record.Pos // of Resume and Truncate: up to here both logs are the same
}

// Reconcile compares a follower's log with this one, the master's. The newest span of the follower's whose epoch
// is known here with the same start decides: the logs are the same up to where the first of the two ends. Epochs
// that are not known here are passed over, that is cut. Invalid if h can't be true of any log.
//
// After Resume compare the last record too (CheckTail).
func (x *Index) Reconcile(h *Hello) (Answer, error) {
	if err := h.check(); err != nil {
		return Answer{}, err
	}
	for _, theirs := range h.Spans {
		ours, ok := x.Find(theirs.Epoch)
		if ok && sameStart(ours, x.first, theirs, h.First) {
			return x.from(h, min(ours.End, theirs.End)), nil
		}
	}
	if n := len(h.Spans); n > 0 && h.Spans[n-1].Start > h.First {
		return Answer{Verdict: MoreSpans}, nil
	}
	if h.First == 0 && x.first == 0 {
		return x.from(h, 0), nil // both are whole, and differ from the first record on, or one is empty
	}
	if h.Emptied && h.End == h.First && h.End == x.first {
		return x.from(h, x.first), nil
	}
	if h.Confirm > max(x.first, h.First) {
		return Answer{Verdict: Diverged}, nil // it has acknowledged bytes where ours are others
	}
	return Answer{Verdict: Snapshot}, nil
}

// from decides about a follower whose log is the same as this one up to a position.
func (x *Index) from(h *Hello, same record.Pos) Answer {
	switch {
	case same < h.Confirm:
		return Answer{Verdict: Diverged}
	case same < x.first || same < h.First:
		return Answer{Verdict: Snapshot}
	case same == h.End:
		return Answer{Verdict: Resume, At: same}
	}
	return Answer{Verdict: Truncate, At: same}
}

// sameStart tells whether two spans of one epoch begin at the same place. Where the beginning of a log was deleted
// its oldest epoch may be known only from there on.
func sameStart(a Span, aFirst record.Pos, b Span, bFirst record.Pos) bool {
	cut := func(s Span, first record.Pos, other Span) bool {
		return s.Start == first && first > 0 && other.Start < first && other.End >= first
	}
	return a.Start == b.Start || cut(a, aFirst, b) || cut(b, bFirst, a)
}

// check refuses what is true of no log.
func (h *Hello) check() error {
	bad := func(format string, args ...any) error {
		return mqerr.New(mqerr.Invalid, "a follower's log [%d, %d), confirmed to %d: %s", h.First, h.End, h.Confirm, fmt.Sprintf(format, args...))
	}
	switch {
	case h.First < 0 || h.End < h.First || h.Confirm < 0 || h.Confirm > h.End:
		return bad("positions out of order")
	case len(h.Spans) > PageMax:
		return bad("%d epochs at once, the most are %d", len(h.Spans), PageMax)
	case len(h.Spans) == 0 && h.First < h.End:
		return bad("no epoch")
	}
	for i, s := range h.Spans {
		switch {
		case s.Epoch == 0 || s.Start < 0 || s.End > h.End || s.Start > s.End || s.Start == s.End && h.First < h.End:
			return bad("epoch %d is [%d, %d)", s.Epoch, s.Start, s.End)
		case s.End < h.First || s.End == h.First && h.First < h.End:
			return bad("epoch %d ends at %d, before the log begins", s.Epoch, s.End)
		case i > 0 && (s.Epoch >= h.Spans[i-1].Epoch || s.End != h.Spans[i-1].Start):
			return bad("epoch %d, up to %d, stands before epoch %d, from %d", s.Epoch, s.End, h.Spans[i-1].Epoch, h.Spans[i-1].Start)
		}
	}
	return nil
}

// CheckTail compares a follower's last record with the master's record at the same position, own. A follower that
// would resume behind another record than the master's has other bytes in the same place of the same epoch, which
// can't be: the answer is Diverged. An unknown tail of the follower, or an answer other than Resume, proves nothing.
func (a Answer) CheckTail(theirs, own Tail) Answer {
	if a.Verdict != Resume || theirs.Size == 0 || theirs == own {
		return a
	}
	return Answer{Verdict: Diverged}
}
