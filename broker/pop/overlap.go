package pop

import "container/heap"

// overlap goes through what was passed over in all locks of a queue, lowest offset first. It finds messages that
// are in two locks, and those that were handed out and are in one. An encoded state that says so is damaged: the
// message would be delivered twice.
type overlap struct {
	rest  walks
	now   span // the last one taken from rest
	twice bool // some message is in two locks
}

// walks is a heap by the first offset of the present span.
type walks []walk

func (w walks) Len() int           { return len(w) }
func (w walks) Less(i, j int) bool { return w[i].now.first < w[j].now.first }
func (w walks) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *walks) Push(x any)        { *w = append(*w, x.(walk)) } //nolint:forcetypeassert // nothing else is pushed
func (w *walks) Pop() any          { panic("walks end in place") }

// overlapOf begins at the lowest offset. The locks must not change meanwhile.
func (t *Table) overlapOf(ids []uint32) *overlap {
	o := &overlap{}
	for _, id := range ids {
		if p := t.locks.at(id).passed; p != nil {
			w := p.walk()
			w.nextSpan()
			o.rest = append(o.rest, w)
		}
	}
	heap.Init(&o.rest)
	return o
}

// has reports whether off is in a lock. Calls must be for ascending offsets.
func (o *overlap) has(off int64) bool {
	for len(o.rest) > 0 && o.rest[0].now.first <= off {
		o.take()
	}
	return off < o.now.end()
}

// clean goes on to the end and reports whether no message is in two locks.
func (o *overlap) clean() bool {
	for len(o.rest) > 0 && !o.twice {
		o.take()
	}
	return !o.twice
}

func (o *overlap) take() {
	s := o.rest[0].now
	o.twice = o.twice || s.first < o.now.end()
	if s.end() > o.now.end() {
		o.now = s
	}
	if _, ok := o.rest[0].nextSpan(); ok {
		heap.Fix(&o.rest, 0)
		return
	}
	last := len(o.rest) - 1
	o.rest[0] = o.rest[last]
	if o.rest = o.rest[:last]; last > 0 {
		heap.Fix(&o.rest, 0)
	}
}
