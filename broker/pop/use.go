package pop

import "github.com/perigee-mq/perigee/store/record"

// What a group has leased, and each client of it, is counted where leases begin and end, so that asking
// costs nothing. The counts follow from the messages and the time and are never encoded.

// use is what a group has leased in all queues.
type use struct {
	group   record.GroupID
	leased  int64
	watched bool
}

// clientUse is what a client has leased of one group.
type clientUse struct {
	group   record.GroupID
	leased  int64
	watched bool
}

// Holder names a group, or one client of it.
type Holder struct {
	Group  record.GroupID
	Client record.ClientNum // 0: the group
}

// Leased is how many messages a group, or a client of it, has leased as of the last Advance.
func (t *Table) Leased(h Holder) int64 {
	if h.Client != 0 {
		if c := t.clients.byNum[h.Client]; c != nil {
			return c.use(h.Group).leased
		}
		return 0
	}
	if u := t.uses[h.Group]; u != nil {
		return u.leased
	}
	return 0
}

// Watch asks for one word by Freed as soon as a holder has less leased than now. One that is not known
// holds nothing: nothing is asked for.
func (t *Table) Watch(h Holder) {
	if h.Client == 0 {
		t.useOf(h.Group).watched = true
	} else if c := t.clients.byNum[h.Client]; c != nil {
		c.use(h.Group).watched = true
	}
}

// HasFreed reports whether Freed has something to tell.
func (t *Table) HasFreed() bool { return len(t.freed) > 0 }

// Freed calls fn for each watched holder that has less leased since. fn may call Watch and Leased.
func (t *Table) Freed(fn func(Holder)) {
	freed := t.freed
	t.freed = nil
	for _, h := range freed {
		fn(h)
	}
}

// useOf returns the counts of a group.
func (t *Table) useOf(g record.GroupID) *use {
	u := t.uses[g]
	if u == nil {
		u = &use{group: g}
		t.uses[g] = u
	}
	return u
}

// use returns what a client has leased of a group. Nearly every client is of one group.
func (c *client) use(g record.GroupID) *clientUse {
	for i := range c.uses {
		if c.uses[i].group == g {
			return &c.uses[i]
		}
	}
	c.uses = append(c.uses, clientUse{group: g})
	return &c.uses[len(c.uses)-1]
}

// hold counts a message as leased.
func (t *Table) hold(s spot) {
	if s.node.is(counted) {
		return
	}
	s.node.set(counted)
	s.queue.use.leased++
	if n := s.node.client; n != 0 {
		t.clients.get(n).use(s.queue.key.Group).leased++
	}
}

// release counts a message as not leased any more, if it was.
func (t *Table) release(s spot) {
	if !s.node.is(counted) {
		return
	}
	s.node.unset(counted)
	u := s.queue.use
	if u.leased--; u.watched {
		u.watched = false
		t.freed = append(t.freed, Holder{Group: u.group})
	}
	if n := s.node.client; n != 0 {
		c := t.clients.get(n).use(u.group)
		if c.leased--; c.watched {
			c.watched = false
			t.freed = append(t.freed, Holder{Group: u.group, Client: n})
		}
	}
}
