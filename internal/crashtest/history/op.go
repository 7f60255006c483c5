// Package history says whether a message service has kept its promises: it holds every call that
// clients made with what became of it, and judges them. It is a pure function of the calls and knows
// nothing of the service but the public protocol.
//
// What a call did lies between its begin and its end as the caller saw them, so a rule is broken only
// if no order of the calls within those times explains what was seen.
package history

import (
	"math"
	"strconv"
)

// Time is nanoseconds since the history began, by a clock that never steps.
type Time int64

// Never is the end of a call that has none.
const Never Time = math.MaxInt64

// Outcome is what a caller knows of a call.
type Outcome uint8

const (
	// Unknown says that it has happened or not, or will.
	Unknown Outcome = iota
	// OK says that it has happened.
	OK
	// Fail says that it has not happened and never will.
	Fail
)

func (o Outcome) String() string {
	switch o {
	case OK:
		return "OK"
	case Fail:
		return "FAIL"
	}
	return "UNKNOWN"
}

// Kind is the kind of a call.
type Kind string

// The kinds. Those about one message or more have them as items.
const (
	Send      Kind = "send"
	Receive   Kind = "receive"
	Ack       Kind = "ack"
	Change    Kind = "change"  // of a lease, to For from the call on; 0 gives it back
	Forward   Kind = "forward" // to the dead letters
	Recall    Kind = "recall"
	Commit    Kind = "commit"
	Rollback  Kind = "rollback"
	Redrive   Kind = "redrive" // N dead letters were moved, at most Most
	Reset     Kind = "reset"   // of Group on Topic, to Queues
	Pull      Kind = "pull"    // from offset N of Queues[0]
	SetOffset Kind = "set offset"
	GetOffset Kind = "get offset" // N is -1 if none is stored
	PutTopic  Kind = "put topic"
	DelTopic  Kind = "delete topic"
	Topics    Kind = "list topics" // Names
	PutGroup  Kind = "put group"   // with N
	Groups    Kind = "list groups" // Names with Values
	Goodbye   Kind = "goodbye"     // of Client: what it holds is free
)

// Op is one call.
type Op struct {
	Kind    Kind     `json:"kind"`
	Client  string   `json:"client,omitempty"`
	Began   Time     `json:"began"`
	Ended   Time     `json:"ended"`
	Outcome Outcome  `json:"outcome"`
	Code    string   `json:"code,omitempty"` // what it was answered with, for people
	Topic   string   `json:"topic,omitempty"`
	Group   string   `json:"group,omitempty"`
	Items   []Item   `json:"items,omitempty"`
	For     Time     `json:"for,omitempty"` // length of a lease
	N       int64    `json:"n,omitempty"`
	Most    int64    `json:"most,omitempty"`
	Queues  []Queue  `json:"queues,omitempty"`
	Names   []string `json:"names,omitempty"`
	Values  []int64  `json:"values,omitempty"`
}

// Item is what a call says of one message.
type Item struct {
	ID      string  `json:"id"`
	Outcome Outcome `json:"outcome"`
	Invalid bool    `json:"invalid,omitempty"` // the answer was that the handle is not valid (any more), or that a recall is too late
	Body    string  `json:"body,omitempty"`    // or a digest of it
	Key     string  `json:"key,omitempty"`     // message group or lite topic, in which order counts
	Due     Time    `json:"due,omitempty"`     // not to be delivered before
	Offset  int64   `json:"offset,omitempty"`  // that a send was answered with; -1 none
	Place   Place   `json:"place,omitzero"`    // of a delivery
	Attempt int32   `json:"attempt,omitempty"` // of a delivery, from 1
	At      Time    `json:"at,omitempty"`      // when a delivery came
	Lease   int     `json:"lease,omitempty"`   // number of a delivery, and the one that an ack is about
}

// Place is where a message is stored.
type Place struct {
	Topic  string `json:"topic,omitempty"`
	Broker string `json:"broker,omitempty"`
	Queue  int32  `json:"queue"`
	Offset int64  `json:"offset"`
}

func (p Place) String() string {
	return p.Topic + " at " + p.Broker + "/" + strconv.Itoa(int(p.Queue)) + "/" + strconv.FormatInt(p.Offset, 10)
}

// queue is the place's queue.
func (p Place) queue() Queue { return Queue{Topic: p.Topic, Broker: p.Broker, ID: p.Queue} }

// Queue is a queue, with where a reset has moved its group.
type Queue struct {
	Topic  string `json:"topic,omitempty"`
	Broker string `json:"broker,omitempty"`
	ID     int32  `json:"id"`
	To     int64  `json:"to,omitempty"`
}

// bare is the queue alone.
func (q Queue) bare() Queue { q.To = 0; return q }

// over is when a call has had its effect at the latest. One without an answer may have it later.
func (o *Op) over() Time {
	if o.Outcome == Unknown {
		return Never
	}
	return o.Ended
}
