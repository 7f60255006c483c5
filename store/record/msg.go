package record

import "math"

// Bits of the flags of a Msg.
const (
	msgHasTag uint8 = 1 << iota
	msgHasGroup
	msgHasTime
	msgNoPlace
)

// put says the layout of a Msg:
//
//	 0  1  type
//	 1  1  flags   1 tag hash, 2 group hash, 4 not before, 8 without a place (offset -1)
//	 2  2  bytes of the id
//	 4  4  topic
//	 8  4  queue
//	12  8  offset, unless without a place
//	   16  digest
//	    8  tag hash, if flagged
//	    8  group hash, if flagged
//	    8  not before, ms since 1970, if flagged
//	       uvarint bytes of user, uvarint bytes of sys
//	       id, user, sys, and the body as the rest
func (m *Msg) put(s *sink) {
	if len(m.ID) > math.MaxUint16 {
		panic("record: message id over 65535 bytes")
	}
	flags := uint8(0)
	if m.TagHash != 0 {
		flags |= msgHasTag
	}
	if m.GroupHash != 0 {
		flags |= msgHasGroup
	}
	if m.DeliverAt != 0 {
		flags |= msgHasTime
	}
	if m.Offset < 0 {
		flags |= msgNoPlace
	}
	s.u8(uint8(m.Type))
	s.u8(flags)
	s.u16(uint16(len(m.ID)))
	s.u32(uint32(m.Topic))
	s.u32(uint32(m.Queue))
	if m.Offset >= 0 {
		s.u64(uint64(m.Offset))
	}
	s.raw(m.Digest[:])
	if m.TagHash != 0 {
		s.u64(m.TagHash)
	}
	if m.GroupHash != 0 {
		s.u64(m.GroupHash)
	}
	if m.DeliverAt != 0 {
		s.u64(uint64(m.DeliverAt))
	}
	s.uvarint(uint64(len(m.User)))
	s.uvarint(uint64(len(m.Sys)))
	s.raw(m.ID)
	s.raw(m.User)
	s.raw(m.Sys)
	s.raw(m.Body)
}

// MsgSize is the length of m as a body.
func MsgSize(m *Msg) int {
	var s sink
	m.put(&s)
	return s.n
}

// PutMsg writes m to dst, MsgSize bytes long.
func PutMsg(dst []byte, m *Msg) {
	s := start(dst)
	m.put(&s)
	s.end(dst)
}

// DecodeMsg reads the body of a TypeMsg record.
func DecodeMsg(body []byte) (m Msg, err error) {
	s := source{b: body}
	s.msg(&m)
	return m, s.end(TypeMsg)
}

// msg reads a Msg, to the end.
func (s *source) msg(m *Msg) {
	m.Type = MsgType(s.u8())
	flags := s.flags(msgHasTag | msgHasGroup | msgHasTime | msgNoPlace)
	id := s.u16()
	m.Topic = TopicID(s.u32())
	m.Queue = QueueID(s.u32())
	m.Offset = -1
	if flags&msgNoPlace == 0 {
		if m.Offset = QueueOffset(s.u64()); m.Offset < 0 {
			s.fail()
		}
	}
	copy(m.Digest[:], s.raw(16))
	if flags&msgHasTag != 0 {
		m.TagHash = s.u64()
	}
	if flags&msgHasGroup != 0 {
		m.GroupHash = s.u64()
	}
	if flags&msgHasTime != 0 {
		m.DeliverAt = int64(s.u64())
	}
	user, sys := s.uvarint(), s.uvarint()
	m.ID, m.User, m.Sys = s.span(uint64(id)), s.span(user), s.span(sys)
	m.Body = s.span(uint64(len(s.b)))
}
