package pop

import (
	"cmp"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"sort"
)

// check says which invariant of the table does not hold, "" if all do. It looks at every message.
func (t *Table) check() (fault string) {
	defer func() {
		if r := recover(); r != nil {
			fault = fmt.Sprint(r)
		}
	}()
	c := checker{t: t, listed: map[uint32]uint32{}, held: map[uint32]int64{}, leased: map[Holder]int64{}}
	c.lists()
	for k, q := range t.byKey {
		c.must(q.key == k && t.queues[q.slot] == q, "queue %v is not in its slot", k)
		c.queue(q)
	}
	groups := readers{}
	for k := range t.byKey {
		groups.add(k)
	}
	c.must(reflect.DeepEqual(groups, t.groups), "groups of topics are %v, not %v", t.groups, groups)
	for _, cl := range t.clients.byNum {
		c.must(cl.held == c.held[uint32(cl.num)], "client %d holds %d messages, not %d", cl.num, c.held[uint32(cl.num)], cl.held)
		c.must(cl.name != "" || cl.held > 0, "client %d is gone and holds nothing", cl.num)
		c.must(cl.name == "" || t.clients.byName[cl.name] == cl && cl.ended == forever, "client %d is not found as %q", cl.num, cl.name)
	}
	c.uses()
	heads := (2*len(t.clients.byNum) + len(t.clients.heads)) / 8
	c.must(len(c.listed) == 0, "%d list members are no messages", len(c.listed))
	c.must(t.undone == c.undone, "%d messages, counted as %d", c.undone, t.undone)
	c.must(t.chunks.inUse() == c.chunks+heads+(wheelBase+levels*64)/8, "%d chunks in use, %d found", t.chunks.inUse(), c.chunks)
	c.must(t.pages.inUse() == c.pages+1, "%d pages in use, %d found", t.pages.inUse(), c.pages)
	c.must(t.branches.inUse() == c.branches+1, "%d branches in use, %d found", t.branches.inUse(), c.branches)
	c.must(t.locks.inUse() == c.locks+1, "%d locks in use, %d found", t.locks.inUse(), c.locks)
	c.must(t.annexes.inUse() == c.annexes+1, "%d annexes in use, %d found", t.annexes.inUse(), c.annexes)
	return ""
}

type checker struct {
	t                       *Table
	listed                  map[uint32]uint32 // node: head of the list it is in
	held                    map[uint32]int64  // messages by client
	leased                  map[Holder]int64
	chunks, pages, branches int
	locks, annexes          int
	undone                  int64
}

func (c *checker) must(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf(format, args...))
	}
}

// uses checks what is counted as leased.
func (c *checker) uses() {
	for h, n := range c.leased {
		c.must(c.t.Leased(h) == n, "%+v has %d messages leased, counted as %d", h, n, c.t.Leased(h))
	}
	for g, u := range c.t.uses {
		c.must(u.leased == c.leased[Holder{Group: g}], "group %d is counted with %d leased messages", g, u.leased)
	}
	for num, cl := range c.t.clients.byNum {
		for _, u := range cl.uses {
			c.must(u.leased == c.leased[Holder{u.group, num}], "client %d is counted with %d leased messages of group %d", num, u.leased, u.group)
		}
	}
}

// lists walks all lists.
func (c *checker) lists() {
	t := c.t
	for _, head := range []uint32{overdue, dying, taken, parked} {
		c.list(head)
	}
	for l := range levels {
		for s := range 64 {
			n := c.list(wheelBase + uint32(l*64+s))
			c.must(n == 0 || t.wheel.used[l]>>s&1 != 0, "slot %d.%d has %d nodes and is not marked", l, s, n)
			c.must(n == 0 || s > int(t.wheel.now>>(6*l)&63), "slot %d.%d has %d nodes and is past", l, s, n)
		}
	}
	for _, cl := range t.clients.byNum {
		n := c.list(cl.list)
		last := int64(0)
		for id := t.node(cl.list).next; id != cl.list; id = t.node(id).next {
			c.must(t.node(id).client == cl.num, "a message of client %d is in the list of %d", t.node(id).client, cl.num)
			c.must(t.node(id).until() >= last, "list of client %d is out of order", cl.num)
			last = t.node(id).until()
		}
		_, timed := c.listed[cl.timer]
		c.must(timed || n == 0, "client %d has %d messages and no timer", cl.num, n)
		if n > 0 {
			c.must(t.node(cl.timer).until() <= t.deadline(t.node(t.node(cl.list).next)), "timer of client %d is late", cl.num)
		}
		delete(c.listed, cl.timer)
	}
}

func (c *checker) list(head uint32) int {
	n := 0
	for id := head; ; id = c.t.node(id).next {
		next := c.t.node(id).next
		c.must(c.t.node(next).prev == id, "list %d: node %d is not linked back", head, next)
		if next == head {
			return n
		}
		c.must(c.listed[next] == 0, "node %d is in lists %d and %d", next, head, c.listed[next])
		c.listed[next] = head
		n++
	}
}

// order checks the locks of a queue.
func (c *checker) order(q *queue) {
	if q.locks == nil {
		c.must(!q.ordered, "ordered queue %v has no locks", q.key)
		return
	}
	t := c.t
	c.must(q.ordered || len(q.locks.byHash) > 0, "queue %v has locks for nothing", q.key)
	var nodes, passed, ready int64
	free := 0
	var spans []span // passed over in any lock
	for hash, id := range q.locks.byHash {
		c.locks++
		l := t.locks.at(id)
		c.must(l.hash == hash, "lock %d of %v has another hash", id, q.key)
		last, before, n, ended := int64(-1), uint32(0), uint32(0), uint32(0)
		for id2 := l.first; id2 != 0; id2 = t.link(id2).next {
			s := t.spotOf(id2)
			c.must(s.offset() > last && t.link(id2).prev == before && t.link(id2).lock == id, "message %d of lock %d of %v", s.offset(), id, q.key)
			last, before = s.offset(), id2
			n++
			if s.page.ready>>s.bit&1 != 0 {
				ended++
			}
		}
		c.must(l.last == before && l.undone == n && l.ended == ended && n+uint32(l.passedN()) > 0, "lock %d of %v: %+v", id, q.key, *l)
		c.must(q.ordered || n == 0, "lock %d of %v has messages, but there is no order", id, q.key)
		nodes += int64(n)
		if l.passed != nil {
			count := int64(0)
			w := l.passed.walk()
			for s, ok := w.nextSpan(); ok; s, ok = w.nextSpan() {
				c.must(s.first > last && s.n > 0 && s.end() <= q.next, "passed over %+v after %d in lock %d of %v", s, last, id, q.key)
				c.must(l.passed.has(s.first) && l.passed.has(s.end()-1), "passed over %+v is not found in lock %d of %v", s, id, q.key)
				last = s.end() - 1
				count += s.n
				spans = append(spans, s)
			}
			c.must(count == l.passed.n && count > 0, "%d passed over in lock %d of %v, counted as %d", count, id, q.key, l.passed.n)
			passed += count
		}
		if l.ended == l.undone {
			free++
			ready += l.counted
			c.must(l.counted == int64(n)+l.passedN(), "lock %d of %v counts as %d", id, q.key, l.counted)
			c.must(l.place > 0 && q.locks.free[l.place-1] == freeLock{t.oldest(l), id}, "lock %d of %v is not where it belongs", id, q.key)
		} else {
			c.must(l.place == 0 && l.counted == 0, "lock %d of %v is locked and free", id, q.key)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	for i, s := range spans {
		c.must(i == 0 || spans[i-1].end() <= s.first, "%d of %v is passed over in two locks", s.first, q.key)
	}
	t.eachPage(q, func(p *page) {
		for live := p.live; live != 0; live &= live - 1 {
			off := p.no<<6 | int64(bits.TrailingZeros64(live))
			i := sort.Search(len(spans), func(i int) bool { return spans[i].end() > off })
			c.must(i == len(spans) || spans[i].first > off, "%d of %v is handed out and passed over", off, q.key)
		}
	})
	c.must(!q.ordered || nodes == q.undone, "%d messages in locks of %v, %d in the queue", nodes, q.key, q.undone)
	c.must(passed == q.locks.passed && ready == q.locks.ready && free == len(q.locks.free), "locks of %v: %d passed over, %d ready, %d free, counted as %+v", q.key, passed, ready, free, q.locks)
	for i := range q.locks.free {
		c.must(i == 0 || q.locks.free[(i-1)/2].off < q.locks.free[i].off, "free locks of %v are no heap", q.key)
	}
}

func (c *checker) queue(q *queue) {
	c.order(q)
	if q.root == 0 {
		c.must(q.undone == 0 && q.ready == 0 && q.waiting == 0, "empty queue %v with counters %+v", q.key, q)
		return
	}
	undone, ready, waiting := c.undone, int64(0), int64(0)
	c.tree(q, q.root, q.height, q.prefix, &ready, &waiting)
	if q.height > 0 {
		has := c.t.branches.at(q.root).has
		c.must(has&(has-1) != 0, "root of %v has a single child", q.key)
	}
	c.must(c.undone-undone == q.undone && ready == q.ready && waiting == q.waiting,
		"queue %v has %d un-done, %d ready, %d waiting, counted as %+v", q.key, c.undone-undone, ready, waiting, q)
}

// tree walks a node of a tree. It reports whether something below is ready.
func (c *checker) tree(q *queue, id uint32, h uint8, prefix int64, ready, waiting *int64) bool {
	if h == 0 {
		p := c.t.pages.at(id)
		c.must(p.no == prefix && p.queue == q.slot, "page %d of %v is at %d", p.no, q.key, prefix)
		c.page(q, p, id, ready, waiting)
		return p.ready != 0
	}
	c.branches++
	b := c.t.branches.at(id)
	c.must(b.has != 0, "branch without children")
	for i, child := range b.children {
		c.must((child != 0) == (b.has>>i&1 != 0), "child %d of a branch is not marked right", i)
		if child == 0 {
			c.must(b.ready>>i&1 == 0, "child %d does not exist and is ready", i)
			continue
		}
		is := c.tree(q, child, h-1, prefix<<6|int64(i), ready, waiting)
		c.must(is == (b.ready>>i&1 != 0), "child %d: ready is %v", i, is)
	}
	return b.ready != 0
}

func (c *checker) page(q *queue, p *page, id uint32, ready, waiting *int64) {
	t := c.t
	c.pages++
	c.must(p.live != 0 && p.ready&^p.live == 0, "page %d of %v: live %x, ready %x", p.no, q.key, p.live, p.ready)
	c.must(p.first()+int64(63-bits.LeadingZeros64(p.live)) < q.next, "page %d of %v: live %x, next %d", p.no, q.key, p.live, q.next)
	for i, ch := range p.chunks {
		c.must((ch != 0) == (uint8(p.live>>(8*i)) != 0), "chunk %d of page %d of %v", i, p.no, q.key)
		if ch != 0 {
			c.chunks++
			if t.chunks.at(ch).annex() != 0 {
				c.annexes++
			}
			c.must((t.chunks.at(ch).annex() != 0) == q.ordered, "annex of chunk %d", ch)
			c.must(t.chunks.at(ch).page == id && t.chunks.at(ch).place() == i, "chunk %d is not in its page", ch)
		}
	}
	for set := p.live; set != 0; set &= set - 1 {
		s := t.spotIn(q, p, lowest(set))
		c.undone++
		c.must(s == t.spotOf(s.id), "node %d is somewhere else", s.id)
		c.must(s.node.attempt() > 0, "attempt 0 of %d of %v", s.offset(), q.key)
		if s.node.client != 0 {
			c.held[uint32(s.node.client)]++
		}
		leased := p.ready>>s.bit&1 == 0 && !s.node.is(waits)
		c.must(leased == s.node.is(counted), "%d of %v is leased: %v", s.offset(), q.key, leased)
		if leased {
			c.leased[Holder{Group: q.key.Group}]++
			if s.node.client != 0 {
				c.leased[Holder{q.key.Group, s.node.client}]++
			}
		}
		if s.node.is(waits) {
			*waiting++
		}
		if p.ready>>s.bit&1 != 0 {
			*ready++
			c.must(t.alone(s.id) && !s.node.is(waits), "%d of %v is ready and listed or waiting", s.offset(), q.key)
			continue
		}
		c.must(c.listed[s.id] != 0, "%d of %v is in no list", s.offset(), q.key)
		delete(c.listed, s.id)
	}
}
