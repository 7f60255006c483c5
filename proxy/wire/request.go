package wire

// QueryRouteRequest asks for the queues of a topic.
type QueryRouteRequest struct {
	Topic     Resource
	Endpoints Endpoints
}

// Decode reads a QueryRouteRequest.
func (q *QueryRouteRequest) Decode(b []byte) error {
	*q = QueryRouteRequest{}
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Topic.decode(place{message: b, num: f.num}, f.data))
		case f.is(2, typeBytes):
			r.also(q.Endpoints.decode(place{message: b, num: f.num}, f.data))
		}
	}
	return r.err
}

// QueryAssignmentRequest asks which queues a group's client should receive from.
type QueryAssignmentRequest struct {
	Topic     Resource
	Group     Resource
	Endpoints Endpoints
}

// Decode reads a QueryAssignmentRequest.
func (q *QueryAssignmentRequest) Decode(b []byte) error {
	*q = QueryAssignmentRequest{}
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Topic.decode(place{message: b, num: f.num}, f.data))
		case f.is(2, typeBytes):
			r.also(q.Group.decode(place{message: b, num: f.num}, f.data))
		case f.is(3, typeBytes):
			r.also(q.Endpoints.decode(place{message: b, num: f.num}, f.data))
		}
	}
	return r.err
}

// MessageQueue is a queue as a client names it. Topic and broker name are all that counts.
type MessageQueue struct {
	Topic  Resource
	ID     int32
	Broker []byte // name
}

// decode reads one occurrence; in is where it is.
func (q *MessageQueue) decode(in place, data []byte) error {
	r := reader{b: data}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Topic.decode(place{message: in.message, outer: in.num, num: 1}, f.data))
		case f.is(2, typeVarint):
			q.ID = int32(f.val)
		case f.is(4, typeBytes):
			r.also(q.broker(f.data))
		case f.is(5, typeBytes):
			r.also(checkPacked(f.data))
		}
	}
	return r.err
}

func (q *MessageQueue) broker(b []byte) error {
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.text(&q.Broker, &f)
		case f.is(3, typeBytes):
			r.also(check(f.data, endpointsShape))
		}
	}
	return r.err
}

// Filter is a FilterExpression.
type Filter struct {
	Type       int32
	Expression []byte
	Set        bool
}

func (e *Filter) decode(b []byte) error {
	e.Set = true
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeVarint):
			e.Type = int32(f.val)
		case f.is(2, typeBytes):
			r.text(&e.Expression, &f)
		}
	}
	return r.err
}

// ReceiveMessageRequest asks for messages.
type ReceiveMessageRequest struct {
	Group              Resource
	Queue              MessageQueue
	Filter             Filter
	BatchSize          int32
	InvisibleDuration  Time
	AutoRenew          bool
	LongPollingTimeout Time
	AttemptID          []byte
	HasAttemptID       bool
}

// Decode reads a ReceiveMessageRequest.
func (q *ReceiveMessageRequest) Decode(b []byte) error {
	*q = ReceiveMessageRequest{}
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Group.decode(place{message: b, num: f.num}, f.data))
		case f.is(2, typeBytes):
			r.also(q.Queue.decode(place{message: b, num: 2}, f.data))
		case f.is(3, typeBytes):
			r.also(q.Filter.decode(f.data))
		case f.is(4, typeVarint):
			q.BatchSize = int32(f.val)
		case f.is(5, typeBytes):
			r.also(q.InvisibleDuration.decode(f.data))
		case f.is(6, typeVarint):
			q.AutoRenew = f.val != 0
		case f.is(7, typeBytes):
			r.also(q.LongPollingTimeout.decode(f.data))
		case f.is(8, typeBytes):
			r.text(&q.AttemptID, &f)
			q.HasAttemptID = true
		}
	}
	return r.err
}

// AckEntry is one message of an AckMessageRequest.
type AckEntry struct {
	MessageID    []byte
	Handle       []byte // receipt handle
	LiteTopic    []byte
	HasLiteTopic bool
}

func (e *AckEntry) decode(b []byte) error {
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.text(&e.MessageID, &f)
		case f.is(2, typeBytes):
			r.text(&e.Handle, &f)
		case f.is(3, typeBytes):
			r.text(&e.LiteTopic, &f)
			e.HasLiteTopic = true
		}
	}
	return r.err
}

// AckMessageRequest ends messages. It may be used again for another request.
type AckMessageRequest struct {
	Group   Resource
	Topic   Resource
	Entries []AckEntry
}

// Decode reads an AckMessageRequest.
func (q *AckMessageRequest) Decode(b []byte) error {
	*q = AckMessageRequest{Entries: q.Entries[:0]}
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Group.decode(place{message: b, num: f.num}, f.data))
		case f.is(2, typeBytes):
			r.also(q.Topic.decode(place{message: b, num: f.num}, f.data))
		case f.is(3, typeBytes):
			if len(q.Entries) == MaxEntries {
				return ErrTooMany
			}
			q.Entries = append(q.Entries, AckEntry{})
			r.also(q.Entries[len(q.Entries)-1].decode(f.data))
		}
	}
	return r.err
}

// ChangeInvisibleDurationRequest gives one message a new deadline.
type ChangeInvisibleDurationRequest struct {
	Group             Resource
	Topic             Resource
	Handle            []byte // receipt handle
	InvisibleDuration Time
	MessageID         []byte
	LiteTopic         []byte
	HasLiteTopic      bool
	Suspend           bool
}

// Decode reads a ChangeInvisibleDurationRequest.
func (q *ChangeInvisibleDurationRequest) Decode(b []byte) error {
	*q = ChangeInvisibleDurationRequest{}
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Group.decode(place{message: b, num: f.num}, f.data))
		case f.is(2, typeBytes):
			r.also(q.Topic.decode(place{message: b, num: f.num}, f.data))
		case f.is(3, typeBytes):
			r.text(&q.Handle, &f)
		case f.is(4, typeBytes):
			r.also(q.InvisibleDuration.decode(f.data))
		case f.is(5, typeBytes):
			r.text(&q.MessageID, &f)
		case f.is(6, typeBytes):
			r.text(&q.LiteTopic, &f)
			q.HasLiteTopic = true
		case f.is(7, typeVarint):
			q.Suspend = f.val != 0
		}
	}
	return r.err
}

// HeartbeatRequest says that a client is alive.
type HeartbeatRequest struct {
	Group      Resource
	ClientType int32
}

// Decode reads a HeartbeatRequest.
func (q *HeartbeatRequest) Decode(b []byte) error {
	*q = HeartbeatRequest{}
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Group.decode(place{message: b, num: f.num}, f.data))
		case f.is(2, typeVarint):
			q.ClientType = int32(f.val)
		}
	}
	return r.err
}

// NotifyClientTerminationRequest says that a client goes away.
type NotifyClientTerminationRequest struct{ Group Resource }

// Decode reads a NotifyClientTerminationRequest.
func (q *NotifyClientTerminationRequest) Decode(b []byte) error {
	*q = NotifyClientTerminationRequest{}
	r := reader{b: b}
	var f field
	for r.next(&f) {
		if f.is(1, typeBytes) {
			r.also(q.Group.decode(place{message: b, num: f.num}, f.data))
		}
	}
	return r.err
}
