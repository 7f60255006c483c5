// Package space decides who may still write when the disk gets full. It is pure: what the disk and the log
// look like is an argument.
//
// Two things count. The disk has watermarks, in used percent and free bytes: they keep it from becoming
// really full. The log has its room, which is what can be appended into files that are there already: once
// the next file cannot be made, producers are refused while some room is left to consumers, consumers while
// some is left to what makes room.
package space

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
)

// Level says how far it has come. Each includes what those before it say.
type Level uint8

// Levels.
const (
	Plenty      Level = iota
	Low               // what can be deleted should go
	NoProducers       // messages are refused
	NoConsumers       // leases, acks, positions and verdicts are refused: only what makes room goes on
)

var levelNames = [...]string{"plenty", "low", "no producers", "no consumers"}

// String returns the level's name.
func (l Level) String() string { return levelNames[l] }

// Writer is who wants to append to the log.
type Writer uint8

// Writers, in the order in which they are refused.
const (
	Producer  Writer = iota // messages, also those that an operator moves back
	Consumer                // leases, acks, changes, positions, recalls, verdicts, dead letters that a consumer asks for
	Broker                  // what the broker does by itself; it waits instead of failing
	Retention               // what makes room: MOVE, TRIM, SNAPSHOT
	Writers                 // how many there are
)

var writerNames = [...]string{"producer", "consumer", "broker", "retention"}

// String returns the writer's name.
func (w Writer) String() string { return writerNames[w] }

// Mark is a watermark of the disk. It is reached when at least Used percent of the space is used and less
// than Free bytes are left: the one alone would be early on a large disk, the other on a small one.
type Mark struct {
	Used float64 // percent, above 0, at most 100
	Free int64   // bytes
}

// Limits are the watermarks and reserves.
type Limits struct {
	Low       Mark // from here on what can be deleted should go
	Producers Mark // from here on messages are refused
	Grow      Mark // from here on the log gets no further file: consumers go on in those that are there
	// Consumers is the room of the log in bytes that is left to consumers when producers are refused, and
	// Retention what is left to retention when those are refused as well.
	Consumers, Retention int64
}

// Defaults are those of a broker.
func Defaults() Limits {
	return Limits{
		Low:       Mark{Used: 85, Free: 12 << 30},
		Producers: Mark{Used: 90, Free: 8 << 30},
		Grow:      Mark{Used: 97, Free: 2 << 30},
		Consumers: 32 << 20, Retention: 16 << 20,
	}
}

// Check tells what is wrong with limits.
func (l Limits) Check() error {
	for _, m := range []Mark{l.Low, l.Producers, l.Grow} {
		if m.Used <= 0 || m.Used > 100 || m.Free < 0 {
			return mqerr.New(mqerr.Invalid, "a watermark of %v %% and %d bytes: take above 0 and at most 100 %%, and 0 bytes (never) or more", m.Used, m.Free)
		}
	}
	switch {
	case l.Low.Used > l.Producers.Used || l.Low.Free < l.Producers.Free || l.Producers.Used > l.Grow.Used || l.Producers.Free < l.Grow.Free:
		return mqerr.New(mqerr.Invalid, "watermarks of %v, %v and %v %%, %d, %d and %d bytes: the first is to be reached first",
			l.Low.Used, l.Producers.Used, l.Grow.Used, l.Low.Free, l.Producers.Free, l.Grow.Free)
	case l.Consumers < 0 || l.Retention < 0:
		return mqerr.New(mqerr.Invalid, "reserves of %d and %d bytes: take 0 or more", l.Consumers, l.Retention)
	}
	return nil
}

// For makes the room that is left to retention large enough for a SNAPSHOT of a number of bytes, and for messages that
// are carried forward beside it.
func (l Limits) For(snapshot int64) Limits {
	l.Retention = max(l.Retention, snapshot+l.Retention/2)
	return l
}

// Fit makes the reserves small beside a file of the log: at most a quarter and an eighth of it.
func (l Limits) Fit(segment int64) Limits {
	l.Consumers, l.Retention = min(l.Consumers, segment/4), min(l.Retention, segment/8)
	return l
}

// lastBytes is left behind by everybody: for the records of later starts.
const lastBytes = 16 << 10

// Reserve is the room that a writer leaves behind what it appends.
func (l Limits) Reserve(w Writer) int64 {
	switch w {
	case Producer:
		return l.Consumers + l.Reserve(Consumer)
	case Consumer:
		return l.Retention/4 + l.Reserve(Broker)
	case Broker:
		return l.Retention + lastBytes
	}
	return lastBytes
}

// reached tells whether the mark is reached. Behind it one that was reached stays so for a while: until a
// percent less is used, or an eighth more is free.
func (m Mark) reached(u vfs.Usage, was bool) bool {
	used, free := m.Used, m.Free
	if was {
		used, free = used-1, free+free/8
	}
	return u.Total > 0 && u.UsedShare()*100 >= used && int64(min(u.Free, 1<<62)) < free
}
