// Package retain is the policy of retention: which segments of a log may be deleted, and why the oldest one
// stays. It is a pure function of sizes and times.
package retain

import (
	"fmt"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Room says what may be deleted before its time to make room.
type Room uint8

// Kinds of making room.
const (
	Consumed Room = iota // segments in which nobody has anything left to do
	All                  // any segment: what was not consumed is lost
	Off                  // none
)

var roomNames = [...]string{"consumed", "all", "off"}

func (r Room) String() string { return roomNames[r] }

// ParseRoom reads the name of a Room.
func ParseRoom(s string) (Room, error) {
	for i, name := range roomNames {
		if s == name {
			return Room(i), nil
		}
	}
	return 0, mqerr.New(mqerr.Invalid, "%q is no way to make room: use consumed, all or off", s)
}

// Limits are what an operator wants.
type Limits struct {
	Age   time.Duration // from the newest record of a segment to its end; 0: for ever
	Bytes int64         // of the log; 0: no bound
	Room  Room
}

// Segment is one segment of the log.
type Segment struct {
	Base, End     record.Pos
	First, Newest int64 // store times of its first and newest record, ms since 1970
}

// State is what a decision depends on.
type State struct {
	Now      int64     // store time, ms since 1970
	Segments []Segment // oldest first; the last one takes records
	Durable  record.Pos
	Low      bool  // space on the disk is low
	Want     int64 // bytes that the disk lacks for the next file of the log and for what makes room
	Tight    bool  // the last step lacked room in the log for what it had to write: a smaller one needs less
	Snapshot int64 // bytes of the last SNAPSHOT, which each deletion costs again
	// Unread is the store time of the oldest message that somebody has yet to read, ms since 1970; what is
	// older is consumed. Only asked for if Limits.Asks.
	Unread int64
}

// Worth is how many bytes a deletion must free for each byte of the SNAPSHOT that it needs.
const Worth = 4

// lowShare: where space is low, one part in so many of the log goes at a time, at least a segment.
const lowShare = 8

// Why says why the oldest segment stays.
type Why string

// Reasons.
const (
	Goes      Why = ""          // it goes
	Only      Why = "newest"    // it is the only one, or the one that takes records
	Unlimited Why = "unlimited" // nothing is to be deleted
	Young     Why = "young"     // not old enough, and there is room
	Unread    Why = "unread"    // there is need of room, but it has messages that somebody has yet to read
	Small     Why = "small"     // what may go is little for the SNAPSHOT that it costs
	Undurable Why = "undurable" // what follows it is not on the disk yet
)

// Asks tells whether a decision depends on what is consumed.
func (l Limits) Asks(s *State) bool { return l.Room == Consumed && (s.Low || s.over(l)) }

// over tells whether the log is larger than it is to be.
func (s *State) over(l Limits) bool { return l.Bytes > 0 && s.size(0) > l.Bytes }

// size is the bytes of the segments from index i on.
func (s *State) size(i int) int64 {
	if i >= len(s.Segments) {
		return 0
	}
	return int64(s.Segments[len(s.Segments)-1].End - s.Segments[i].Base)
}

// free is the bytes of the first n segments.
func (s *State) free(n int) int64 { return int64(s.Segments[n].Base - s.Segments[0].Base) }

// Plan is a decision.
type Plan struct {
	D    record.Pos // the log is to begin here; its present beginning if nothing goes
	Time int64      // store time of the record there, ms since 1970
	Why  Why        // the oldest segment stays
	// Early says that something goes before its time: if the limits say so, only what is consumed.
	Early bool
}

// Decide says what is to go.
func (l Limits) Decide(s *State) Plan {
	if len(s.Segments) < 2 {
		return Plan{Why: Only}
	}
	if l.Age == 0 && l.Bytes == 0 && (l.Room == Off || !s.Low) {
		return s.stay(Unlimited)
	}
	old, n := 0, 0
	for old < len(s.Segments)-1 && l.Age > 0 && s.Segments[old].Newest < s.Now-l.Age.Milliseconds() {
		old++
	}
	n = max(old, l.early(s))
	why := Young
	if l.Room == Consumed && n > old {
		most := old
		for most < n && s.Segments[most+1].First < s.Unread {
			most++
		}
		if n = most; n == 0 {
			why = Unread
		}
	}
	if s.Tight && n > 1 {
		n = s.give(1, n)
	}
	for n > 0 && (s.Segments[n].Base > s.Durable || s.Segments[n].First >= s.Now) {
		n--
		why = Undurable
	}
	if n == 0 {
		return s.stay(why)
	}
	if free := s.free(n); !s.Low && free < Worth*s.Snapshot || free <= s.Snapshot {
		return s.stay(Small)
	}
	return Plan{D: s.Segments[n].Base, Time: s.Segments[n].First, Early: n > old}
}

// early is how many segments are to go whatever their age.
func (l Limits) early(s *State) int {
	n := 0
	if l.Room == Off {
		return 0
	}
	for l.Bytes > 0 && n < len(s.Segments)-1 && s.size(n) > l.Bytes {
		n++
	}
	if s.Low {
		n = s.give(max(n, min(len(s.Segments)-1, max(1, len(s.Segments)/lowShare))), len(s.Segments)-1)
	}
	return n
}

// give is how many segments, n to most, are to go to give more than their SNAPSHOT takes, and what the disk lacks.
func (s *State) give(n, most int) int {
	for n < most && s.free(n) <= 2*s.Snapshot+s.Want {
		n++
	}
	return n
}

func (s *State) stay(why Why) Plan { return Plan{D: s.Segments[0].Base, Why: why} }

// String says a plan for people.
func (p Plan) String() string {
	if p.Why == Goes {
		return fmt.Sprintf("delete below %d", p.D)
	}
	return "nothing: " + string(p.Why)
}
