package pop

import (
	"slices"

	"github.com/perigee-mq/perigee/store/record"
)

// client is a number that lease records use for a client id.
//
// The messages that it holds name it. Those under its session leases are a list ordered by cap, of those whose lease has not been
// seen to end by Advance. The end of the session touches none of them: their leases end at the
// earlier of cap and ended. So a client that is gone stays until the last message that it held was
// acked or handed out again, and only then the number is free.
type client struct {
	num   record.ClientNum
	name  string // "" when the session has ended
	ended int64  // end of the session in ms, forever while it lives
	held  int64  // un-done messages whose latest lease is this client's
	uses  []clientUse
	list  uint32 // head of the list
	timer uint32 // is scheduled while the list is not empty, not later than its first end
	tried uint64 // leases with an attempt id so far
	tries []try  // of the last triesMax of these, those of which something is left; oldest first
}

const forever = untilMax

type clients struct {
	byNum  map[record.ClientNum]*client
	byName map[string]*client // living ones
	next   record.ClientNum   // next number to try
	recent *client            // found last, nil if none
	heads  []uint32           // free list heads and timers
}

func (c *clients) init() {
	c.byNum = map[record.ClientNum]*client{}
	c.byName = map[string]*client{}
	c.next = 1
}

// get returns a client that some message names.
func (c *clients) get(num record.ClientNum) *client {
	if c.recent == nil || c.recent.num != num {
		c.recent = c.byNum[num]
	}
	return c.recent
}

// free is the next number that nobody uses.
func (c *clients) free() record.ClientNum {
	num := c.next
	for num == 0 || c.byNum[num] != nil {
		num++
	}
	return num
}

// Client returns the number of a client id, false if it has none or its session has ended.
func (t *Table) Client(name []byte) (record.ClientNum, bool) {
	if c := t.clients.byName[string(name)]; c != nil {
		return c.num, true
	}
	return 0, false
}

// ClientName returns the client id of a number, "" if it has none or its session has ended.
func (t *Table) ClientName(num record.ClientNum) string {
	if c := t.clients.byNum[num]; c != nil {
		return c.name
	}
	return ""
}

// NewClientNum returns the number that the next new client gets: one that is not in use, and was not
// for as long as possible. The record that names the client defines it.
func (t *Table) NewClientNum() record.ClientNum { return t.clients.free() }

// EachClient calls fn for the clients whose session has not ended, by number. fn must not change the
// table.
func (t *Table) EachClient(fn func(num record.ClientNum, name string)) {
	for _, c := range t.clients.sorted() {
		if c.name != "" {
			fn(c.num, c.name)
		}
	}
}

func (c *clients) sorted() []*client {
	all := make([]*client, 0, len(c.byNum))
	for _, one := range c.byNum {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *client) int { return int(int64(a.num) - int64(b.num)) })
	return all
}

// ApplySessionEnd takes the record that ends a client's session: its session leases end at s.Until, or
// at their cap if that is earlier; one that was seen to end before stays as it is. It costs the same for
// any number of leases.
func (t *Table) ApplySessionEnd(s *record.SessionEnd) error {
	if t.hole != nil {
		return t.forceSessionEnd(s)
	}
	return t.applySessionEnd(s)
}

func (t *Table) applySessionEnd(s *record.SessionEnd) error {
	c := t.clients.byNum[s.Client]
	if c == nil || c.name == "" {
		return corrupt("end of the session of client %d, which is not known", s.Client)
	}
	if s.Until < 0 || s.Until > untilMax {
		return corrupt("end of the session of client %d at %d ms", s.Client, s.Until)
	}
	delete(t.clients.byName, c.name)
	c.name, c.ended, c.tries = "", s.Until, nil
	if c.held == 0 {
		t.forget(c)
	} else if !t.alone(c.list) {
		t.arm(c, s.Until)
	}
	return nil
}

// define makes a client known.
func (t *Table) define(num record.ClientNum, name string) *client {
	c := &client{num: num, name: name, ended: forever, list: t.allocHead(), timer: t.allocHead()}
	t.node(c.timer).client = num
	t.clients.byNum[num] = c
	t.clients.byName[name] = c
	t.clients.next = num + 1
	return c
}

// forget frees a client's number.
func (t *Table) forget(c *client) {
	t.unlink(c.timer, t.node(c.timer))
	t.clients.heads = append(t.clients.heads, c.list, c.timer)
	delete(t.clients.byNum, c.num)
	t.clients.recent = nil
}

func (t *Table) allocHead() uint32 {
	f := &t.clients.heads
	if len(*f) == 0 {
		c := t.chunks.alloc()
		for i := range uint32(8) {
			*f = append(*f, c<<3|i)
		}
	}
	id := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	*t.node(id) = node{prev: id, next: id}
	return id
}

// deadline is the time at which a message's lease ends.
func (t *Table) deadline(n *node) int64 {
	if n.is(bound) {
		return min(n.until(), t.clients.get(n.client).ended)
	}
	return n.until()
}

// enter puts a message of a client that is in no list under a session lease that ends at limit at the latest. It
// looks for the place from the end of the list, or takes the one behind after if that is not 0.
func (t *Table) enter(c *client, s spot, limit int64, after uint32) {
	s.node.set(bound)
	if after == 0 {
		after = t.node(c.list).prev
		for after != c.list && t.node(after).until() > limit {
			after = t.node(after).prev
		}
	}
	t.insert(after, s.id, s.node)
	if first := t.node(c.list).next; first == s.id {
		t.arm(c, min(limit, c.ended))
	}
}

// leave notes that a message is no longer a client's.
func (t *Table) leave(num record.ClientNum) {
	c := t.clients.get(num)
	if c.held--; c.held == 0 && c.name == "" {
		t.forget(c)
	}
}

// arm sets a client's timer. It is never moved to later: when it finds nothing it is set anew.
func (t *Table) arm(c *client, at int64) {
	n := t.node(c.timer)
	if !t.alone(c.timer) {
		if n.until() <= at {
			return
		}
		t.unlink(c.timer, n)
	}
	n.setUntil(at, 0)
	t.schedule(c.timer, n, at)
}

// clientDue looks at a client whose timer ran out, or is on its way.
func (t *Table) clientDue(num record.ClientNum) {
	c := t.clients.byNum[num]
	if at := t.node(c.timer).until(); at > t.wheel.now {
		t.schedule(c.timer, t.node(c.timer), at)
		return
	}
	if c.ended <= t.wheel.now {
		t.splice(overdue, c.list)
		return
	}
	for range turn {
		id := t.node(c.list).next
		if id == c.list {
			return
		}
		n := t.node(id)
		if n.until() > t.wheel.now {
			break
		}
		t.unlink(id, n)
		t.insert(t.node(overdue).prev, id, n)
	}
	t.arm(c, min(t.deadline(t.node(t.node(c.list).next)), c.ended))
}
