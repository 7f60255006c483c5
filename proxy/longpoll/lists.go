package longpoll

import "container/heap"

// idleList is the receives that wait at a place, in order of arrival.
type idleList struct{ first, last *stop }

// insert puts s in its order. New receives belong at the end and those that popped in vain near the
// front, so neither looks far.
func (l *idleList) insert(s *stop) {
	s.idle = true
	if l.last != nil && l.last.w.seq < s.w.seq {
		l.link(s, l.last, nil)
		return
	}
	after := l.first
	for after != nil && after.w.seq < s.w.seq {
		after = after.next
	}
	if after == nil {
		l.link(s, l.last, nil)
		return
	}
	l.link(s, after.prev, after)
}

func (l *idleList) link(s, prev, next *stop) {
	s.prev, s.next = prev, next
	if prev != nil {
		prev.next = s
	} else {
		l.first = s
	}
	if next != nil {
		next.prev = s
	} else {
		l.last = s
	}
}

func (l *idleList) remove(s *stop) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		l.last = s.prev
	}
	s.prev, s.next, s.idle = nil, nil, false
}

// deadlines is a heap of open receives, the earliest deadline first.
type deadlines []*Wait

func (d *deadlines) push(w *Wait) { heap.Push(d, w) }

func (d *deadlines) remove(w *Wait) {
	if w.heapAt >= 0 {
		heap.Remove(d, w.heapAt)
	}
}

// Len is part of heap.Interface.
func (d deadlines) Len() int { return len(d) }

// Less is part of heap.Interface.
func (d deadlines) Less(i, j int) bool { return d[i].at.Before(d[j].at) }

// Swap is part of heap.Interface.
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].heapAt, d[j].heapAt = i, j
}

// Push is part of heap.Interface.
func (d *deadlines) Push(x any) {
	w := x.(*Wait)
	w.heapAt = len(*d)
	*d = append(*d, w)
}

// Pop is part of heap.Interface.
func (d *deadlines) Pop() any {
	old := *d
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	w.heapAt = -1
	return w
}
