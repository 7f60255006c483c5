package doctor

import "time"

// Picture is what was collected of an installation at one time. What is nil was not looked at.
type Picture struct {
	Now       time.Time
	Server    *Server
	Processes []Process
	Dir       *Dir
}

// Reach says how far a connection came.
type Reach uint8

// How far a connection came.
const (
	Refused    Reach = iota // no connection
	NotGRPC                 // something answers that speaks no gRPC
	NotPerigee              // gRPC, but not this service
	Reached
)

// Server is a client port and what it tells.
type Server struct {
	Address string
	Reach   Reach
	Error   string // why it did not come further
	HTTP    bool   // it answers HTTP/1, as the port for /metrics does
	Serving *bool  // as grpc.health.v1 says
	TLS     *TLS   // nil: not looked at
	Release string
	Cluster string
	// Controller is why the controller did not answer, empty if it did.
	Controller  string
	Advertised  []Endpoint
	Topics      []Topic
	Unasked     int // topics that there was no time for
	Groups      []Group
	DeadLetters []DeadLetters
	// Unlisted is why Topics, Groups or DeadLetters could not be had, empty if they were.
	Unlisted string
}

// TLS is the certificate of a client port.
type TLS struct {
	SelfMade bool   // the one that a proxy makes for itself: clients cannot check it
	Host     string // that clients use
	HostErr  string // why the certificate is not for that host, empty if it is
	NotAfter time.Time
}

// Endpoint is an address that clients are told.
type Endpoint struct {
	Address string
	Error   string // why it cannot be reached from here, empty if it can
}

// Topic is a topic with its queues.
type Topic struct {
	Name    string
	Queues  int      // on brokers that answered
	Unknown []string // brokers that did not answer, with the reason
}

// Group is a consumer group with its progress.
type Group struct {
	Name    string
	Topics  []Progress
	Unknown []string // brokers that did not answer, with the reason
}

// Progress is that of a group on a topic.
type Progress struct {
	Topic           string
	Ready, InFlight int64
	OldestMS        int64 // store time of the oldest ready message, 0 if there is none or it is unknown
	OverMax         int64 // deliveries past the most attempts
}

// DeadLetters are those of one topic on one broker.
type DeadLetters struct {
	Topic, Broker string
	Left          int64
	NewestMS      int64 // 0: unknown
}

// Process is a process that was asked over HTTP.
type Process struct {
	Address string
	Error   string // why it did not answer, empty if it did
	Release string
	// Off is how far its clock is before that of the doctor, at least; negative: behind.
	Off     time.Duration
	Parts   []Part
	Metrics Metrics // nil: could not be had
}

// Part is a part of a process as /readyz says.
type Part struct {
	Name   string
	Ready  bool
	Reason string
}

// Dir is a data directory that was looked at from outside.
type Dir struct {
	Path string
	// Error is why it cannot be read at all, empty if it can.
	Error string
	// Refused is why this release cannot start on it: another format, broken identity; empty if it can.
	Refused string
	// Locked is set while a process has it.
	Locked bool
	// Owner and User are the numbers of who owns the directory and who asks; nil where there are none.
	Owner, User *uint32
	// Free and Total are bytes of its file system, 0 if unknown.
	Free, Total uint64
	// Syncs are times of small writes with fdatasync that were tried in it; none: not tried.
	Syncs []time.Duration
	// Damage is what a look at the log and checkpoints found wrong; nil: nothing, if Checked.
	Damage  []string
	Checked bool
	// LogEnd and Checkpoint are log positions; Checkpoint is -1 if there is none.
	LogEnd, Checkpoint int64
	// Leftovers are files that belong to nothing.
	Leftovers []string
}
