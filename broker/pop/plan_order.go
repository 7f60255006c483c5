package pop

import (
	"slices"

	"github.com/perigee-mq/perigee/store/record"
)

// plan is what a plan knows of the message groups that it has met.
type plan struct {
	groups map[uint64]bool // true: all un-done messages so far are handed out, so the next one may be, too
	heap   []ahead
}

// planMax is how many message groups a plan may leave in its memory.
const planMax = 1 << 8

// PlanOrdered is Plan for an ordered queue: first the message groups that may go out, the one with the
// oldest message first, each from its oldest un-done message on; then new messages, of which those are
// passed over whose message group is locked, at most look of them. Items rise by offset; match is asked
// in order within a message group only. next is how far it looked at the queue: the record's Next.
func (t *Table) PlanOrdered(k Key, end record.QueueOffset, max, look int, match func(off record.QueueOffset) Verdict, dst []record.PopItem) (items []record.PopItem, next record.QueueOffset, err error) {
	q := t.queueOf(k)
	if q == nil {
		return dst, 0, nil
	}
	next = record.QueueOffset(q.next)
	if max <= 0 || !q.ordered {
		return dst, next, nil
	}
	if t.plan.groups == nil || len(t.plan.groups) > planMax {
		t.plan.groups = map[uint64]bool{}
	}
	clear(t.plan.groups)
	p := planning{t: t, q: q, match: match, max: max, items: dst}
	if p.free() {
		next, err = p.fresh(end, look)
	}
	slices.SortFunc(p.items[len(dst):], func(a, b record.PopItem) int { return int(a.Offset - b.Offset) })
	return p.items, next, err
}

// planning is one run of PlanOrdered or, for what an ordered group left behind, of Plan.
type planning struct {
	t     *Table
	q     *queue
	match func(off record.QueueOffset) Verdict
	max   int
	items []record.PopItem
}

// ask judges one message. It reports whether to go on.
func (p *planning) ask(off int64, attempt uint16, prev record.Pos) bool {
	item := record.PopItem{Offset: record.QueueOffset(off), Prev: -1}
	switch p.match(item.Offset) {
	case Stop:
		return false
	case Take:
		item.Attempt, item.Prev = attempt, prev
		p.max--
	}
	p.items = append(p.items, item)
	return p.max > 0
}

// free goes through the locks that may go out. It reports whether to go on with new messages.
func (p *planning) free() bool {
	free := p.q.locks.free
	h := frontier(p.t.plan.heap[:0])
	h.index(free, 0)
	goOn := true
	for len(h) > 0 && goOn {
		i := h.pop().at
		goOn = p.lock(p.t.locks.at(free[i].lock))
		h.children(free, i)
	}
	p.t.plan.heap = h[:0]
	return goOn
}

// left goes through what was passed over in a queue that is not ordered any more, oldest first.
func (p *planning) left() bool {
	free := p.q.locks.free
	var h frontier
	h.index(free, 0)
	for len(h) > 0 {
		a := h.pop()
		if a.w.p == nil {
			h.children(free, a.at)
			a.w = p.t.locks.at(free[a.at].lock).passed.walk()
			a.w.next()
		}
		if !p.ask(a.off, 1, -1) {
			return false
		}
		if off, ok := a.w.next(); ok {
			h.push(ahead{off: off, w: a.w})
		}
	}
	return true
}

// lock takes what it may of a lock: what came back, then what was passed over.
func (p *planning) lock(l *lock) bool {
	for id := l.first; id != 0; id = p.t.link(id).next {
		s := p.t.spotOf(id)
		if !p.ask(s.offset(), s.node.nextAttempt(), s.node.lease()) {
			return false
		}
	}
	if l.passed != nil {
		w := l.passed.walk()
		for off, ok := w.next(); ok; off, ok = w.next() {
			if !p.ask(off, 1, -1) {
				return false
			}
		}
	}
	p.t.plan.groups[l.hash] = true
	return true
}

// fresh takes new messages.
func (p *planning) fresh(end record.QueueOffset, look int) (next record.QueueOffset, err error) {
	groups := p.t.plan.groups
	off := p.q.next
	for ; off < int64(end); off++ {
		hash, err := p.t.hash(p.q, off)
		if err != nil {
			return record.QueueOffset(off), err
		}
		free, met := groups[hash]
		if !met {
			_, locked := p.q.locks.byHash[hash]
			free = !locked
			groups[hash] = free
		}
		if !free {
			if look--; look < 0 {
				break
			}
			continue
		}
		n := len(p.items)
		if !p.ask(off, 1, -1) {
			if len(p.items) > n {
				off++
			}
			break
		}
	}
	return record.QueueOffset(off), nil
}
