package brokerapi

import "time"

// TxnSource says who gave the verdict of a half message; numbers as in the public protocol.
type TxnSource uint8

// Sources of verdicts.
const (
	TxnByClient TxnSource = 1 // the producer, by itself
	TxnByCheck  TxnSource = 2 // the producer, asked
	TxnByBroker TxnSource = 3 // the last check had no answer
)

// EndTxnRequest gives the verdict of a half message. It is named by its message id, which clients take
// for the id of the transaction: a verdict holds for every half message of the topic with that id.
type EndTxnRequest struct {
	Head
	Topic  TopicID
	ID     []byte // message id
	Commit bool   // else it is rolled back
	Source TxnSource
}

// EndTxnReply says that the verdict holds. The same verdict again is no error; another one than the
// first is Invalid, a half message that is not known (or so old that its verdict is forgotten) NotFound.
type EndTxnReply struct{}

// ChecksRequest takes checks of half messages which are due for topics that this proxy has producers of
// (Producers). A check that was taken counts as sent.
type ChecksRequest struct {
	Head
	Max int // 1 or more
}

// Check is one half message whose producer is to be asked. The byte slices of Message are valid until
// ChecksReply.Release; it has neither queue, offset nor lease.
type Check struct {
	Topic   TopicID
	Half    LogPos
	Checks  int // sent so far, this one included
	Message Delivery
}

// ChecksReply has checks to send. The receiver calls Release once.
type ChecksReply struct {
	Checks []Check
	// More says that others are due right now.
	More bool
	held
}

// NewChecksReply returns a reply whose bytes live until release is called; release may be nil.
func NewChecksReply(c []Check, release func()) *ChecksReply {
	return &ChecksReply{Checks: c, held: held{release}}
}

// RecallRequest takes a delayed message back.
type RecallRequest struct {
	Head
	Topic     TopicID
	Ref       LogPos // as SendResult.Pos told
	DeliverAt int64  // as it was sent, ms since 1970
}

// RecallReply names the recalled message. Recalling it again is no error. One that was delivered, or was
// never there, is NotFound, and the text says which.
type RecallReply struct{ ID []byte }

// ForwardRequest moves leased messages to the group's dead-letter topic.
type ForwardRequest struct {
	Head
	Topic   TopicID
	Group   GroupID
	Handles []Handle
}

// ForwardReply has one error per handle, like AckReply. A message that this lease has forwarded already is
// nil and is not stored again; so is one that is done otherwise.
type ForwardReply struct{ Errors []error }

// PullRequest reads a queue from an offset on. It leases nothing and moves no position.
type PullRequest struct {
	Head
	Topic    TopicID
	Group    GroupID // 0: nobody in particular
	Queue    QueueID
	Offset   QueueOffset
	Max      int // messages, 1..1024
	MaxBytes int // as in PopRequest
	Filter   Filter
	Wait     time.Duration // how long to wait for the first message
}

// PullReply has what matched, at most Max messages. The receiver calls Release once.
type PullReply struct {
	Messages []Delivery // without lease and attempt (1)
	// Next is where to go on: behind the last message that was looked at.
	Next     QueueOffset
	Min, Max QueueOffset // stored: [Min, Max)
	held
}

// NewPullReply returns a reply whose bytes live until release is called; release may be nil.
func NewPullReply(m []Delivery, next QueueOffset, release func()) *PullReply {
	return &PullReply{Messages: m, Next: next, held: held{release}}
}

// held is memory that a reply refers to.
type held struct{ release func() }

// Release gives the bytes back. It must be called exactly once for a reply that was received.
func (h *held) Release() {
	if h != nil && h.release != nil {
		f := h.release
		h.release = nil
		f()
	}
}

// Notice is a set of what waits for a proxy. A proxy that fetches until nothing more is there misses
// nothing: the next notice comes when something new waits.
type Notice uint8

// Parts of a Notice.
const (
	NoticeChecks Notice = 1 << 0 // checks are due: fetch them with Checks
	NoticeLite   Notice = 1 << 1 // lite subscriptions have ended: fetch them with LiteGone
)
