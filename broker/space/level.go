package space

import (
	"github.com/perigee-mq/perigee/internal/vfs"
)

// Reading is what was seen at one moment.
type Reading struct {
	Disk  vfs.Usage // the file system; Total 0: not known
	Room  int64     // bytes that can be appended to the log into files that are there
	Stuck error     // why the next file of the log cannot be made now, nil if it can
	// Queues is why the consume queues cannot be written, nil if they can: what they cannot write stays in
	// memory, which should not become much.
	Queues error
	// Ballast is why no space is kept on the disk for what makes room, nil if it is.
	Ballast error
}

// Cause is what brought a level about.
type Cause uint8

// Causes.
const (
	None       Cause = iota
	DiskMark         // a watermark of the disk
	LogRoom          // the next file cannot be made, and the room that is left is for others
	QueueFiles       // the consume queues cannot be written
	NoBallast        // what is free is kept for what makes room
)

// State is a level and why it is so. The zero State is Plenty.
type State struct {
	Level Level
	Cause Cause
	Seen  Reading
	Holds bool // the log gets no further file: the disk is at its last watermark, or its space is for the ballast
}

// Next is the state after a reading. A level begins at once and ends with some distance, so that it does not
// come and go with every message; both happen by themselves.
func (s State) Next(l Limits, r Reading) State {
	next := State{Seen: r, Holds: r.Ballast != nil || l.Grow.reached(r.Disk, s.Holds && s.Seen.Ballast == nil)}
	raise := func(to Level, why Cause) {
		if to > next.Level {
			next.Level, next.Cause = to, why
		}
	}
	if l.Low.reached(r.Disk, s.Level >= Low) {
		raise(Low, DiskMark)
	}
	if l.Producers.reached(r.Disk, s.Level >= NoProducers) {
		raise(NoProducers, DiskMark)
	}
	if r.Ballast != nil {
		raise(Low, NoBallast)
	}
	if r.Queues != nil {
		raise(NoProducers, QueueFiles)
	}
	if r.Stuck == nil {
		return next // room grows by itself
	}
	raise(Low, LogRoom)
	if r.Room < l.margin(Producer, s.Level >= NoProducers) {
		raise(NoProducers, LogRoom)
	}
	if r.Room < l.margin(Consumer, s.Level >= NoConsumers) {
		raise(NoConsumers, LogRoom)
	}
	return next
}

// slackBytes is how much earlier a level begins than the smallest record is refused.
const slackBytes = 8 << 10

// margin is the room below which a writer is refused, more for one that is refused already.
func (l Limits) margin(w Writer, refused bool) int64 {
	n := l.Reserve(w) + slackBytes
	if refused {
		n += n / 4
	}
	return n
}

// Refuses tells whether the level alone refuses a writer, whatever room there is.
func (l Level) Refuses(w Writer) bool {
	switch w {
	case Producer:
		return l >= NoProducers
	case Consumer:
		return l >= NoConsumers
	}
	return false
}
