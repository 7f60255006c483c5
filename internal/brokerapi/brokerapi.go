// Package brokerapi is how a proxy meets a broker: one small interface with types of its own.
//
// There are two implementations: the broker itself (same process) and a network client that speaks
// over one coalescing stream (proxy/brokerconn to broker/server). Both pass the suite in
// brokerapitest, and no behaviour may depend on which of the two it is.
//
// Calls of the hot path (Send, Pop, Ack, Change) do not block: they are answered by a call of done,
// exactly once, from any goroutine, possibly before the call returns. done must not block. Byte
// slices of a request must stay untouched until done was called; those of a reply say how long they
// live. An error is an *mqerr.Error; UnknownOutcome says that the request may have taken effect.
package brokerapi

import (
	"context"
	"time"
)

// TopicID names a topic. The controller gives it and never uses it twice.
type TopicID uint32

// GroupID names a consumer group. The controller gives it and never uses it twice.
type GroupID uint32

// ShardID names a broker group. The controller gives it and never uses it twice.
type ShardID uint32

// QueueID counts the queues of a topic within one broker group, from 0.
type QueueID int32

// QueueOffset counts the messages of a queue from 0, densely.
type QueueOffset int64

// LogPos is a byte position in a broker group's log.
type LogPos int64

// Epoch numbers the terms of a broker group's masters; it only grows.
type Epoch uint64

// AnyQueue leaves the choice of the queue to the broker.
const AnyQueue QueueID = -1

// Principal is who asks. The zero value is "nobody in particular": access control is off.
type Principal struct{ User string }

// Head is what every request carries. Epoch is the highest epoch of the broker group that the proxy
// has seen; a broker that leads an older one answers Fenced. A zero Deadline means none.
type Head struct {
	Principal Principal
	Epoch     Epoch
	Deadline  time.Time
}

// MessageType has the numbers of the public protocol.
type MessageType uint8

// Message types.
const (
	Normal      MessageType = 1
	FIFO        MessageType = 2
	Delay       MessageType = 3
	Transaction MessageType = 4
	Lite        MessageType = 5
	Priority    MessageType = 6
)

// Message is one message to store. User and Sys are encoded as on the public wire and pass through
// untouched: User holds the user_properties entries of a Message (tags and lengths included), Sys the
// content of SystemProperties reduced to what a sender may set and completed with what was missing
// (born time and host, encoding, type).
type Message struct {
	Queue     QueueID // AnyQueue unless the proxy chose by message group
	Type      MessageType
	TagHash   uint64 // HashTag of the tag; 0 without a tag
	GroupHash uint64 // HashGroup of the message group; 0 without one
	DeliverAt int64  // not before, ms since 1970; 0: at once
	// CheckAfter is when a half message (Transaction) is checked for the first time if nobody has ended it;
	// 0: as the topic says.
	CheckAfter time.Duration
	Priority   int32  // of a Priority message, 0 or more; higher goes first
	Lite       string // of a Lite message: its lite topic
	Digest     [16]byte
	ID         []byte
	User       []byte
	Sys        []byte
	Body       []byte
}

// SendRequest stores messages of one topic, all or nothing, next to each other in order. Those that were
// stored before are answered and not stored again.
type SendRequest struct {
	Head
	Topic TopicID
	// Layout is the version of the list of queues by which the queues of message groups were chosen, as the
	// topic's definition has it. With another one than the broker's such messages are refused as Exhausted.
	Layout uint64
	// Age is how long ago the messages were sent for the first time, if they may have been stored then; 0: they were not.
	// They are stored only if the duplicate window surely has those of that time, else nothing is, and the answer is Timeout.
	Age      time.Duration
	Messages []Message // 1 or more
}

// SendResult is where one message was stored. A message that waits for its time or for a verdict has no
// offset yet: -1.
type SendResult struct {
	Queue     QueueID
	Offset    QueueOffset
	Pos       LogPos
	StoreTime int64 // ms since 1970
	// Duplicate says that the message was stored before, by an earlier request: the rest is its first result.
	Duplicate bool
	DeliverAt int64 // of a duplicate: when the first one is due, ms since 1970; else 0
}

// SendReply has one result per message, in order.
type SendReply struct{ Results []SendResult }

// FilterKind says how a Pop chooses.
type FilterKind uint8

// Kinds of filters.
const (
	FilterAll  FilterKind = 0
	FilterTags FilterKind = 1 // Tags, any of them; an empty list matches nothing
	FilterSQL  FilterKind = 2 // SQL, an expression that internal/sql92 has accepted
)

// Filter is what a group takes. What it does not match is done for the group.
type Filter struct {
	Kind FilterKind
	Tags []string
	SQL  string
}

// PopRequest leases messages of one topic for a group, from any queue of the broker.
type PopRequest struct {
	Head
	Topic     TopicID
	Group     GroupID
	Client    string        // the client id
	Max       int           // messages, 1..1024 (the public bound is 32)
	MaxBytes  int           // stop before the sum of the record sizes exceeds this, but hand out at least one; 0: 4 MiB
	Invisible time.Duration // lease, if not Session
	Session   bool          // lease while the client is alive (auto_renew)
	AttemptID string        // "" or the id under which a lost answer is asked again
	Filter    Filter
	// Arm asks for one Ready event when there may be something beyond what this pop hands out. It
	// holds whether the pop found messages or not: PopReply.More tells that there is more at once and
	// no event will come; otherwise the broker has armed.
	Arm bool
}

// Delivery is one leased message. The byte slices are valid until PopReply.Release.
type Delivery struct {
	Queue     QueueID
	Offset    QueueOffset
	Lease     LogPos
	Epoch     Epoch
	Attempt   int32 // from 1
	Type      MessageType
	StoreTime int64 // ms since 1970
	DeliverAt int64 // ms since 1970, 0: none
	Digest    [16]byte
	User      []byte
	Sys       []byte
	Body      []byte
}

// PopReply has the leased messages, in the order in which they should be delivered; none if nothing
// was ready. The receiver calls Release once when it no longer needs the bytes.
type PopReply struct {
	Messages []Delivery
	// More says that the group has more ready on this topic right now (before filtering): another
	// receive should pop without waiting. If it is false and the request had Arm, a Ready event comes
	// when something becomes ready.
	More bool
	// Full says that this client has as many messages leased as one client may: what is ready is for others. If
	// the request had Arm, a Ready event for this client (Ready.Client) comes when it may have more.
	Full    bool
	release func()
}

// NewPopReply returns a reply whose bytes live until release is called; release may be nil.
func NewPopReply(m []Delivery, release func()) *PopReply {
	return &PopReply{Messages: m, release: release}
}

// Release gives the bytes back. It must be called exactly once for a reply that was received.
func (r *PopReply) Release() {
	if r != nil && r.release != nil {
		f := r.release
		r.release = nil
		f()
	}
}

// Handle names one delivery of one message at one broker.
type Handle struct {
	Queue  QueueID
	Offset QueueOffset
	Lease  LogPos
	Epoch  Epoch
}

// AckRequest ends messages for a group.
type AckRequest struct {
	Head
	Topic   TopicID
	Group   GroupID
	Handles []Handle
}

// AckReply has one error per handle, nil for done: HandleInvalid if the lease is not the message's
// latest. A message that is done already is nil, whoever ended it with this lease.
type AckReply struct{ Errors []error }

// ChangeMode says what a Change means for the attempt number of the next delivery.
type ChangeMode uint8

// Modes of a Change.
const (
	ChangeLease ChangeMode = 0 // a new invisible time; redelivery counts as the next attempt
	ChangeKeep  ChangeMode = 1 // suspend or give back: the next delivery has the same attempt number
)

// ChangeRequest moves the end of leases to now + Invisible (0: visible at once). The handles stay
// valid until the messages are handed out again. A session lease becomes a plain one.
type ChangeRequest struct {
	Head
	Topic     TopicID
	Group     GroupID
	Handles   []Handle
	Invisible time.Duration
	Mode      ChangeMode
}

// ChangeReply has one error per handle, like AckReply. A message that is done is HandleInvalid, and so is one that is
// given back (ChangeKeep, visible at once) while the answer to the same receive, repeated, has it under the same
// lease: the last of the answers can give it back.
type ChangeReply struct{ Errors []error }

// Ready says that a group may have something on a topic. It is sent once to a proxy that armed;
// another Pop with Arm arms again. Count is how many messages are ready as far as known, at
// least 1: no more than Count waiting receives need to try.
type Ready struct {
	Topic TopicID
	Group GroupID
	// Client is whom it concerns, by HashClient: a client of a lite group, which has its own lite topics, or
	// one that was told PopReply.Full.
	// 0 is any client of the group.
	Client uint64
	Count  int
}

// GroupQueue is the exact state of one queue for one group.
type GroupQueue struct {
	Queue    QueueID
	Min, Max QueueOffset // stored: [Min, Max)
	Floor    QueueOffset // everything below is done
	Next     QueueOffset // nothing at or above was handed out
	InFlight int64       // leased now
	Ready    int64       // not done and due, before filtering
	Waiting  int64       // not done, not leased, not due yet
	OldestMS int64       // store time of the oldest message that is ready, 0 if none
	OverMax  int64       // deliveries past the group's max attempts since the broker's start
	Lost     int64       // of the whole topic, with its first queue: messages that retention deleted before the group had read them
	Used     bool        // the group has received from this queue; of the sum over lite topics (queue -1): has some
	// MaxInFlight and MaxInFlightClient bound what the broker leases to the group, and to one of its clients: the
	// group's own bounds, else the broker's. 0: no bound.
	MaxInFlight, MaxInFlightClient int64
}

// TopicQueue is the exact state of one queue.
type TopicQueue struct {
	Queue    QueueID
	Min, Max QueueOffset
	LastMS   int64 // store time of the newest message, 0 if none
}

// Events are what a broker tells a proxy. Functions must not block; nil ones are not called.
type Events struct {
	Ready func([]Ready)
	// Notice says that there is something for this proxy to fetch.
	Notice func(Notice)
	// Down says that the broker is gone or no longer serves; every call in flight is answered.
	Down func(error)
}

// Broker is one broker as one proxy sees it. It is safe for concurrent use.
type Broker interface {
	Send(req *SendRequest, done func(*SendReply, error))
	Pop(req *PopRequest, done func(*PopReply, error))
	Ack(req *AckRequest, done func(*AckReply, error))
	Change(req *ChangeRequest, done func(*ChangeReply, error))

	// The calls of the rest of the message model do not block either; see model.go.
	EndTxn(req *EndTxnRequest, done func(*EndTxnReply, error))
	Checks(req *ChecksRequest, done func(*ChecksReply, error))
	Recall(req *RecallRequest, done func(*RecallReply, error))
	Forward(req *ForwardRequest, done func(*ForwardReply, error))
	Pull(req *PullRequest, done func(*PullReply, error))

	// These block; see ask.go.
	Producers(ctx context.Context, req *ProducersRequest) (*ProducersReply, error)
	SetOffsets(ctx context.Context, req *SetOffsetsRequest) (*SetOffsetsReply, error)
	Offset(ctx context.Context, req *OffsetRequest) (*OffsetReply, error)
	Reset(ctx context.Context, req *ResetRequest) (*ResetReply, error)
	SyncLite(ctx context.Context, req *SyncLiteRequest) (*SyncLiteReply, error)
	LiteGone(ctx context.Context, req *LiteGoneRequest) (*LiteGoneReply, error)
	Redrive(ctx context.Context, req *RedriveRequest) (*RedriveReply, error)
	Find(ctx context.Context, req *FindRequest) (*FindReply, error)
	Trace(ctx context.Context, req *TraceRequest) (*TraceReply, error)
	Drain(ctx context.Context, req *DrainRequest) (*DrainReply, error)
	LiteList(ctx context.Context, req *LiteListRequest) (*LiteListReply, error)

	// Alive reports clients that the proxy heard from since its last report.
	Alive(ctx context.Context, clients []string) error
	// EndSession says that a client has said goodbye; its session leases end in a second.
	EndSession(ctx context.Context, client string) error
	DescribeGroup(ctx context.Context, topic TopicID, group GroupID) ([]GroupQueue, error)
	DescribeTopic(ctx context.Context, topic TopicID) ([]TopicQueue, error)

	// Close ends this proxy's use of the broker; what it armed is forgotten. Calls in flight are
	// answered, later ones get Unavailable.
	Close() error
}

// Connector is a broker that proxies can attach to: the broker's own process offers one.
type Connector interface {
	// Attach opens the broker for one proxy, named for logs.
	Attach(proxy string, ev Events) (Broker, error)
}
