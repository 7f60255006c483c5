package record

import "math"

// put says the layout of a PopAck:
//
//	uvarint number of sections, each:
//	  uvarint topic, uvarint group, uvarint queue
//	  uvarint number of offsets, then until that many are there:
//	    uvarint gap*2 + run; gap: offset less the offset after the one before (0 at first)
//	    uvarint length-2, if run is 1: that many consecutive offsets
func (a *PopAck) put(s *sink) {
	s.count(len(a.Sections))
	for i := range a.Sections {
		sec := &a.Sections[i]
		s.uvarint(uint64(sec.Topic))
		s.uvarint(uint64(sec.Group))
		s.num(int64(sec.Queue))
		s.offsets(sec.Offsets)
	}
}

func (s *sink) offsets(offsets []QueueOffset) {
	s.count(len(offsets))
	next := QueueOffset(0)
	for len(offsets) > 0 {
		n := 1
		for n < len(offsets) && offsets[n] == offsets[0]+QueueOffset(n) {
			n++
		}
		gap := int64(offsets[0] - next)
		if n == 1 {
			s.num(gap << 1)
		} else {
			s.num(gap<<1 | 1)
			s.uvarint(uint64(n - 2))
		}
		next = offsets[n-1] + 1
		offsets = offsets[n:]
	}
}

// PopAckSize is the length of a as a body.
func PopAckSize(a *PopAck) int {
	var s sink
	a.put(&s)
	return s.n
}

// PutPopAck writes a to dst, PopAckSize bytes long.
func PutPopAck(dst []byte, a *PopAck) {
	s := start(dst)
	a.put(&s)
	s.end(dst)
}

// DecodePopAck reads the body of a TypePopAck record.
func DecodePopAck(body []byte) (a PopAck, err error) {
	s := source{b: body}
	for range s.count(4) {
		a.Sections = append(a.Sections, AckSection{
			Topic: TopicID(s.id32()), Group: GroupID(s.id32()), Queue: s.queue(), Offsets: s.offsets(),
		})
	}
	return a, s.end(TypePopAck)
}

// maxGap keeps a gap and its bit within a non-negative int64. Offsets beyond are none.
const maxGap = math.MaxInt64 >> 1

func (s *source) offsets() (offsets []QueueOffset) {
	n := s.count(0)
	next := int64(0)
	for len(offsets) < n && !s.bad {
		head := s.num(math.MaxInt64)
		length := int64(1)
		if head&1 != 0 {
			length = 2 + s.num(MaxItems)
		}
		gap := head >> 1
		if length > int64(n-len(offsets)) || gap > maxGap-next || next+gap > maxGap-length {
			s.fail()
			break
		}
		for i := range length {
			offsets = append(offsets, QueueOffset(next+gap+i))
		}
		next += gap + length
	}
	return offsets
}
