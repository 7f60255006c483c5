package brokerapi

// The requests and replies of the calls that block. Their form on the link is JSON: names are part of it.

// ProducersRequest names all topics of which this proxy has living producers; it replaces what the proxy
// said before. It is soft state: a proxy says it again after every connect and when it changes.
type ProducersRequest struct {
	Topics []TopicID `json:"topics"`
}

// ProducersReply is empty.
type ProducersReply struct{}

// SetOffset is the position of a group in a queue.
type SetOffset struct {
	Topic  TopicID     `json:"topic"`
	Group  GroupID     `json:"group"`
	Queue  QueueID     `json:"queue"`
	Offset QueueOffset `json:"offset"` // of the next message to read
}

// SetOffsetsRequest stores positions of pull consumers.
type SetOffsetsRequest struct {
	User    string      `json:"user,omitempty"`
	Offsets []SetOffset `json:"offsets"`
}

// SetOffsetsReply says that the positions are stored.
type SetOffsetsReply struct{}

// OffsetOf says which offset is asked for.
type OffsetOf uint8

// What an OffsetRequest asks for.
const (
	OffsetOfGroup OffsetOf = 1 // where the group stands: what SetOffsets stored, else the floor of a POP group; NotFound if neither
	OffsetBegin   OffsetOf = 2 // the first stored message
	OffsetEnd     OffsetOf = 3 // behind the last one
	OffsetAtTime  OffsetOf = 4 // the first message stored at or after TimeMS, exactly; the end if there is none
)

// OffsetRequest asks for one offset of a queue.
type OffsetRequest struct {
	User   string   `json:"user,omitempty"`
	Of     OffsetOf `json:"of"`
	Topic  TopicID  `json:"topic"`
	Group  GroupID  `json:"group,omitempty"`
	Queue  QueueID  `json:"queue"`
	TimeMS int64    `json:"time_ms,omitempty"`
}

// OffsetReply is the offset.
type OffsetReply struct {
	Offset QueueOffset `json:"offset"`
}

// ResetTo says where a reset moves a group.
type ResetTo uint8

// Targets of a reset.
const (
	ResetBegin ResetTo = 1 // the first stored message
	ResetEnd   ResetTo = 2 // behind the last one
	ResetTime  ResetTo = 3 // the first message stored at or after TimeMS
	ResetSkip  ResetTo = 4 // Skip messages further than the oldest un-done one
)

// ResetRequest moves a group's position in all queues of a topic that this broker has. What is below the
// new position is done, leased or not, and its handles change nothing from then on (an ack finds it done); what is at or above it
// is un-done again from its first attempt on.
type ResetRequest struct {
	User   string  `json:"user,omitempty"`
	Topic  TopicID `json:"topic"`
	Group  GroupID `json:"group"`
	To     ResetTo `json:"to"`
	TimeMS int64   `json:"time_ms,omitempty"`
	Skip   int64   `json:"skip,omitempty"`
	DryRun bool    `json:"dry_run,omitempty"` // only tell what it would do
}

// ResetQueue is what a reset does to one queue.
type ResetQueue struct {
	Queue    QueueID     `json:"queue"`
	From     QueueOffset `json:"from"` // floor before
	To       QueueOffset `json:"to"`
	InFlight int64       `json:"in_flight"` // leases that it ends
	Again    int64       `json:"again"`     // messages that were done and come again
	Dropped  int64       `json:"dropped"`   // un-done messages that are done now
}

// ResetReply has what a reset did, or would do, queue by queue.
type ResetReply struct {
	Queues []ResetQueue `json:"queues"`
}

// LiteAction has the numbers of the public LiteSubscriptionAction.
type LiteAction uint8

// Actions.
const (
	LitePartialAdd     LiteAction = 0
	LitePartialRemove  LiteAction = 1
	LiteCompleteAdd    LiteAction = 2 // the names are all that the client subscribes to
	LiteCompleteRemove LiteAction = 3 // the client subscribes to nothing any more
)

// LiteFrom says where a group begins on a lite topic that it has not read.
type LiteFrom uint8

// Beginnings.
const (
	LiteFromDefault LiteFrom = 0
	LiteFromFirst   LiteFrom = 1
	LiteFromEnd     LiteFrom = 2
	LiteFromOffset  LiteFrom = 3 // Value
	LiteFromTail    LiteFrom = 4 // the last Value messages
	LiteFromTime    LiteFrom = 5 // Value, ms since 1970
)

// SyncLiteRequest changes what a client of a lite group subscribes to.
type SyncLiteRequest struct {
	User    string     `json:"user,omitempty"`
	Topic   TopicID    `json:"topic"` // parent
	Group   GroupID    `json:"group"`
	Client  string     `json:"client"`
	Action  LiteAction `json:"action"`
	Names   []string   `json:"names,omitempty"`
	From    LiteFrom   `json:"from,omitempty"`
	Value   int64      `json:"value,omitempty"`
	Version int64      `json:"version,omitempty"` // an older one than the last is ignored; 0: none
}

// SyncLiteReply says that the change holds. Too many subscriptions or lite topics are Exhausted.
type SyncLiteReply struct{}

// LiteGoneRequest takes the notices of ended lite subscriptions.
type LiteGoneRequest struct{}

// LiteGone is a subscription that ended without its client: another client took it, the lite topic
// expired, or a quota was lowered.
type LiteGone struct {
	Topic  TopicID `json:"topic"`
	Group  GroupID `json:"group"`
	Client string  `json:"client"`
	Name   string  `json:"name"`
}

// LiteGoneReply has the notices.
type LiteGoneReply struct {
	Gone []LiteGone `json:"gone"`
}

// RedriveRequest stores dead letters of a group again, oldest first, each with the end of the dead letter
// in one record.
type RedriveRequest struct {
	User  string  `json:"user,omitempty"`
	Dead  TopicID `json:"dead"`            // the dead-letter topic
	To    TopicID `json:"to,omitempty"`    // 0: the topic each message came from
	Max   int     `json:"max"`             // messages, 0..1024; 0 only tells what is left
	After LogPos  `json:"after,omitempty"` // Next of the reply before: only letters behind that place
}

// RedriveReply says how far it came.
type RedriveReply struct {
	Redriven int    `json:"redriven"`
	Left     int64  `json:"left"`           // dead letters that can still be redriven
	Next     LogPos `json:"next,omitempty"` // where to go on, no position; 0: there was nothing to look at
	// Failed are dead letters that stay where they are, with the reason.
	Failed []string `json:"failed,omitempty"`
}

// FindRequest looks for stored messages by key or message id, or one message by its place.
type FindRequest struct {
	User   string      `json:"user,omitempty"`
	Topic  TopicID     `json:"topic"`
	Key    string      `json:"key,omitempty"` // one of the message's keys
	ID     string      `json:"id,omitempty"`  // message id
	Queue  QueueID     `json:"queue"`         // with neither key nor id: this place
	Offset QueueOffset `json:"offset,omitempty"`
	FromMS int64       `json:"from_ms,omitempty"` // stored in [FromMS, ToMS), 0: no bound
	ToMS   int64       `json:"to_ms,omitempty"`
	Max    int         `json:"max"` // 1..1024
	Bodies bool        `json:"bodies,omitempty"`
}

// Found is one stored message. Offset is -1 while it has no place in a queue.
type Found struct {
	Pos       LogPos      `json:"pos"`
	Topic     TopicID     `json:"topic"`
	Queue     QueueID     `json:"queue"`
	Offset    QueueOffset `json:"offset"`
	Type      MessageType `json:"type"`
	StoreTime int64       `json:"store_time"`
	DeliverAt int64       `json:"deliver_at,omitempty"`
	ID        string      `json:"id"`
	Size      int         `json:"size"` // of the body, bytes
	State     string      `json:"state,omitempty"`
	User      []byte      `json:"user_properties,omitempty"`
	Sys       []byte      `json:"system_properties,omitempty"`
	Body      []byte      `json:"body,omitempty"` // if asked for
}

// FindReply has the messages, newest first. More says that others matched: those stored no later than the
// last one here.
type FindReply struct {
	Messages []Found `json:"messages"`
	More     bool    `json:"more,omitempty"`
	// Unknown says what could not be looked at, so that a message that is not here may exist all the same.
	Unknown []string `json:"unknown,omitempty"`
}

// TraceRequest asks for the life of one stored message, from the log alone.
type TraceRequest struct {
	User  string  `json:"user,omitempty"`
	Topic TopicID `json:"topic"`
	Pos   LogPos  `json:"pos"`
	Max   int     `json:"max,omitempty"` // events; 0: 1024
	// State goes on where an earlier reply that had More ended.
	State []byte `json:"state,omitempty"`
}

// TraceEvent is one thing that happened to a message. What does not apply is zero; Group 0 is nobody.
type TraceEvent struct {
	Pos     LogPos  `json:"pos"`
	TimeMS  int64   `json:"time_ms"`
	What    string  `json:"what"` // stored, delivered, leased, acked, changed, nacked, filtered, committed, rolled back, checked, recalled, dead, redriven, reset, ended
	Group   GroupID `json:"group,omitempty"`
	Client  string  `json:"client,omitempty"`
	Attempt int32   `json:"attempt,omitempty"`
	UntilMS int64   `json:"until_ms,omitempty"`
	Text    string  `json:"text,omitempty"`
}

// TraceReply has the events in the order of the log. More says that there may be others: a reply covers a
// bounded part of the log. Ask again with its State.
type TraceReply struct {
	Message Found        `json:"message"` // only in the first reply
	Events  []TraceEvent `json:"events"`
	More    bool         `json:"more,omitempty"`
	State   []byte       `json:"state,omitempty"`
	Next    LogPos       `json:"next"` // the log was read up to here
	End     LogPos       `json:"end"`  // where it ended then
}
