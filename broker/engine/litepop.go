package engine

import "github.com/perigee-mq/perigee/internal/brokerapi"

// liteReady counts what is ready in the first lite topic of a client's list in which something is; those
// in front, in which nothing is, leave the list.
func (w *writer) liteReady(c *liteClient) int64 {
	g := w.views.groups.Get(c.group.id)
	for c.first != nil && g != nil {
		if l := w.views.lite.Named(c.topic.def.ID, c.first.name); l != nil {
			if n := w.readyIn(c.topic, g, l.Queue); n > 0 {
				return n
			}
		}
		c.unlist(c.first)
	}
	return 0
}

// liteRoom is how many more messages a client may have. If none, it hears when that changes.
func (w *writer) liteRoom(c *liteClient) int64 {
	g := w.views.groups.Get(c.group.id)
	if g == nil {
		return 0
	}
	num, _ := w.views.pop.Client([]byte(c.id))
	left, who := w.room(g, num)
	if left == 0 {
		w.await(who, fullWait{topic: c.topic, lite: c})
	}
	return left
}

// lite looks through the lite topics of a client in which something may be ready, longest listed first.
func (s *scan) lite(c *liteClient) {
	for len(s.got) < s.limit() && s.left > 0 && s.err == nil && !s.full {
		sub := c.take()
		if sub == nil {
			return
		}
		l := s.w.views.lite.Named(s.t.def.ID, sub.name)
		if l == nil {
			continue
		}
		before := len(s.got)
		s.queue(l.Queue)
		if len(s.got) > before || s.full || s.left <= 0 || s.err != nil {
			s.lites = append(s.lites, sub)
		}
	}
}

// giveBack puts lite topics that were looked at and have more behind the others.
func (s *scan) giveBack() {
	for _, sub := range s.lites {
		if l := s.w.views.lite.Named(s.t.def.ID, sub.name); l != nil && s.w.readyIn(s.t, s.g, l.Queue) > 0 {
			s.w.list(sub)
		}
	}
	s.lites = nil
}

// outlookLite tells whether the client has more, and arms if not.
func (o *popOp) outlookLite(w *writer) {
	o.more = w.liteReady(o.lite) > 0 && w.liteRoom(o.lite) > 0
	if !o.more {
		o.armLite(w)
	}
}

// armLite lets the client hear.
func (o *popOp) armLite(w *writer) {
	if s := o.from; o.req.Arm && s != nil && !s.closed && !o.lite.gone {
		if _, is := o.lite.armed[s]; !is {
			o.lite.armed[s] = struct{}{}
			w.ready.armed++
		}
	}
}

// fireLite adds the events of lite clients.
func (r *ready) fireLite(w *writer, events map[*session][]brokerapi.Ready) {
	for _, c := range r.clients {
		c.told = false
		n := w.liteReady(c)
		if n > 0 {
			n = min(n, w.liteRoom(c))
		}
		if n == 0 || c.gone {
			continue // stays armed
		}
		for s := range c.armed {
			events[s] = append(events[s], brokerapi.Ready{
				Topic: brokerapi.TopicID(c.topic.def.ID), Group: brokerapi.GroupID(c.group.id), Client: c.hash, Count: int(n),
			})
		}
		r.armed -= len(c.armed)
		clear(c.armed)
	}
	clear(r.clients)
	r.clients = r.clients[:0]
}
