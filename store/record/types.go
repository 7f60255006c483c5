package record

// MsgType is the type of a message as stored; the numbers are those of the public MessageType.
type MsgType uint8

// Message types.
const (
	MsgNormal      MsgType = 1
	MsgFIFO        MsgType = 2
	MsgDelay       MsgType = 3
	MsgTransaction MsgType = 4
	MsgLite        MsgType = 5
	MsgPriority    MsgType = 6
)

// Msg is the body of a TypeMsg record. User, Sys and Body are kept as the client encoded them, so
// that a delivery is made of a few header fields and copies of these spans.
type Msg struct {
	Topic     TopicID
	Queue     QueueID
	Offset    QueueOffset // -1 for a message without a place yet (delayed, half)
	Type      MsgType
	TagHash   uint64   // 0: no tag
	GroupHash uint64   // 0: no message group
	DeliverAt int64    // not before, ms since 1970; 0: at once
	Digest    [16]byte // MD5 of Body as received
	ID        []byte   // the client's message id, 1..65535 bytes
	User      []byte   // user properties: fields 2 of the public Message, tags and lengths included
	Sys       []byte   // content of the public SystemProperties, only what the sender may set
	Body      []byte
}

// PopCk is the body of a TypePopCk record: one lease. The record's position is the lease id; its
// header time is the time of the lease.
type PopCk struct {
	Topic      TopicID
	Group      GroupID
	Until      int64     // deadline, ms since 1970; for a session lease the cap at which it ends at the latest
	Session    bool      // ends with the client's session (SessionEnd), or at Until
	Client     ClientNum // 0: unknown
	ClientName []byte    // not empty: Client is defined here as this client id
	AttemptID  []byte    // attempt id of the receive, empty if none
	Ordered    bool      // the group is handed messages in order: sections may pass messages over
	Sections   []PopSection
}

// PopSection is the part of a lease that lies in one queue. Items rise strictly by offset.
type PopSection struct {
	Queue QueueID
	Items []PopItem
	// Next, of an ordered lease, is above all items: no message at or above it was looked at. Those below
	// it that were not looked at before and are no items are passed over: an older message of their
	// message group is not done, so they come later. 0 if the lease is not ordered.
	Next QueueOffset
}

// PopItem is one message of a lease. New consecutive items (Attempt 1 or 0, Prev -1) cost at most about
// a bit each.
type PopItem struct {
	Offset  QueueOffset
	Attempt uint16 // of this delivery, from 1; 0: not handed out, the filter let it pass and it is done
	Prev    Pos    // lease of the previous delivery, -1 for the first
}

// PopAck is the body of a TypePopAck record: messages that are done.
type PopAck struct {
	Sections []AckSection
}

// AckSection is the part of a PopAck for one queue of one group. Offsets rise strictly.
type AckSection struct {
	Topic   TopicID
	Group   GroupID
	Queue   QueueID
	Offsets []QueueOffset
}

// PopChange is the body of a TypePopChange record: leased messages get a new deadline.
type PopChange struct {
	Topic   TopicID
	Group   GroupID
	Until   int64 // new deadline, ms since 1970
	Changes []Change
}

// Change is one message of a PopChange.
type Change struct {
	Queue  QueueID
	Offset QueueOffset
	Lease  Pos
	// Keep says that the next delivery has the same attempt number (suspend, give-back).
	Keep bool
}

// MaxItems bounds the items of one record of any type; to write more is a bug of the caller.
const MaxItems = 1 << 20

// SessionEnd is the body of a TypeSessionEnd record. The client's number is free afterwards.
type SessionEnd struct {
	Client ClientNum
	Until  int64 // session leases of the client end at this time, ms since 1970
}

// Skip is the body of a TypeSkip record: all offsets of [From, To) of a queue that the group has
// not been handed are done, because the group's filter let them pass.
type Skip struct {
	Topic    TopicID
	Group    GroupID
	Queue    QueueID
	From, To QueueOffset
}

// MetaKind says what a Meta record is about.
type MetaKind uint8

// Kinds of Meta records.
const (
	MetaTopic MetaKind = 1
	MetaGroup MetaKind = 2
	MetaLite  MetaKind = 3
)

// Meta is the body of a TypeMeta record: a topic, group or lite topic was created, changed or deleted.
type Meta struct {
	Kind    MetaKind
	Version uint64 // the controller's version (raft index) of this change; of a lite topic its QueueID
	ID      uint32 // TopicID or GroupID; of a lite topic its parent's TopicID
	Deleted bool
	Name    []byte
	Value   []byte // the definition as JSON, opaque to the store; empty if deleted
}

// EpochStart is the body of a TypeEpoch record, the first of every epoch. Every start of a broker
// begins an epoch, so that a suffix lost in a power cut is noticed.
type EpochStart struct {
	Epoch       Epoch
	Incarnation uint64   // raft index of the registration
	Replica     [16]byte // uuid of the replica that leads
	Sync        [][16]byte
	Version     uint64 // of the SyncStateSet
}
