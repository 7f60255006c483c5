package wire

// PullMessageRequest reads a queue at an offset.
type PullMessageRequest struct {
	Group              Resource
	Queue              MessageQueue
	Offset             int64
	BatchSize          int32
	Filter             Filter
	LongPollingTimeout Time
}

// Decode reads a PullMessageRequest.
func (q *PullMessageRequest) Decode(b []byte) error {
	*q = PullMessageRequest{}
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Group.decode(place{message: b, num: f.num}, f.data))
		case f.is(2, typeBytes):
			r.also(q.Queue.decode(place{message: b, num: f.num}, f.data))
		case f.is(3, typeVarint):
			q.Offset = int64(f.val)
		case f.is(4, typeVarint):
			q.BatchSize = int32(f.val)
		case f.is(5, typeBytes):
			r.also(q.Filter.decode(f.data))
		case f.is(6, typeBytes):
			r.also(q.LongPollingTimeout.decode(f.data))
		}
	}
	return r.err
}

// UpdateOffsetRequest stores how far a group has read a queue.
type UpdateOffsetRequest struct {
	Group  Resource
	Queue  MessageQueue
	Offset int64
}

// Decode reads an UpdateOffsetRequest.
func (q *UpdateOffsetRequest) Decode(b []byte) error {
	*q = UpdateOffsetRequest{}
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Group.decode(place{message: b, num: f.num}, f.data))
		case f.is(2, typeBytes):
			r.also(q.Queue.decode(place{message: b, num: f.num}, f.data))
		case f.is(3, typeVarint):
			q.Offset = int64(f.val)
		}
	}
	return r.err
}

// GetOffsetRequest asks how far a group has read a queue.
type GetOffsetRequest struct {
	Group Resource
	Queue MessageQueue
}

// Decode reads a GetOffsetRequest.
func (q *GetOffsetRequest) Decode(b []byte) error {
	*q = GetOffsetRequest{}
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Group.decode(place{message: b, num: f.num}, f.data))
		case f.is(2, typeBytes):
			r.also(q.Queue.decode(place{message: b, num: f.num}, f.data))
		}
	}
	return r.err
}

// QueryOffsetRequest asks for a position in a queue.
type QueryOffsetRequest struct {
	Queue  MessageQueue
	Policy int32
	Time   Time
}

// Decode reads a QueryOffsetRequest.
func (q *QueryOffsetRequest) Decode(b []byte) error {
	*q = QueryOffsetRequest{}
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Queue.decode(place{message: b, num: f.num}, f.data))
		case f.is(2, typeVarint):
			q.Policy = int32(f.val)
		case f.is(3, typeBytes):
			r.also(q.Time.decode(f.data))
		}
	}
	return r.err
}

// AppendNextOffset appends the end of a pull: a PullMessageResponse with the offset to go on with.
func AppendNextOffset(dst []byte, off int64) []byte { return appendPresentInt(dst, 3, off) }

// AppendOffset appends the offset of a GetOffsetResponse or QueryOffsetResponse.
func AppendOffset(dst []byte, off int64) []byte { return appendInt(dst, 2, off) }
