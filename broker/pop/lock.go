package pop

// In an ordered queue the messages of one message group (by hash; those without one are a group, too) go
// out one delivery after the other. A lock is what the table knows of a message group that has messages
// which were handed out and are not done, or which were passed over: looked at while the group was
// locked, below next and never handed out. Both lie oldest first, and all that were handed out are
// older than all that were passed over. The group is free when every lease of it has ended.
//
// So what waits behind a stuck group costs a byte or two a message, other groups do not notice, and
// nothing is searched for when the group becomes free.
type lock struct {
	hash        uint64
	passed      *passed // nil if none
	first, last uint32  // handed-out ones, linked by offset; 0 if none
	undone      uint32  // how many these are
	ended       uint32  // of them, those whose lease has ended
	place       uint32  // in locks.free, plus 1; 0 if it is not there
	counted     int64   // in locks.ready
}

// link is what an ordered queue keeps of a handed-out message beside its node.
type link struct {
	lock       uint32 // 0: none
	prev, next uint32 // nodes of the same lock; 0 at the ends
}

// annex has the links of a chunk.
type annex [8]link

// locks are the locks of a queue.
type locks struct {
	byHash map[uint64]uint32
	free   []freeLock // a heap: those that may go out, the one with the oldest message first
	passed int64      // messages passed over
	ready  int64      // messages of the locks in free
}

type freeLock struct {
	off  int64 // of the oldest message
	lock uint32
}

// passedN is how many messages are passed over.
func (l *lock) passedN() int64 {
	if l.passed == nil {
		return 0
	}
	return l.passed.n
}

// link returns the link of a message of an ordered queue.
func (t *Table) link(id uint32) *link {
	return &t.annexes.at(t.chunks.at(id >> 3).annex())[id&7]
}

// lockOf returns the lock of a hash; it is made if there is none. settle must follow.
func (t *Table) lockOf(q *queue, hash uint64) uint32 {
	id, ok := q.locks.byHash[hash]
	if !ok {
		id = t.locks.alloc()
		t.locks.at(id).hash = hash
		q.locks.byHash[hash] = id
	}
	return id
}

// join makes a message, which is younger than all handed-out ones of the lock, one of them.
func (t *Table) join(s spot, id uint32) {
	c := t.chunks.at(s.id >> 3)
	if c.annex() == 0 {
		c.setAnnex(t.annexes.alloc())
	}
	l := t.locks.at(id)
	*t.link(s.id) = link{lock: id, prev: l.last}
	if l.last == 0 {
		l.first = s.id
	} else {
		t.link(l.last).next = s.id
	}
	l.last = s.id
	l.undone++
	if s.page.ready>>s.bit&1 != 0 {
		l.ended++
	}
	t.settle(s.queue, id)
}

// quit takes a message, whose lease counts as not ended, out of its lock.
func (t *Table) quit(s spot) {
	k := t.link(s.id)
	id := k.lock
	l := t.locks.at(id)
	if k.prev == 0 {
		l.first = k.next
	} else {
		t.link(k.prev).next = k.next
	}
	if k.next == 0 {
		l.last = k.prev
	} else {
		t.link(k.next).prev = k.prev
	}
	*k = link{}
	l.undone--
	t.settle(s.queue, id)
}

// end counts the lease of a message as ended (by 1) or not ended (by -1).
func (t *Table) end(s spot, by int) {
	id := t.link(s.id).lock
	t.locks.at(id).ended += uint32(by)
	t.settle(s.queue, id)
}

// pass adds messages that were passed over to a lock.
func (t *Table) pass(q *queue, id uint32, s span) {
	l := t.locks.at(id)
	if l.passed == nil {
		l.passed = new(passed)
	}
	l.passed.add(s)
	q.locks.passed += s.n
	t.settle(q, id)
}

// takePassed removes the oldest passed-over message of a lock.
func (t *Table) takePassed(q *queue, id uint32) {
	l := t.locks.at(id)
	if l.passed.take(); l.passed.n == 0 {
		l.passed = nil
	}
	q.locks.passed--
	t.settle(q, id)
}

// settle brings a lock that has changed to where it belongs: among those that may go out, or not. One
// that has no messages is given up. A queue that is not ordered any more has locks for what was passed
// over, all of them free; with the last they are gone.
func (t *Table) settle(q *queue, id uint32) {
	ls, l := q.locks, t.locks.at(id)
	ready := int64(0)
	if l.ended == l.undone {
		ready = int64(l.undone) + l.passedN()
	}
	ls.ready += ready - l.counted
	l.counted = ready
	switch {
	case ready > 0:
		ls.set(t, id, t.oldest(l))
	case l.place > 0:
		ls.remove(t, int(l.place-1))
	}
	if l.undone == 0 && l.passed == nil {
		delete(ls.byHash, l.hash)
		t.locks.free(id)
		if !q.ordered && len(ls.byHash) == 0 {
			q.locks = nil
		}
	}
}

// oldest is the lowest un-done offset of a lock.
func (t *Table) oldest(l *lock) int64 {
	if l.first != 0 {
		return t.spotOf(l.first).offset()
	}
	return l.passed.head.first
}

// set puts a lock into the heap, or moves it there.
func (ls *locks) set(t *Table, id uint32, off int64) {
	l := t.locks.at(id)
	if l.place == 0 {
		ls.free = append(ls.free, freeLock{off, id})
		l.place = uint32(len(ls.free))
		ls.up(t, len(ls.free)-1)
		return
	}
	i := int(l.place - 1)
	if ls.free[i].off == off {
		return
	}
	ls.free[i].off = off
	ls.fix(t, i)
}

func (ls *locks) remove(t *Table, i int) {
	t.locks.at(ls.free[i].lock).place = 0
	last := len(ls.free) - 1
	if i != last {
		ls.put(t, i, ls.free[last])
	}
	ls.free = ls.free[:last]
	if i != last {
		ls.fix(t, i)
	}
}

func (ls *locks) put(t *Table, i int, f freeLock) {
	ls.free[i] = f
	t.locks.at(f.lock).place = uint32(i + 1)
}

func (ls *locks) fix(t *Table, i int) {
	if !ls.down(t, i) {
		ls.up(t, i)
	}
}

func (ls *locks) up(t *Table, i int) {
	f := ls.free[i]
	for i > 0 && f.off < ls.free[(i-1)/2].off {
		ls.put(t, i, ls.free[(i-1)/2])
		i = (i - 1) / 2
	}
	ls.put(t, i, f)
}

func (ls *locks) down(t *Table, i int) (moved bool) {
	f := ls.free[i]
	for {
		c := 2*i + 1
		if c+1 < len(ls.free) && ls.free[c+1].off < ls.free[c].off {
			c++
		}
		if c >= len(ls.free) || f.off <= ls.free[c].off {
			break
		}
		ls.put(t, i, ls.free[c])
		i, moved = c, true
	}
	ls.put(t, i, f)
	return moved
}
