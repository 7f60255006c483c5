package wire

// ForwardRequest is a ForwardMessageToDeadLetterQueueRequest: one message goes to the dead-letter topic of
// its group.
type ForwardRequest struct {
	Group        Resource
	Topic        Resource
	Handle       []byte // receipt handle
	MessageID    []byte
	Attempt      int32 // the client's count
	MaxAttempts  int32 // the client's bound
	LiteTopic    []byte
	HasLiteTopic bool
}

// Decode reads a ForwardMessageToDeadLetterQueueRequest.
func (q *ForwardRequest) Decode(b []byte) error {
	*q = ForwardRequest{}
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
			r.text(&q.MessageID, &f)
		case f.is(5, typeVarint):
			q.Attempt = int32(f.val)
		case f.is(6, typeVarint):
			q.MaxAttempts = int32(f.val)
		case f.is(7, typeBytes):
			r.text(&q.LiteTopic, &f)
			q.HasLiteTopic = true
		}
	}
	return r.err
}
