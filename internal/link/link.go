// Package link multiplexes requests and their replies over one ordered stream of packets between a
// client (a proxy) and a server (a broker). It knows nothing of gRPC and nothing of what it carries.
//
// A message is cut into frames of at most 64 KiB. One writer goroutine on each side gathers whatever
// frames wait into a packet of at most 256 KiB and sends it; frames of different messages alternate,
// so a small one is never stuck behind a large one. Messages are copied once, into the packet.
// Replies come in any order. Each side tells how many bytes of each class of messages it takes and
// gives them back when it is done with them (credit), so a receiver that stands still costs a bounded
// amount of memory and stops nobody but its own class. The reader goroutine never waits for whoever
// consumes a message.
//
// Every call is completed exactly once: by its answer, or with an error that tells whether the
// request surely was not sent. An answer that comes after that goes to Receiver.Late, so that what it
// holds can be given back. No goroutine waits for a call.
//
// A peer that breaks the protocol ends the link with an error of kind Invalid. The frames are
// described in docs/format/link.md. Each side has three goroutines: reader, writer, keeper (deadlines
// and keepalive).
package link

import (
	"sync/atomic"
	"time"
)

// Transport carries packets in order. Send and Recv are called by one goroutine each.
type Transport interface {
	// Send hands over one packet, which belongs to the transport from then on. It may wait for the
	// peer. The transport gives the memory back with Recycle, if it can tell when.
	Send(packet []byte) error
	// Recv returns the next packet; its bytes are valid until the next call.
	Recv() ([]byte, error)
	// Close ends the stream; Send and Recv return soon after. It may be called more than once.
	Close() error
}

// Class separates messages that must not take each other's room.
type Class uint8

// Classes of messages. A reply has the class of its request.
const (
	Send    Class = 0 // messages to store
	Pop     Class = 1 // receives; their replies are large
	Control Class = 2 // everything else, all small
	Classes       = 3
)

// Sizes that both sides must agree on; they belong to version 1 of the link.
const (
	// FrameMax is the largest frame, its head included.
	FrameMax = 64 << 10
	// PacketMax is the largest packet.
	PacketMax = 256 << 10
	// MessageMax is the largest request or reply.
	MessageMax = 32 << 20
	// messageCost is what a message costs beyond its bytes, in bytes of credit.
	messageCost = 256
)

// activeMax is how many large messages alternate at a time; more wait.
const activeMax = 8

// Options configures one side of a link. The zero value of a field means its default.
type Options struct {
	// Window is how many bytes of messages of each class this side takes before it has given some
	// back; one message may exceed it. Default 32 MiB for Send, 64 MiB for Pop, 8 MiB for Control.
	Window [Classes]int64
	// Waiting is how many bytes of requests of each class may wait at a client before they are sent;
	// more are refused as Exhausted. Default 32 MiB for Send, 8 MiB for Pop and Control.
	Waiting [Classes]int64
	// KeepAlive is how long nothing may come from the peer before it is asked for a sign of life; the
	// link ends when nothing comes for that long again. Default 2 s.
	KeepAlive time.Duration
	// Counters counts what passes. Links may share one. Default: one of its own.
	Counters *Counters
}

func (o Options) withDefaults() Options {
	window := [Classes]int64{32 << 20, 64 << 20, 8 << 20}
	waiting := [Classes]int64{32 << 20, 8 << 20, 8 << 20}
	for i := range Classes {
		if o.Window[i] <= 0 {
			o.Window[i] = window[i]
		}
		o.Window[i] = min(o.Window[i], 1<<31-1)
		if o.Waiting[i] <= 0 {
			o.Waiting[i] = waiting[i]
		}
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = 2 * time.Second
	}
	if o.Counters == nil {
		o.Counters = &Counters{}
	}
	return o
}

// Counters counts what passed one or more links.
type Counters struct {
	PacketsOut, PacketsIn atomic.Int64
	FramesOut, FramesIn   atomic.Int64
	BytesOut, BytesIn     atomic.Int64
	Requests              atomic.Int64 // calls started at a client, requests received by a server
	Replies               atomic.Int64 // answers that a client received, or that a server sent
	Events                atomic.Int64 // event frames
	Expired               atomic.Int64 // calls completed by their deadline or their caller instead of an answer
	Late                  atomic.Int64 // answers to such calls
	Exhausted             atomic.Int64 // calls refused because too much was waiting
	Cut                   atomic.Int64 // calls completed by the end of their link
}

// charge is the credit that a message of size bytes costs.
func charge(size int) int64 { return int64(size) + messageCost }
