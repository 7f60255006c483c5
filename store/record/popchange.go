package record

import "math"

// put says the layout of a PopChange:
//
//	uvarint topic, uvarint group, uvarint until
//	uvarint number of changes, each:
//	  uvarint queue*2 + keep
//	  varint offset less that of the change before (0 at first)
//	  varint lease less that of the change before (0 at first)
func (c *PopChange) put(s *sink) {
	s.uvarint(uint64(c.Topic))
	s.uvarint(uint64(c.Group))
	s.num(c.Until)
	s.count(len(c.Changes))
	offset, lease := QueueOffset(0), Pos(0)
	for i := range c.Changes {
		ch := &c.Changes[i]
		head := int64(ch.Queue) << 1
		if ch.Keep {
			head |= 1
		}
		s.num(head)
		s.varint(int64(ch.Offset - offset))
		s.varint(int64(ch.Lease - lease))
		offset, lease = ch.Offset, ch.Lease
	}
}

// PopChangeSize is the length of c as a body.
func PopChangeSize(c *PopChange) int {
	var s sink
	c.put(&s)
	return s.n
}

// PutPopChange writes c to dst, PopChangeSize bytes long.
func PutPopChange(dst []byte, c *PopChange) {
	s := start(dst)
	c.put(&s)
	s.end(dst)
}

// DecodePopChange reads the body of a TypePopChange record.
func DecodePopChange(body []byte) (c PopChange, err error) {
	s := source{b: body}
	c.Topic, c.Group, c.Until = TopicID(s.id32()), GroupID(s.id32()), s.num(math.MaxInt64)
	offset, lease := int64(0), int64(0)
	for range s.count(3) {
		head := s.num(math.MaxInt32<<1 | 1)
		offset += s.varint()
		lease += s.varint()
		if offset < 0 || lease < 0 {
			s.fail()
			break
		}
		c.Changes = append(c.Changes, Change{
			Queue: QueueID(head >> 1), Offset: QueueOffset(offset), Lease: Pos(lease), Keep: head&1 != 0,
		})
	}
	return c, s.end(TypePopChange)
}

// put says the layout of a SessionEnd: uvarint client, uvarint until.
func (e *SessionEnd) put(s *sink) {
	s.uvarint(uint64(e.Client))
	s.num(e.Until)
}

// SessionEndSize is the length of e as a body.
func SessionEndSize(e *SessionEnd) int {
	var s sink
	e.put(&s)
	return s.n
}

// PutSessionEnd writes e to dst, SessionEndSize bytes long.
func PutSessionEnd(dst []byte, e *SessionEnd) {
	s := start(dst)
	e.put(&s)
	s.end(dst)
}

// DecodeSessionEnd reads the body of a TypeSessionEnd record.
func DecodeSessionEnd(body []byte) (e SessionEnd, err error) {
	s := source{b: body}
	e.Client, e.Until = ClientNum(s.id32()), s.num(math.MaxInt64)
	return e, s.end(TypeSessionEnd)
}

// put says the layout of a Skip: uvarint topic, uvarint group, uvarint queue, uvarint from,
// uvarint to-from.
func (k *Skip) put(s *sink) {
	s.uvarint(uint64(k.Topic))
	s.uvarint(uint64(k.Group))
	s.num(int64(k.Queue))
	s.num(int64(k.From))
	s.num(int64(k.To - k.From))
}

// SkipSize is the length of k as a body.
func SkipSize(k *Skip) int {
	var s sink
	k.put(&s)
	return s.n
}

// PutSkip writes k to dst, SkipSize bytes long.
func PutSkip(dst []byte, k *Skip) {
	s := start(dst)
	k.put(&s)
	s.end(dst)
}

// DecodeSkip reads the body of a TypeSkip record.
func DecodeSkip(body []byte) (k Skip, err error) {
	s := source{b: body}
	k.Topic, k.Group, k.Queue, k.From = TopicID(s.id32()), GroupID(s.id32()), s.queue(), s.offset()
	k.To = k.From + QueueOffset(s.num(math.MaxInt64-int64(k.From)))
	return k, s.end(TypeSkip)
}
