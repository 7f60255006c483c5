package checks

import "github.com/perigee-mq/perigee/proxy/clients"

// outbox is the checks that wait for one stream. A goroutine writes them while there are any, since a
// client that does not read must hold up nobody else.
type outbox struct {
	waiting []message // guarded by Checker.mu
	size    int       // bytes of those, and of the one being written
}

// Bounds of an outbox: a stream that does not get rid of so much gets no more.
const (
	outboxMessages = 64
	outboxBytes    = 8 << 20
)

// producersTried is how many producers are tried for one check.
const producersTried = 3

// dispatch hands a check to the producer whose turn it is, or to another one if that cannot take it.
func (c *Checker) dispatch(m message) {
	for _, s := range c.o.Clients.ProducerStreams(m.topic, producersTried) {
		if c.put(s, m) {
			return
		}
	}
	c.unsent.Add(1)
}

func (c *Checker) put(s clients.Stream, m message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.outboxes[s]
	switch {
	case c.ended:
		return false
	case o == nil:
		o = &outbox{}
		c.outboxes[s] = o
		c.work.Go(func() { c.write(s, o) })
	case len(o.waiting) >= outboxMessages || o.size+len(m.bytes) > outboxBytes:
		return false
	}
	o.waiting = append(o.waiting, m)
	o.size += len(m.bytes)
	return true
}

// write writes until nothing waits. What the stream does not take goes to another producer.
func (c *Checker) write(s clients.Stream, o *outbox) {
	for {
		c.mu.Lock()
		if len(o.waiting) == 0 {
			delete(c.outboxes, s)
			c.mu.Unlock()
			return
		}
		m := o.waiting[0]
		o.waiting = o.waiting[1:]
		c.mu.Unlock()
		err := s.Send(m.bytes)
		c.mu.Lock()
		o.size -= len(m.bytes)
		c.mu.Unlock()
		switch m.tries++; {
		case err == nil:
			c.sent.Add(1)
		case m.tries < producersTried:
			c.dispatch(m)
		default:
			c.unsent.Add(1)
		}
	}
}
