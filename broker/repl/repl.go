// Package repl replicates the log of a broker group: Leader is the master's side of one epoch, Follower that of a
// replica that follows. What they decide is in the pure cores broker/repl/quorum and broker/repl/follower; here are
// the streams, the goroutines and the files.
//
// A follower opens one gRPC stream to the master that the controller named (perigee.replication.v1). Records travel as
// they lie in the log, in chunks of whole batches and of one epoch, each record with its own checksum. At most a
// window of bytes is under way to a follower before it acks, so that one that stands still costs bounded memory and
// stops nobody else: each session has a goroutine that sends, and nobody waits for it.
//
// The commit log must stay open until Run of a Leader or a Follower has returned.
package repl

import (
	"time"

	"google.golang.org/grpc"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
)

// Version is the version of the protocol that this release speaks, and the only one.
const Version = 1

const (
	// messageMax is the largest message that a follower takes: a chunk is at least one batch of records, which
	// were one request once.
	messageMax = 128 << 20
	// windowBytes is the flow-control window of a follower's connection and of its one stream, above what a master
	// sends without an ack.
	windowBytes = 8 << 20
	// socketBytes is the size of gRPC's buffers towards the socket.
	socketBytes = 64 << 10
	// handshakeTimeout bounds the wait for each message of the handshake.
	handshakeTimeout = 10 * time.Second
)

// Self says who a replica is.
type Self struct {
	Release   string // of this program, for messages to people
	ClusterID string
	Shard     uint32 // id of the broker group
	Member    quorum.Member
}

// serverStream is a master's end of a stream.
type serverStream = grpc.BidiStreamingServer[replicationv1.ReplicateRequest, replicationv1.ReplicateResponse]

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// looks is how often within a patience it is looked whether something came.
const looks = 4

// patience judges the silence of a peer by counting looks instead of time: a look that comes late says that this
// process stood still, and what the peer sent meanwhile may not be read yet.
type patience struct {
	step   time.Duration
	next   time.Time
	silent int
}

func newPatience(limit time.Duration, now time.Time) patience {
	step := max(1, limit/looks)
	return patience{step: step, next: now.Add(step)}
}

// look takes what is seen, and tells whether the peer must be taken for dead.
func (p *patience) look(now time.Time, heard bool) bool {
	late := now.Sub(p.next) >= p.step
	p.next = now.Add(p.step)
	switch {
	case heard:
		p.silent = 0
	case !late:
		p.silent++
	}
	return p.silent >= looks
}
