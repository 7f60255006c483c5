package longpoll

import (
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// core decides which receive asks which broker when. It is a state machine without clock, lock or
// call: every event is a method, and what is to be done about it is appended to out.
//
// Why no wake-up is lost: a place (topic, group and shard) whose idle list is not empty is in one of
// these states, and each leads to a pop there as soon as something may be ready:
//
//   - armed: the last pop that was sent after the last event found nothing more, so the broker sends
//     an event when something becomes ready;
//   - a pop is in flight that was sent after the last event; its reply arms, or leaves a credit;
//   - credit > 0, and then the receives in the idle list are woken at once, so it is empty;
//   - unarmed: the last pop failed or the broker went down since; one receive tries again after
//     Options.Retry, or at once with up.
//
// A receive goes into the list only if all its places were popped since it arrived and none has
// credit left. An event that comes while its pop is in flight leaves credit that the reply cannot
// clear (events differs), so it pops again.
type core struct {
	o       Options
	groups  map[key]*group
	open    int // receives that are open
	seq     uint64
	due     deadlines
	now     time.Time // of the event
	unarmed map[*place]struct{}
	retryAt time.Time // when the unarmed are tried again
	drained bool
	stats   Stats
	out     []action
}

type key struct {
	topic  brokerapi.TopicID
	group  brokerapi.GroupID
	client uint64 // brokerapi.HashClient of a receive that is for its own client, else 0
}

// group is the receives of one group on one topic. It exists while one is open or pops.
type group struct {
	key    key
	open   int
	pops   int // in flight
	places []*place
}

// place is one shard of one group's topic.
type place struct {
	shard  brokerapi.ShardID
	events uint64 // that came from the broker or about it
	others uint64 // events for clients of the group
	credit int    // messages that may be ready and that nobody was sent for
	failed bool   // the last pop failed, or the broker went down since
	aside  bool   // of one client of an ordinary group, see full.go
	idle   idleList
}

type actionKind uint8

const (
	actPop    actionKind = iota // send w's pop to shard
	actAnswer                   // call w.done
	actReturn                   // give back the messages of the answer
)

type action struct {
	kind   actionKind
	w      *Wait
	shard  brokerapi.ShardID
	answer Answer
}

func newCore(o Options) core {
	return core{o: o, groups: map[key]*group{}, unarmed: map[*place]struct{}{}}
}

// arrive takes a receive and asks its shards, the one at index start first.
func (c *core) arrive(w *Wait, start int, now time.Time) {
	c.now = now
	k := key{topic: w.req.Pop.Topic, group: w.req.Pop.Group}
	if w.req.Own {
		k.client = brokerapi.HashClient(w.req.Pop.Client)
	}
	g := c.groups[k]
	if err := c.refuse(g); err != nil || c.drained {
		w.state = answered
		c.out = append(c.out, action{kind: actAnswer, w: w, answer: Answer{Err: err}})
		return
	}
	g = c.group(k)
	c.stats.Receives++
	c.seq++
	c.open++
	g.open++
	w.key, w.seq = g, c.seq
	w.stops = make([]stop, len(w.req.Shards))
	for i := range w.stops {
		shard := w.req.Shards[(start+i)%len(w.stops)]
		w.stops[i] = stop{w: w, place: g.place(shard), ask: true}
	}
	c.due.push(w)
	c.step(w)
}

func (c *core) refuse(g *group) error {
	switch {
	case c.open >= c.o.MaxReceives:
		c.stats.Refused++
		return mqerr.New(mqerr.Exhausted, "%d receives wait at this proxy, more are not taken", c.open)
	case g != nil && g.open >= c.o.MaxPerGroup:
		c.stats.Refused++
		return mqerr.New(mqerr.Exhausted, "%d receives of this group wait on this topic, more are not taken", g.open)
	}
	return nil
}

func (g *group) place(shard brokerapi.ShardID) *place {
	for _, p := range g.places {
		if p.shard == shard {
			return p
		}
	}
	p := &place{shard: shard}
	g.places = append(g.places, p)
	return p
}

// step sends the next pop of an open receive that has none in flight, or lets it wait.
func (c *core) step(w *Wait) {
	for i := range w.stops {
		if w.stops[i].ask {
			c.pop(&w.stops[i])
			return
		}
	}
	for i := range w.stops {
		if w.stops[i].place.credit > 0 {
			c.pop(&w.stops[i])
			return
		}
	}
	if w.fresh && w.allFailed() {
		if c.o.Patience <= 0 {
			c.finish(w, Answer{Err: w.stops[0].err})
			return
		}
		c.doubt(w)
	}
	w.fresh = false
	for i := range w.stops {
		s := &w.stops[i]
		s.place.idle.insert(s)
		if s.place.failed {
			c.unarm(s.place)
		}
	}
}

// doubt lets a receive wait for a broker for a while.
func (c *core) doubt(w *Wait) {
	if at := c.now.Add(c.o.Patience); at.Before(w.at) {
		c.due.remove(w)
		w.at, w.doubted = at, true
		c.due.push(w)
	}
}

// judge answers a receive whose patience is over, if there is still no broker.
func (c *core) judge(w *Wait) {
	for i := range w.stops {
		if s := &w.stops[i]; s.err == nil || !s.place.failed {
			c.due.remove(w)
			w.at, w.doubted = w.req.Deadline, false
			c.due.push(w)
			return
		}
	}
	c.finish(w, Answer{Err: w.stops[0].err})
}

func (w *Wait) allFailed() bool {
	for i := range w.stops {
		if w.stops[i].err == nil {
			return false
		}
	}
	return true
}

// pop sends the pop of a stop. It uses up credit for as many messages as the receive can take.
func (c *core) pop(s *stop) {
	w := s.w
	s.ask = false
	s.place.credit = max(0, s.place.credit-max(1, w.pop.Max))
	w.popping, w.popAt, w.seen, w.others = s, s.place, s.place.events, s.place.others
	w.key.pops++
	c.stats.Pops++
	c.out = append(c.out, action{kind: actPop, w: w, shard: s.place.shard})
}

// wake sends idle receives, the oldest first, for the credit of a place.
func (c *core) wake(p *place) {
	for p.credit > 0 && p.idle.first != nil {
		s := p.idle.first
		s.w.leaveIdle()
		c.pop(s)
	}
}

func (w *Wait) leaveIdle() {
	for i := range w.stops {
		if s := &w.stops[i]; s.idle {
			s.place.idle.remove(s)
		}
	}
}

// replied takes the answer of w's pop.
func (c *core) replied(w *Wait, reply *brokerapi.PopReply, err error, now time.Time) {
	c.now = now
	s := w.popping
	w.popping = nil
	w.key.pops--
	s.err, s.lost = err, mqerr.Is(err, mqerr.UnknownOutcome) || s.lost && err != nil
	p := w.popAt // the stop may have gone elsewhere since
	latest := w.seen == p.events
	switch {
	case err != nil && final(err):
		p.credit = max(p.credit, 1) // another receive may fare better
	case err != nil:
		p.failed = p.failed || latest // else whatever happened meanwhile says more
		if p.failed && p.idle.first != nil {
			c.unarm(p)
		}
	case p.aside && !reply.Full:
		c.goOn(p, s, reply.More)
	case reply.More && !p.aside:
		p.credit = max(p.credit, 1)
	case latest:
		p.credit, p.failed = 0, false // nothing more is ready, and the broker is armed
		delete(c.unarmed, p)
	}
	if err == nil && reply.Full && !w.req.Own {
		c.full(w, s, latest && w.others == p.others)
	}
	c.settle(w, s, reply, err)
	c.wake(p)
	if s.place != p {
		c.wake(s.place)
	}
	c.forget(w.key)
}

// settle says what an answer means for the receive that popped.
func (c *core) settle(w *Wait, s *stop, reply *brokerapi.PopReply, err error) {
	found := reply != nil && len(reply.Messages) > 0
	switch {
	case found && w.state == open:
		c.finish(w, Answer{Shard: s.place.shard, Reply: reply})
	case found:
		c.out = append(c.out, action{kind: actReturn, w: w, answer: Answer{Shard: s.place.shard, Reply: reply}})
	default:
		reply.Release()
		if w.state != open {
			return
		}
		if err != nil && final(err) {
			c.finish(w, Answer{Err: err})
			return
		}
		c.step(w)
	}
}

// finish answers an open receive.
func (c *core) finish(w *Wait, a Answer) {
	c.close(w, answered)
	c.out = append(c.out, action{kind: actAnswer, w: w, answer: a})
}

// close takes an open receive out of everything; a pop in flight stays.
func (c *core) close(w *Wait, s state) {
	w.state = s
	w.leaveIdle()
	for i := range w.stops {
		if s := &w.stops[i]; s.aside != nil {
			c.back(s)
		}
	}
	c.due.remove(w)
	c.open--
	w.key.open--
	c.forget(w.key)
}

func (c *core) forget(g *group) {
	if g.open > 0 || g.pops > 0 {
		return
	}
	for _, p := range g.places {
		delete(c.unarmed, p)
	}
	delete(c.groups, g.key)
}

func (c *core) cancel(w *Wait) bool {
	if w.state != open {
		return false
	}
	c.close(w, cancelled)
	return true
}
