package pop

import (
	"encoding/binary"
	"math/bits"

	"github.com/perigee-mq/perigee/store/record"
)

// Bounds of what a node can hold.
const (
	posMax   = record.Pos(1)<<59 - 1 // log positions, which are multiples of record.Align
	untilMax = int64(1)<<48 - 1      // ms since 1970
)

// node is one un-done message, or the head of a list, or a client's timer. 28 bytes:
//
//	 0  4  prev    links of the list it is in; both name the node itself if it is in none
//	 4  4  next
//	 8  4  client  who has got it last, 0 for nobody with a name
//	12  8  lease   position of the lease record / 8 in the upper 56 bits, flags in the lower 8
//	20  8  until   deadline in ms in the upper 48 bits, attempt in the lower 16
//
// A node is named by its index: chunk * 8 + place in the chunk.
type node struct {
	prev, next uint32
	client     record.ClientNum
	a, b       [8]byte
}

type flags uint8

const (
	kept    flags = 1 << 0 // the next delivery has the same attempt number
	waits   flags = 1 << 1 // counted in queue.waiting; derived, never encoded
	bound   flags = 1 << 2 // a session lease: it ends with its client
	counted flags = 1 << 3 // in the counts of what is leased; derived, never encoded
)

func (n *node) lease() record.Pos { return record.Pos(binary.LittleEndian.Uint64(n.a[:])>>8) << 3 }
func (n *node) is(f flags) bool   { return flags(n.a[0])&f != 0 }
func (n *node) set(f flags)       { n.a[0] |= uint8(f) }
func (n *node) unset(f flags)     { n.a[0] &^= uint8(f) }
func (n *node) until() int64      { return int64(binary.LittleEndian.Uint64(n.b[:]) >> 16) }
func (n *node) attempt() uint16   { return binary.LittleEndian.Uint16(n.b[:]) }

// nextAttempt is the number of the message's next delivery. It stays at its largest value.
func (n *node) nextAttempt() uint16 {
	a := n.attempt()
	if n.is(kept) || a == 1<<16-1 {
		return a
	}
	return a + 1
}

// setLease sets the latest lease and clears all flags.
func (n *node) setLease(pos record.Pos) { binary.LittleEndian.PutUint64(n.a[:], uint64(pos)>>3<<8) }

func (n *node) setUntil(ms int64, attempt uint16) {
	binary.LittleEndian.PutUint64(n.b[:], uint64(ms)<<16|uint64(attempt))
}

// chunk has the nodes of 8 consecutive offsets. It exists while one of them is un-done.
type chunk struct {
	nodes [8]node
	page  uint32 // index of its page; 0 for a chunk of list heads and timers
	where uint32 // place in page.chunks; above three bits, the index of its annex, 0 if it has none
}

func (c *chunk) place() int        { return int(c.where & 7) }
func (c *chunk) annex() uint32     { return c.where >> 3 }
func (c *chunk) setAnnex(a uint32) { c.where = c.where&7 | a<<3 }

// page is 64 consecutive offsets of a queue, of which at least one is un-done.
type page struct {
	chunks [8]uint32 // 0 if all 8 offsets are done or not handed out
	live   uint64    // un-done offsets
	ready  uint64    // those that may go out again; a subset of live
	no     int64     // first offset / 64
	queue  uint32    // slot
}

func (p *page) first() int64 { return p.no << 6 }

// atLeast counts the un-done offsets at or above off.
func (p *page) atLeast(off int64) int64 {
	set := p.live
	switch at := off - p.first(); {
	case at >= 64:
		return 0
	case at > 0:
		set &= ^uint64(0) << at
	}
	return int64(bits.OnesCount64(set))
}

func lowest(set uint64) int { return bits.TrailingZeros64(set) }

// queue is the state of one queue for one group. Its un-done messages are in a tree of pages.
type queue struct {
	key      Key
	slot     uint32
	next     int64 // offsets at or above were never handed out
	undone   int64
	ready    int64 // messages whose lease has ended; of an ordered queue, not all of them may go out
	waiting  int64
	prefix   int64  // number of any page in the tree, shifted right by 6*height
	root     uint32 // a page if height is 0, else a branch; 0 for an empty tree
	height   uint8
	use      *use // of its group
	recorded bool // a record has named it: it is part of the encoded state
	ordered  bool
	locks    *locks // of an ordered queue; of another one, while there are passed-over messages, else nil
}

// spot is where an un-done message is.
type spot struct {
	queue *queue
	page  *page
	bit   int    // offset within the page
	id    uint32 // index of node
	node  *node
}

func (s spot) offset() int64 { return s.page.first() + int64(s.bit) }

// node returns the node of an index.
func (t *Table) node(id uint32) *node { return &t.chunks.at(id >> 3).nodes[id&7] }

// spotIn returns the spot of an un-done message of a page.
func (t *Table) spotIn(q *queue, p *page, bit int) spot {
	id := p.chunks[bit>>3]<<3 | uint32(bit&7)
	return spot{q, p, bit, id, t.node(id)}
}

// spotOf returns the spot of the message with the given node.
func (t *Table) spotOf(id uint32) spot {
	c := t.chunks.at(id >> 3)
	p := t.pages.at(c.page)
	return spot{t.queues[p.queue], p, c.place()<<3 | int(id&7), id, &c.nodes[id&7]}
}

// find returns the spot of an offset below next, false if it is done.
func (t *Table) find(q *queue, off int64) (spot, bool) {
	p := t.findPage(q, off>>6)
	if p == nil || p.live>>(off&63)&1 == 0 {
		return spot{}, false
	}
	return t.spotIn(q, p, int(off&63)), true
}

// add makes an offset un-done. Its node is zero and in no list.
func (t *Table) add(q *queue, p *page, id uint32, bit int) spot {
	c := p.chunks[bit>>3]
	if c == 0 {
		c = t.chunks.alloc()
		p.chunks[bit>>3] = c
		head := t.chunks.at(c)
		head.page, head.where = id, uint32(bit>>3)
	}
	p.live |= 1 << bit
	q.undone++
	t.undone++
	return t.spotIn(q, p, bit)
}

// finish makes an un-done message done. It reports whether its page is gone with it.
func (t *Table) finish(s spot) (gone bool) {
	t.detach(s)
	if s.queue.ordered {
		t.quit(s)
	}
	s.queue.undone--
	t.undone--
	p := s.page
	p.live &^= 1 << s.bit
	if uint8(p.live>>(s.bit&^7)) == 0 {
		t.freeChunk(p.chunks[s.bit>>3])
		p.chunks[s.bit>>3] = 0
	}
	if p.live != 0 {
		return false
	}
	t.removePage(s.queue, p.no)
	return true
}

func (t *Table) freeChunk(id uint32) {
	t.freeAnnex(t.chunks.at(id))
	t.chunks.free(id)
}

// detach takes an un-done message out of the list or set it is in and out of the counters; a session
// lease ends to be one.
func (t *Table) detach(s spot) {
	if s.page.ready>>s.bit&1 != 0 {
		t.clearReady(s)
	} else {
		t.unlink(s.id, s.node)
	}
	if s.node.is(waits) {
		s.node.unset(waits)
		s.queue.waiting--
	}
	t.release(s)
	if c := s.node.client; c != 0 {
		s.node.client = 0
		s.node.unset(bound)
		t.leave(c)
	}
}

func (t *Table) setReady(s spot) {
	t.release(s)
	if s.page.ready == 0 {
		t.markReady(s.queue, s.page.no)
	}
	s.page.ready |= 1 << s.bit
	s.queue.ready++
	if s.queue.ordered {
		t.end(s, 1)
	}
}

func (t *Table) clearReady(s spot) {
	s.page.ready &^= 1 << s.bit
	s.queue.ready--
	if s.page.ready == 0 {
		t.unmarkReady(s.queue, s.page.no)
	}
	if s.queue.ordered {
		t.end(s, -1)
	}
}
