package longpoll

import (
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// ready takes an event of a broker: Count messages may be ready.
func (c *core) ready(shard brokerapi.ShardID, e brokerapi.Ready) {
	if e.Client != 0 {
		c.overtake(shard, key{topic: e.Topic, group: e.Group})
	}
	g := c.groups[key{e.Topic, e.Group, e.Client}]
	if g == nil {
		return // who comes later pops first
	}
	for _, p := range g.places {
		if p.shard == shard {
			p.events++
			p.credit = max(p.credit, e.Count, 1)
			c.wake(p)
		}
	}
}

// overtake notes an event for a client at the place of its group, see full.go.
func (c *core) overtake(shard brokerapi.ShardID, k key) {
	if g := c.groups[k]; g != nil {
		for _, p := range g.places {
			if p.shard == shard {
				p.others++
			}
		}
	}
}

// down forgets what was armed at a shard.
func (c *core) down(shard brokerapi.ShardID, now time.Time) {
	c.now = now
	c.each(shard, func(p *place) {
		p.events++
		p.failed = true
		if p.idle.first != nil {
			c.unarm(p)
		}
	})
}

// up asks a shard anew. A receive whose answer was lost asks by itself: the broker knows its attempt.
func (c *core) up(shard brokerapi.ShardID) {
	c.each(shard, func(p *place) {
		p.events++
		p.failed = false
		delete(c.unarmed, p)
		for s := p.idle.first; s != nil; {
			next := s.next
			if s.lost {
				s.w.leaveIdle()
				c.pop(s)
			}
			s = next
		}
		c.try(p)
	})
}

// each calls f for every place of a shard.
func (c *core) each(shard brokerapi.ShardID, f func(*place)) {
	for _, g := range c.groups {
		for _, p := range g.places {
			if p.shard == shard {
				f(p)
			}
		}
	}
}

// try sends one receive to a place.
func (c *core) try(p *place) {
	p.credit = max(p.credit, 1)
	c.wake(p)
}

// unarm notes that nobody tells when something becomes ready at a place where receives wait.
func (c *core) unarm(p *place) {
	if len(c.unarmed) == 0 {
		c.retryAt = c.now.Add(c.o.Retry)
	}
	c.unarmed[p] = struct{}{}
}

// expire answers the receives whose time is over and tries what is unarmed.
func (c *core) expire(now time.Time) {
	c.now = now
	for len(c.due) > 0 && !c.due[0].at.After(now) {
		if w := c.due[0]; w.doubted {
			c.judge(w)
		} else {
			c.finish(w, Answer{})
		}
	}
	if len(c.unarmed) == 0 || c.retryAt.After(now) {
		return
	}
	unarmed := c.unarmed
	c.unarmed = map[*place]struct{}{}
	for p := range unarmed {
		p.events++
		c.try(p)
	}
}

// next is when expire is due, false if there is nothing to expire.
func (c *core) next() (time.Time, bool) {
	at, ok := time.Time{}, false
	if len(c.due) > 0 {
		at, ok = c.due[0].at, true
	}
	if len(c.unarmed) > 0 && (!ok || c.retryAt.Before(at)) {
		at, ok = c.retryAt, true
	}
	return at, ok
}

func (c *core) drain() {
	c.drained = true
	for len(c.due) > 0 {
		c.finish(c.due[0], Answer{})
	}
}
