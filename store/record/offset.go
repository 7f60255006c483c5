package record

// OffsetKind says what an OffsetItem sets.
type OffsetKind uint8

// Kinds of offsets.
const (
	OffsetPull  OffsetKind = 1 // a pull consumer's progress: the next offset to read
	OffsetReset OffsetKind = 2 // the group goes on from here, whatever was in flight
)

// Offsets is the body of a TypeOffset record: pull and reset positions.
type Offsets struct{ Items []OffsetItem }

// OffsetItem is one position of an Offsets.
type OffsetItem struct {
	Kind   OffsetKind
	Topic  TopicID
	Group  GroupID
	Queue  QueueID
	Offset QueueOffset
}

// put says the layout of an Offsets:
//
//	uvarint number of items, each:
//	  byte kind, uvarint topic, uvarint group, uvarint queue, uvarint offset
func (o *Offsets) put(s *sink) {
	s.count(len(o.Items))
	for i := range o.Items {
		it := &o.Items[i]
		s.u8(uint8(it.Kind))
		s.uvarint(uint64(it.Topic))
		s.uvarint(uint64(it.Group))
		s.num(int64(it.Queue))
		s.num(int64(it.Offset))
	}
}

// OffsetsSize is the length of o as a body.
func OffsetsSize(o *Offsets) int {
	var s sink
	o.put(&s)
	return s.n
}

// PutOffsets writes o to dst, OffsetsSize bytes long.
func PutOffsets(dst []byte, o *Offsets) {
	s := start(dst)
	o.put(&s)
	s.end(dst)
}

// DecodeOffsets reads the body of a TypeOffset record.
func DecodeOffsets(body []byte) (o Offsets, err error) {
	s := source{b: body}
	for range s.count(5) {
		o.Items = append(o.Items, OffsetItem{
			Kind: OffsetKind(s.u8()), Topic: TopicID(s.id32()), Group: GroupID(s.id32()), Queue: s.queue(), Offset: s.offset(),
		})
	}
	return o, s.end(TypeOffset)
}
