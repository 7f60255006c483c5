package pop

import "math/bits"

const (
	levels    = 8 // of 64 slots each: level l has slots of 64^l ms, all levels together untilMax
	overdue   = 1 // node that heads the list of what is to be looked at
	dying     = 2 // of what waits for a record that moves it to the dead-letter topic
	taken     = 3 // of what was taken from dying
	parked    = 4 // of what was put aside then
	wheelBase = 8 // node that heads level 0, slot 0; the others follow

	// turn is how many nodes one Advance looks at, so that ten million deadlines in one millisecond
	// do not stop the broker: about a millisecond of work.
	turn = 1 << 14
)

// wheel is a hierarchical timing wheel (Varghese and Lauck, scheme 7). A deadline lies on the level
// of the highest group of 6 bits in which it differs from now, in the slot which that group names; so
// what a level holds comes before all that is above it. Each slot is a ring of nodes.
type wheel struct {
	now  int64          // ms; never goes back
	used [levels]uint64 // slots that may have nodes. Unlinking clears no bit: looking does
}

// initWheel allocates the list heads, which are the first nodes of all.
func (t *Table) initWheel() {
	for range (wheelBase + levels*64) / 8 {
		c := t.chunks.alloc()
		for i := range uint32(8) {
			t.reset(c<<3 | i)
		}
	}
}

// reset makes a ring of one node.
func (t *Table) reset(id uint32) {
	n := t.node(id)
	n.prev, n.next = id, id
}

// alone reports whether a node is in no list, or heads an empty one.
func (t *Table) alone(id uint32) bool { return t.node(id).next == id }

// insert puts a node that is in no list behind another one.
func (t *Table) insert(after, id uint32, n *node) {
	a := t.node(after)
	n.prev, n.next = after, a.next
	t.node(a.next).prev = id
	a.next = id
}

// unlink takes a node out of its list, if it is in one.
func (t *Table) unlink(id uint32, n *node) {
	t.node(n.prev).next = n.next
	t.node(n.next).prev = n.prev
	n.prev, n.next = id, id
}

// splice appends all nodes of one list to another.
func (t *Table) splice(to, from uint32) {
	f := t.node(from)
	if f.next == from {
		return
	}
	h := t.node(to)
	t.node(h.prev).next = f.next
	t.node(f.next).prev = h.prev
	t.node(f.prev).next = to
	h.prev = f.prev
	f.prev, f.next = from, from
}

// schedule puts a node that is in no list where Advance finds it at the given time.
func (t *Table) schedule(id uint32, n *node, at int64) {
	w := &t.wheel
	head := uint32(overdue)
	if at > w.now {
		l := (bits.Len64(uint64(at^w.now)) - 1) / 6
		slot := uint32(at>>(6*l)) & 63
		w.used[l] |= 1 << slot
		head = wheelBase + uint32(l)<<6 + slot
	}
	t.insert(t.node(head).prev, id, n)
}

// Advance tells the time, in ms since 1970: messages whose lease ended by now become ready (or dying,
// see TakeDying), and due is called for those that are ready, more than once for a queue if need be. An earlier
// time than before counts as that one. One call does a bounded amount of work; if more is due,
// NextDue says so. due may be nil and must not call the table.
func (t *Table) Advance(now int64, due func(k Key, n int)) {
	t.turnWheel(min(now, untilMax))
	var q *queue
	n := 0
	tell := func() {
		if n > 0 && due != nil {
			due(q.key, n)
		}
		n = 0
	}
	for range turn {
		id := t.node(overdue).next
		if id == overdue {
			break
		}
		t.unlink(id, t.node(id))
		if t.chunks.at(id>>3).page == 0 {
			t.clientDue(t.node(id).client)
			continue
		}
		s := t.spotOf(id)
		before := t.readyIn(s.queue)
		if !t.due(s) {
			continue
		}
		if s.queue != q {
			tell()
			q = s.queue
		}
		n += int(t.readyIn(q) - before)
	}
	tell()
}

// turnWheel moves the wheel to now; what may have fallen due is appended to the overdue list.
func (t *Table) turnWheel(now int64) {
	w := &t.wheel
	if now <= w.now {
		return
	}
	for l := range levels {
		passed := w.used[l]
		if w.now>>(6*(l+1)) == now>>(6*(l+1)) {
			passed &= 2<<(now>>(6*l)&63) - 1
		}
		w.used[l] &^= passed
		for ; passed != 0; passed &= passed - 1 {
			t.splice(overdue, wheelBase+uint32(l)<<6+uint32(lowest(passed)))
		}
	}
	w.now = now
}

// due looks at a message in no list whose time may have come: it becomes ready, or is scheduled for
// the rest. It reports whether it became ready.
func (t *Table) due(s spot) bool {
	if at := t.deadline(s.node); at > t.wheel.now {
		t.schedule(s.id, s.node, at)
		return false
	}
	if t.isDead(s) {
		t.die(s)
		return false
	}
	t.unsetWaits(s)
	t.setReady(s)
	return true
}

// NextDue is the time from which on Advance has something to do, false if it never will. It is never
// later than the next deadline, but may be earlier, a few times per deadline.
func (t *Table) NextDue() (int64, bool) {
	w := &t.wheel
	if !t.alone(overdue) {
		return w.now, true
	}
	for l := range levels {
		for w.used[l] != 0 {
			slot := lowest(w.used[l])
			if !t.alone(wheelBase + uint32(l)<<6 + uint32(slot)) {
				return w.now>>(6*(l+1))<<(6*(l+1)) | int64(slot)<<(6*l), true
			}
			w.used[l] &^= 1 << slot
		}
	}
	return 0, false
}
