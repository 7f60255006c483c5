package brokerapi

// DrainRequest asks a broker what is left of messages with a message group on a topic that is about to get
// more queues. The broker refuses new ones since it has logged that.
type DrainRequest struct {
	User  string  `json:"user,omitempty"`
	Topic TopicID `json:"topic"`
	Began uint64  `json:"began"` // names the growth: the controller's version at which it began
	// Groups are counted although they may have read nothing here, such as those that read elsewhere.
	Groups []GroupID `json:"groups,omitempty"`
}

// DrainGroup is what a group has left to do.
type DrainGroup struct {
	Group  GroupID `json:"group"`
	Undone int64   `json:"undone"` // messages up to the last one with a message group, queue by queue
}

// DrainReply is what is left. Once nothing is left nothing comes again, but for what a reset of a group
// brings back.
type DrainReply struct {
	// Growing says that this growth is in the log, durably. If not, the rest is empty.
	Growing bool         `json:"growing"`
	Storing int64        `json:"storing"` // messages on their way to the disk, of any kind
	Delayed int64        `json:"delayed"` // waiting for their time
	Halves  int64        `json:"halves"`  // waiting for their verdict
	Groups  []DrainGroup `json:"groups"`  // those that have read the topic here and those that were asked for, by id
}

// LiteListRequest asks for lite topics of a parent, by name.
type LiteListRequest struct {
	User  string  `json:"user,omitempty"`
	Topic TopicID `json:"topic"`
	After string  `json:"after,omitempty"` // only names behind this one
	Max   int     `json:"max"`             // 0..1024; 0 only counts
}

// LiteTopic is one lite topic.
type LiteTopic struct {
	Name        string      `json:"name"`
	Min         QueueOffset `json:"min"` // stored: [Min, Max)
	Max         QueueOffset `json:"max"`
	ActiveMS    int64       `json:"active_ms"` // when it was made or last sent to
	Subscribers int         `json:"subscribers"`
}

// LiteListReply has a part of the lite topics, and how many there are in all.
type LiteListReply struct {
	Topics []LiteTopic `json:"topics"`
	More   bool        `json:"more,omitempty"`
	Count  int         `json:"count"`
}
