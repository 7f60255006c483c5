package record

// DeadReason says why a message went to the dead-letter topic.
type DeadReason uint8

// Reasons.
const (
	DeadMaxAttempts DeadReason = 1 // handed out as often as the group allows
	DeadByClient    DeadReason = 2 // the consumer asked for it
	DeadByOperator  DeadReason = 3
)

// Dead is the body of a TypeDead record: a message is done for a group, and stands as Msg, a copy, in
// the group's dead-letter topic.
type Dead struct {
	Topic    TopicID
	Group    GroupID
	Queue    QueueID
	Offset   QueueOffset
	Reason   DeadReason
	Attempts uint32
	History  []DeadAttempt // oldest first; may be shorter than Attempts
	Msg      Msg
}

// DeadAttempt is one delivery of a dead message.
type DeadAttempt struct {
	Lease Pos
	Time  int64 // ms since 1970
}

// put says the layout of a Dead:
//
//	uvarint topic, uvarint group, uvarint queue, uvarint offset: the message it was
//	byte reason, uvarint attempts
//	uvarint length of the history, each: varint lease less the one before (0 at first),
//	  varint time less the one before (0 at first)
//	the dead-letter message as the rest, laid out as a Msg
func (d *Dead) put(s *sink) {
	s.uvarint(uint64(d.Topic))
	s.uvarint(uint64(d.Group))
	s.num(int64(d.Queue))
	s.num(int64(d.Offset))
	s.u8(uint8(d.Reason))
	s.uvarint(uint64(d.Attempts))
	s.count(len(d.History))
	lease, at := Pos(0), int64(0)
	for _, h := range d.History {
		s.varint(int64(h.Lease - lease))
		s.varint(h.Time - at)
		lease, at = h.Lease, h.Time
	}
	d.Msg.put(s)
}

// DeadSize is the length of d as a body.
func DeadSize(d *Dead) int {
	var s sink
	d.put(&s)
	return s.n
}

// PutDead writes d to dst, DeadSize bytes long.
func PutDead(dst []byte, d *Dead) {
	s := start(dst)
	d.put(&s)
	s.end(dst)
}

// DecodeDead reads the body of a TypeDead record.
func DecodeDead(body []byte) (d Dead, err error) {
	s := source{b: body}
	d.Topic, d.Group, d.Queue, d.Offset = TopicID(s.id32()), GroupID(s.id32()), s.queue(), s.offset()
	d.Reason, d.Attempts = DeadReason(s.u8()), s.id32()
	lease, at := int64(0), int64(0)
	for range s.count(2) {
		lease += s.varint()
		at += s.varint()
		if lease < 0 || at < 0 {
			s.fail()
			break
		}
		d.History = append(d.History, DeadAttempt{Lease: Pos(lease), Time: at})
	}
	s.msg(&d.Msg)
	return d, s.end(TypeDead)
}
