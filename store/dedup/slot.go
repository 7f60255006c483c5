package dedup

import "github.com/perigee-mq/perigee/store/record"

// slot is one entry of a table, 0 if it is free:
//
//	bits 0 to 34   how far its record lies behind the first one of the generation, in units of 8 bytes, + 1
//	bits 35 to 63  the tag: the bits of the hash above those that chose the part
//
// So a generation spans 256 GiB of log at most, and two different messages are taken for the same with a
// probability of 2^-35, which costs a look at a record.
type slot uint64

const (
	slotBytes = 8
	spanBits  = 35
	tagBits   = 64 - spanBits
	unit      = 8 // bytes: records begin at multiples of it
)

// tagOf is what a slot keeps of a hash.
func tagOf(hash uint64) uint64 { return hash / parts & (1<<tagBits - 1) }

// newSlot is false if the position is no such distance.
func newSlot(tag uint64, pos, begin record.Pos) (slot, bool) {
	far := pos - begin
	if far < 0 || far%unit != 0 || far/unit >= 1<<spanBits-1 {
		return 0, false
	}
	return slot(tag<<spanBits | uint64(far/unit+1)), true
}

func (s slot) tag() uint64 { return uint64(s >> spanBits) }

func (s slot) pos(begin record.Pos) record.Pos {
	return begin + record.Pos(s&(1<<spanBits-1)-1)*unit
}

// part is an open-addressing table. The number of its slots is a power of two.
type part struct {
	slots []slot
	used  int
}

// put enters a hash. It is false if the generation is full, or began too far away.
func (g *generation) put(hash uint64, pos record.Pos, most int) bool {
	p := &g.parts[hash%parts]
	next, ok := newSlot(tagOf(hash), pos, g.begin)
	if !ok {
		return false
	}
	s := p.place(next.tag())
	if s == nil || *s == 0 {
		if (p.used+1)*4 > len(p.slots)*3 {
			if len(p.slots) >= most {
				return false
			}
			p.grow()
			s = p.place(next.tag())
		}
		p.used++
	}
	*s = next
	return true
}

// place returns the slot that the next position of a tag takes: a free one, or that of its oldest position if
// it has sameMax of them already; nil of an empty part.
func (p *part) place(tag uint64) *slot {
	if len(p.slots) == 0 {
		return nil
	}
	var oldest *slot
	same := 0
	mask := uint64(len(p.slots) - 1)
	for i := tag & mask; ; i = (i + 1) & mask {
		s := &p.slots[i]
		switch {
		case *s == 0 && same >= sameMax:
			return oldest
		case *s == 0:
			return s
		case s.tag() == tag:
			if same++; oldest == nil || *s < *oldest {
				oldest = s
			}
		}
	}
}

// find appends the positions of a tag.
func (p *part) find(tag uint64, begin record.Pos, dst []record.Pos) []record.Pos {
	if len(p.slots) == 0 {
		return dst
	}
	mask := uint64(len(p.slots) - 1)
	for i := tag & mask; p.slots[i] != 0; i = (i + 1) & mask {
		if p.slots[i].tag() == tag {
			dst = append(dst, p.slots[i].pos(begin))
		}
	}
	return dst
}

func (p *part) grow() {
	old := p.slots
	p.slots = make([]slot, max(partMin, 2*len(old)))
	for _, s := range old {
		if s != 0 {
			*p.place(s.tag()) = s
		}
	}
}
