package record

import "math"

// Bits of the flags of a PopCk.
const (
	ckSession uint8 = 1 << iota
	ckNamesClient
	ckHasAttemptID
	ckOrdered
)

// Kinds of blocks of items, the low two bits of a block's head.
const (
	blockNew   = 0 // consecutive, all handed out for the first time
	blockMixed = 1 // consecutive, each handed out for the first time or skipped
	blockAny   = 2 // anything
)

// put says the layout of a PopCk:
//
//	uvarint topic, uvarint group, byte flags (1 session, 2 client name, 4 attempt id, 8 in order)
//	uvarint until, uvarint client
//	uvarint length and client name, if flagged
//	uvarint length and attempt id, if flagged
//	uvarint number of sections, each:
//	  uvarint queue, uvarint number of items, then blocks until that many items are there:
//	    uvarint count*4 + kind
//	    uvarint gap: first offset less the offset after the item before (0 at first)
//	    kind 0: nothing more: count consecutive items with attempt 1 and no former lease
//	    kind 1: (count+7)/8 bytes, bit i%8 of byte i/8 set: item i is skipped (attempt 0)
//	    kind 2: for each item uvarint gap (not for the first), uvarint attempt,
//	            varint former lease less that of the item of kind 2 before (0 at first)
//	  uvarint next less the offset after the last item (0 if there is none), if flagged as in order
func (c *PopCk) put(s *sink) {
	flags := uint8(0)
	if c.Session {
		flags |= ckSession
	}
	if len(c.ClientName) > 0 {
		flags |= ckNamesClient
	}
	if len(c.AttemptID) > 0 {
		flags |= ckHasAttemptID
	}
	if c.Ordered {
		flags |= ckOrdered
	}
	s.uvarint(uint64(c.Topic))
	s.uvarint(uint64(c.Group))
	s.u8(flags)
	s.num(c.Until)
	s.uvarint(uint64(c.Client))
	if len(c.ClientName) > 0 {
		s.bytes(c.ClientName)
	}
	if len(c.AttemptID) > 0 {
		s.bytes(c.AttemptID)
	}
	s.count(len(c.Sections))
	for i := range c.Sections {
		sec := &c.Sections[i]
		s.num(int64(sec.Queue))
		s.popItems(sec.Items)
		if c.Ordered {
			s.num(int64(sec.Next - sec.after()))
		}
	}
}

// after is the offset after the last item, 0 if there is none.
func (sec *PopSection) after() QueueOffset {
	if n := len(sec.Items); n > 0 {
		return sec.Items[n-1].Offset + 1
	}
	return 0
}

func (s *sink) popItems(items []PopItem) {
	s.count(len(items))
	next, lease := QueueOffset(0), Pos(0)
	for len(items) > 0 {
		n, kind := popBlock(items)
		block := items[:n]
		items = items[n:]
		s.uvarint(uint64(n)<<2 | kind)
		s.num(int64(block[0].Offset - next))
		next = block[n-1].Offset + 1
		switch kind {
		case blockMixed:
			s.skipBits(block)
		case blockAny:
			lease = s.anyItems(block, lease)
		}
	}
}

// popBlock cuts the next block off: its length and kind.
func popBlock(items []PopItem) (n int, kind uint64) {
	if !items[0].fresh() {
		for n = 1; n < len(items) && !items[n].fresh(); n++ {
		}
		return n, blockAny
	}
	for n < len(items) && items[n].fresh() && items[n].Offset == items[0].Offset+QueueOffset(n) {
		if items[n].Attempt == 0 {
			kind = blockMixed
		}
		n++
	}
	return n, kind
}

// fresh tells whether an item has no history.
func (i *PopItem) fresh() bool { return i.Prev == -1 && i.Attempt <= 1 }

func (s *sink) skipBits(items []PopItem) {
	for len(items) > 0 {
		n, bits := min(8, len(items)), uint8(0)
		for i := range n {
			if items[i].Attempt == 0 {
				bits |= 1 << i
			}
		}
		s.u8(bits)
		items = items[n:]
	}
}

func (s *sink) anyItems(items []PopItem, lease Pos) Pos {
	for i := range items {
		if i > 0 {
			s.num(int64(items[i].Offset - items[i-1].Offset - 1))
		}
		s.uvarint(uint64(items[i].Attempt))
		s.varint(int64(items[i].Prev - lease))
		lease = items[i].Prev
	}
	return lease
}

// PopCkSize is the length of c as a body.
func PopCkSize(c *PopCk) int {
	var s sink
	c.put(&s)
	return s.n
}

// PutPopCk writes c to dst, PopCkSize bytes long.
func PutPopCk(dst []byte, c *PopCk) {
	s := start(dst)
	c.put(&s)
	s.end(dst)
}

// DecodePopCk reads the body of a TypePopCk record into c, whose slices it uses again.
func DecodePopCk(body []byte, c *PopCk) error {
	s := source{b: body}
	c.Topic, c.Group = TopicID(s.id32()), GroupID(s.id32())
	flags := s.flags(ckSession | ckNamesClient | ckHasAttemptID | ckOrdered)
	c.Session, c.Ordered = flags&ckSession != 0, flags&ckOrdered != 0
	c.Until = s.num(math.MaxInt64)
	c.Client = ClientNum(s.id32())
	c.ClientName, c.AttemptID = nil, nil
	if flags&ckNamesClient != 0 {
		if c.ClientName = s.bytes(); c.ClientName == nil {
			s.fail()
		}
	}
	if flags&ckHasAttemptID != 0 {
		if c.AttemptID = s.bytes(); c.AttemptID == nil {
			s.fail()
		}
	}
	c.Sections = c.Sections[:0]
	for range s.count(2) {
		c.Sections = extend(c.Sections)
		sec := &c.Sections[len(c.Sections)-1]
		sec.Queue = s.queue()
		sec.Items = s.popItems(sec.Items[:0])
		if sec.Next = 0; c.Ordered {
			sec.Next = s.after(sec.after(), 0)
		}
	}
	return s.end(TypePopCk)
}

// extend makes s one longer and keeps what the new element held before, so that its slices can be used
// again.
func extend[T any](s []T) []T {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	var zero T
	return append(s, zero)
}

func (s *source) popItems(items []PopItem) []PopItem {
	n := s.count(0)
	next, lease := QueueOffset(0), Pos(0)
	for len(items) < n && !s.bad {
		head := s.uvarint()
		count, kind := head>>2, head&3
		if count == 0 || count > uint64(n-len(items)) {
			s.fail()
			break
		}
		first := s.after(next, int64(count))
		switch kind {
		case blockNew:
			for i := range QueueOffset(count) {
				items = append(items, PopItem{Offset: first + i, Attempt: 1, Prev: -1})
			}
		case blockMixed:
			items = s.mixedItems(items, first, int(count))
		case blockAny:
			items, lease = s.anyItems(items, first, int(count), lease)
		default:
			s.fail()
		}
		if len(items) > 0 {
			next = items[len(items)-1].Offset + 1
		}
	}
	return items
}

// after reads a gap and returns the offset that follows it, which has room for n consecutive ones.
func (s *source) after(next QueueOffset, n int64) QueueOffset {
	if int64(next) > math.MaxInt64-n {
		s.fail()
		return 0
	}
	return next + QueueOffset(s.num(math.MaxInt64-int64(next)-n))
}

func (s *source) mixedItems(items []PopItem, first QueueOffset, n int) []PopItem {
	bits := s.raw(uint64(n+7) / 8)
	if bits == nil {
		return items
	}
	for i := range n {
		attempt := uint16(1)
		if bits[i/8]>>(i%8)&1 != 0 {
			attempt = 0
		}
		items = append(items, PopItem{Offset: first + QueueOffset(i), Attempt: attempt, Prev: -1})
	}
	return items
}

func (s *source) anyItems(items []PopItem, first QueueOffset, n int, lease Pos) ([]PopItem, Pos) {
	for i := range n {
		if i > 0 {
			first = s.after(first+1, 1)
		}
		attempt := s.num(math.MaxUint16)
		lease += Pos(s.varint())
		if s.bad || lease < -1 {
			s.fail()
			break
		}
		items = append(items, PopItem{Offset: first, Attempt: uint16(attempt), Prev: lease})
	}
	return items, lease
}
