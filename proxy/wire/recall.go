package wire

// RecallRequest takes a delayed message back.
type RecallRequest struct {
	Topic  Resource
	Handle []byte // recall handle
}

// Decode reads a RecallMessageRequest.
func (q *RecallRequest) Decode(b []byte) error {
	*q = RecallRequest{}
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Topic.decode(place{message: b, num: f.num}, f.data))
		case f.is(2, typeBytes):
			r.text(&q.Handle, &f)
		}
	}
	return r.err
}

// AppendRecalled appends the message id of a RecallMessageResponse.
func AppendRecalled(dst, messageID []byte) []byte { return appendText(dst, 2, messageID) }
