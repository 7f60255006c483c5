package record

import "math"

// Place is a stored message that becomes visible: where it stands in its queue and where its bytes are.
// It has what a consume-queue entry needs, so that nobody has to read the message to apply it.
type Place struct {
	Queue     QueueID
	Offset    QueueOffset
	Ref       Pos    // of the message's record
	Size      uint32 // of the message's record, bytes, a multiple of Align
	TagHash   uint64 // 0: no tag
	GroupHash uint64 // 0: no message group
}

// Deliver is the body of a TypeDeliver record: delayed messages of a topic become visible.
type Deliver struct {
	Topic TopicID
	Items []Place
}

// put says the layout of a Deliver:
//
//	uvarint topic, uvarint number of items, each as in TxnEnd
func (d *Deliver) put(s *sink) {
	s.uvarint(uint64(d.Topic))
	s.places(d.Items)
}

// DeliverSize is the length of d as a body.
func DeliverSize(d *Deliver) int {
	var s sink
	d.put(&s)
	return s.n
}

// PutDeliver writes d to dst, DeliverSize bytes long.
func PutDeliver(dst []byte, d *Deliver) {
	s := start(dst)
	d.put(&s)
	s.end(dst)
}

// DecodeDeliver reads the body of a TypeDeliver record.
func DecodeDeliver(body []byte) (d Deliver, err error) {
	s := source{b: body}
	d.Topic, d.Items = TopicID(s.id32()), s.places()
	return d, s.end(TypeDeliver)
}

// Bits of the flags of a Place, beside its queue.
const (
	placeHasTag   = 1
	placeHasGroup = 2
)

// places are the messages that a record makes visible:
//
//	uvarint number of items, each:
//	  uvarint queue*4 + 1 (tag hash) + 2 (message-group hash)
//	  varint offset less that of the item before (0 at first)
//	  varint position of the message less that of the item before (0 at first)
//	  uvarint size of the message's record / 8
//	  8 bytes tag hash, 8 bytes message-group hash, if flagged
func (s *sink) places(items []Place) {
	s.count(len(items))
	offset, ref := QueueOffset(0), Pos(0)
	for i := range items {
		p := &items[i]
		head := int64(p.Queue) << 2
		if p.TagHash != 0 {
			head |= placeHasTag
		}
		if p.GroupHash != 0 {
			head |= placeHasGroup
		}
		s.num(head)
		s.varint(int64(p.Offset - offset))
		s.varint(int64(p.Ref - ref))
		s.uvarint(uint64(p.Size) / Align)
		if p.TagHash != 0 {
			s.u64(p.TagHash)
		}
		if p.GroupHash != 0 {
			s.u64(p.GroupHash)
		}
		offset, ref = p.Offset, p.Ref
	}
}

func (s *source) places() (items []Place) {
	offset, ref := int64(0), int64(0)
	for range s.count(4) {
		head := s.num(math.MaxInt32<<2 | 3)
		offset += s.varint()
		ref += s.varint()
		p := Place{Queue: QueueID(head >> 2), Offset: QueueOffset(offset), Ref: Pos(ref), Size: uint32(s.num(math.MaxUint32/Align)) * Align}
		if head&placeHasTag != 0 {
			p.TagHash = s.u64()
		}
		if head&placeHasGroup != 0 {
			p.GroupHash = s.u64()
		}
		if offset < 0 || ref < 0 {
			s.fail()
			break
		}
		items = append(items, p)
	}
	return items
}

// refs are positions of messages: uvarint number, then varint less the one before (0 at first).
func (s *sink) refs(refs []Pos) {
	s.count(len(refs))
	ref := Pos(0)
	for _, r := range refs {
		s.varint(int64(r - ref))
		ref = r
	}
}

func (s *source) refs() (refs []Pos) {
	ref := int64(0)
	for range s.count(1) {
		if ref += s.varint(); ref < 0 {
			s.fail()
			break
		}
		refs = append(refs, Pos(ref))
	}
	return refs
}

// Recall is the body of a TypeRecall record: delayed messages of a topic will never be delivered.
type Recall struct {
	Topic TopicID
	Items []Recalled
}

// Recalled is one message of a Recall. Its time is there so that it is found among those that wait.
type Recalled struct {
	Ref       Pos   // of the message's record
	DeliverAt int64 // of the message, ms since 1970
}

// put says the layout of a Recall:
//
//	uvarint topic, uvarint number of items, each:
//	  varint position of the message less that of the item before (0 at first)
//	  uvarint not before, ms since 1970
func (r *Recall) put(s *sink) {
	s.uvarint(uint64(r.Topic))
	s.count(len(r.Items))
	ref := Pos(0)
	for _, i := range r.Items {
		s.varint(int64(i.Ref - ref))
		s.num(i.DeliverAt)
		ref = i.Ref
	}
}

// RecallSize is the length of r as a body.
func RecallSize(r *Recall) int {
	var s sink
	r.put(&s)
	return s.n
}

// PutRecall writes r to dst, RecallSize bytes long.
func PutRecall(dst []byte, r *Recall) {
	s := start(dst)
	r.put(&s)
	s.end(dst)
}

// DecodeRecall reads the body of a TypeRecall record.
func DecodeRecall(body []byte) (r Recall, err error) {
	s := source{b: body}
	r.Topic = TopicID(s.id32())
	ref := int64(0)
	for range s.count(2) {
		if ref += s.varint(); ref < 0 {
			s.fail()
			break
		}
		r.Items = append(r.Items, Recalled{Ref: Pos(ref), DeliverAt: s.num(math.MaxInt64)})
	}
	return r, s.end(TypeRecall)
}
