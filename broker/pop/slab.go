package pop

import "math/bits"

// segmentBits: a segment of a slab has 1<<segmentBits cells. With this number a segment of chunks,
// pages or branches is a whole number of 8 KiB pages, so the allocator rounds nothing up.
const segmentBits = 10

// slab hands out cells of one type by index. It grows by segments, never moves a cell, and gives a
// segment back when all its cells are free (one empty segment is kept, against flapping). T has no
// pointers, so the garbage collector does not look into segments.
type slab[T any] struct {
	segments []segment[T]
	open     []uint32 // segments that have memory and a free cell
	bare     []uint32 // segments without memory
	empty    int      // open segments without a used cell
}

type segment[T any] struct {
	cells *[1 << segmentBits]T // nil while bare
	used  *[1 << segmentBits / 64]uint64
	n     int // used cells
	at    int // place in open, -1 if full or bare
}

// at returns the cell i, which must be in use. The pointer stays good until the cell is freed.
func (s *slab[T]) at(i uint32) *T {
	return &s.segments[i>>segmentBits].cells[i&(1<<segmentBits-1)]
}

// alloc returns the index of a zero cell; the first is 0.
func (s *slab[T]) alloc() uint32 {
	if len(s.open) == 0 {
		s.grow()
	}
	id := s.open[len(s.open)-1]
	g := &s.segments[id]
	if g.n == 0 {
		s.empty--
	}
	g.n++
	if g.n == 1<<segmentBits {
		s.shut(g)
	}
	for w := range g.used {
		if free := ^g.used[w]; free != 0 {
			b := bits.TrailingZeros64(free)
			g.used[w] |= 1 << b
			return id<<segmentBits | uint32(w*64+b)
		}
	}
	panic("pop: a segment that has a free cell has none")
}

// free takes a cell back.
func (s *slab[T]) free(i uint32) {
	id := i >> segmentBits
	g := &s.segments[id]
	c := i & (1<<segmentBits - 1)
	var zero T
	g.cells[c] = zero
	g.used[c/64] &^= 1 << (c % 64)
	g.n--
	if g.at < 0 {
		g.at = len(s.open)
		s.open = append(s.open, id)
	}
	if g.n > 0 {
		return
	}
	if s.empty == 0 {
		s.empty = 1
		return
	}
	s.shut(g)
	g.cells, g.used = nil, nil
	s.bare = append(s.bare, id)
}

// grow opens a segment.
func (s *slab[T]) grow() {
	var id uint32
	if n := len(s.bare); n > 0 {
		id = s.bare[n-1]
		s.bare = s.bare[:n-1]
	} else {
		id = uint32(len(s.segments))
		s.segments = append(s.segments, segment[T]{})
	}
	s.segments[id] = segment[T]{
		cells: new([1 << segmentBits]T),
		used:  new([1 << segmentBits / 64]uint64),
		at:    len(s.open),
	}
	s.open = append(s.open, id)
	s.empty++
}

// shut takes a segment out of the open ones.
func (s *slab[T]) shut(g *segment[T]) {
	last := s.open[len(s.open)-1]
	s.open[g.at] = last
	s.segments[last].at = g.at
	s.open = s.open[:len(s.open)-1]
	g.at = -1
}

// inUse is the number of cells in use.
func (s *slab[T]) inUse() int {
	n := 0
	for i := range s.segments {
		n += s.segments[i].n
	}
	return n
}
