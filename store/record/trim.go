package record

import "math"

// Trim is the body of a TypeTrim record: the log is about to begin at At, and queues give up what lies
// below. Many records may say one At, each complete in itself for the queues that it names; behind the one
// with Last nothing refers to a place below At any more.
type Trim struct {
	At     Pos   // where the log is to begin: the first position of a segment
	Time   int64 // store time of the record there, ms since 1970: what was stored before goes
	Last   bool  // no further Trim with this At follows
	Queues []TrimQueue
}

// TrimQueue is what a Trim does to one queue: it begins at First. What lies below is done for every group,
// but for the offsets that are leased or wait for a retry: their entries are Held, and replace those that
// the queue held before.
type TrimQueue struct {
	Topic TopicID
	Queue QueueID
	First QueueOffset
	Held  []Held // by offset, strictly rising, below First
}

// Held is a queue entry of a message that its queue has given up while somebody has it.
type Held struct {
	Offset    QueueOffset
	Pos       Pos    // where the message was written at first
	Size      uint32 // of that record, bytes, a multiple of Align
	Time      int64  // visible since, ms since 1970
	TagHash   uint64 // 0: no tag
	GroupHash uint64 // 0: no message group
}

const trimLast uint8 = 1

// put says the layout of a Trim:
//
//	uvarint at, uvarint time, byte flags (1 last)
//	uvarint number of queues, each:
//	  uvarint topic, uvarint queue, uvarint first
//	  uvarint number of held ones, each:
//	    uvarint offset less the one after the one before (0 at first)
//	    byte flags, 1 tag hash, 2 message-group hash
//	    varint position and varint time, both less those of the one before (0 at first)
//	    uvarint size / 8
//	    8 bytes tag hash, 8 bytes message-group hash, if flagged
func (t *Trim) put(s *sink) {
	flags := uint8(0)
	if t.Last {
		flags = trimLast
	}
	s.num(int64(t.At))
	s.num(t.Time)
	s.u8(flags)
	s.count(len(t.Queues))
	for i := range t.Queues {
		q := &t.Queues[i]
		s.uvarint(uint64(q.Topic))
		s.num(int64(q.Queue))
		s.num(int64(q.First))
		s.held(q.Held, q.First)
	}
}

func (s *sink) held(all []Held, first QueueOffset) {
	s.count(len(all))
	next, pos, at := QueueOffset(0), Pos(0), int64(0)
	for i := range all {
		h := &all[i]
		flags := uint8(0)
		if h.TagHash != 0 {
			flags |= placeHasTag
		}
		if h.GroupHash != 0 {
			flags |= placeHasGroup
		}
		if h.Offset >= first {
			panic("record: a held entry is not below the first of its queue")
		}
		s.num(int64(h.Offset - next))
		s.u8(flags)
		s.varint(int64(h.Pos - pos))
		s.varint(h.Time - at)
		s.uvarint(uint64(h.Size) / Align)
		if h.TagHash != 0 {
			s.u64(h.TagHash)
		}
		if h.GroupHash != 0 {
			s.u64(h.GroupHash)
		}
		next, pos, at = h.Offset+1, h.Pos, h.Time
	}
}

// TrimSize is the length of t as a body.
func TrimSize(t *Trim) int {
	var s sink
	t.put(&s)
	return s.n
}

// PutTrim writes t to dst, TrimSize bytes long.
func PutTrim(dst []byte, t *Trim) {
	s := start(dst)
	t.put(&s)
	s.end(dst)
}

// DecodeTrim reads the body of a TypeTrim record.
func DecodeTrim(body []byte) (t Trim, err error) {
	s := source{b: body}
	t.At, t.Time = s.pos(), s.num(math.MaxInt64)
	t.Last = s.flags(trimLast) != 0
	for range s.count(4) {
		q := TrimQueue{Topic: TopicID(s.id32()), Queue: s.queue(), First: s.offset()}
		q.Held = s.held(q.First)
		if s.bad {
			break
		}
		t.Queues = append(t.Queues, q)
	}
	return t, s.end(TypeTrim)
}

func (s *source) held(first QueueOffset) (all []Held) {
	next, pos, at := QueueOffset(0), int64(0), int64(0)
	for range s.count(5) {
		gap := s.offset()
		flags := s.flags(placeHasTag | placeHasGroup)
		pos += s.varint()
		at += s.varint()
		h := Held{Pos: Pos(pos), Time: at, Size: uint32(s.num(math.MaxUint32/Align)) * Align}
		if flags&placeHasTag != 0 {
			h.TagHash = s.u64()
		}
		if flags&placeHasGroup != 0 {
			h.GroupHash = s.u64()
		}
		if pos < 0 || at < 0 || gap >= first-next {
			s.fail()
			break
		}
		h.Offset = next + gap
		next = h.Offset + 1
		all = append(all, h)
	}
	return all
}
