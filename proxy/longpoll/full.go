package longpoll

import "github.com/perigee-mq/perigee/internal/brokerapi"

// A client that has as many messages leased as one client may (PopReply.Full) finds nothing, whatever is
// ready: what is ready is for others. So its receives wait aside, each shard in a place of the client's own,
// where the events of the group do not wake them; the broker tells when the client may have more. The
// first answer that is not Full brings the receive back, and lets the next one that waits aside try.
//
// Why no wake-up is lost: the broker's event for the client may overtake the answer that says Full. It counts
// as an event of the group's place too (place.others), so that such an answer is not the latest, and the receive pops again.

// full takes an answer that says Full, of a pop that no event has overtaken if latest.
func (c *core) full(w *Wait, s *stop, latest bool) {
	switch {
	case w.state != open:
	case s.aside == nil && latest:
		own := c.group(key{w.key.key.topic, w.key.key.group, brokerapi.HashClient(w.req.Pop.Client)})
		own.open++
		s.aside, s.place = own, own.place(s.place.shard)
		s.place.aside = true
	case s.aside == nil:
		s.ask = true
	}
}

// goOn takes an answer without Full to a receive that waited aside at p: the next one tries, whatever has
// become of this one.
func (c *core) goOn(p *place, s *stop, more bool) {
	p.credit = max(p.credit, 1)
	if s.aside != nil {
		c.back(s)
	}
	if more {
		s.place.credit = max(s.place.credit, 1)
	}
}

// back makes a stop wait with the others of its group again.
func (c *core) back(s *stop) {
	own := s.aside
	s.aside, s.place = nil, s.w.key.place(s.place.shard)
	own.open--
	c.forget(own)
}

// group returns the group of a key, made now if it is missing.
func (c *core) group(k key) *group {
	g := c.groups[k]
	if g == nil {
		g = &group{key: k}
		c.groups[k] = g
	}
	return g
}
