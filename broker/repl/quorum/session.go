package quorum

import (
	"slices"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// peer is another replica: one that is registered, in S, or has a session.
type peer struct {
	id         Replica
	registered Incarnation // the newest that the controller showed; 0: none
	known      Incarnation // the newest that the controller showed or a session began with

	session Session // 0: none
	inc     Incarnation
	learner bool
	acked   bool // in this session
	// written and durable are the ends that it acked in this session.
	written, durable record.Pos

	broke   time.Duration // when its last session ended
	lastAck time.Duration // or when its session was opened
	// sentEnd is where the log ended when it was sent something, if waiting is set: then it has not acked that yet,
	// and the next one is noted when it has.
	sentEnd record.Pos
	waiting bool
	// caughtAt is when it was caught up last; caughtSince is since when it was never late for longer than
	// Times.Rejoin in this session, if caught is set.
	caughtAt, caughtSince time.Duration
	caught                bool
	was                   bool // it had a session in this epoch
	left                  bool // and said goodbye at the end of the last one
}

func (p *peer) shift(by time.Duration) {
	for _, at := range []*time.Duration{&p.broke, &p.lastAck, &p.caughtAt, &p.caughtSince} {
		*at += by
	}
}

// peer returns the replica's place, making it if there is none. The pointer is good until the next call.
func (c *Core) peer(id Replica) *peer {
	i, ok := slices.BinarySearchFunc(c.peers, id, func(p peer, id Replica) int { return int(int64(p.id) - int64(id)) })
	if !ok {
		c.peers = slices.Insert(c.peers, i, peer{id: id, broke: c.now, caughtAt: c.now})
	}
	return &c.peers[i]
}

// find returns the replica's place, nil if there is none.
func (c *Core) find(id Replica) *peer {
	for i := range c.peers {
		if c.peers[i].id == id {
			return &c.peers[i]
		}
	}
	return nil
}

func (c *Core) at(session Session) *peer {
	for i := range c.peers {
		if c.peers[i].session == session && session != 0 {
			return &c.peers[i]
		}
	}
	return nil
}

// Open begins a session of a follower, whose log is the same as the master's up to its end from now on. Its acks
// from before count no more. Superseded is the session that it had, 0 for none. Fenced if the epoch is over or
// the replica has a newer incarnation, Invalid if it is the master itself, Exhausted if PeersMax others are known.
func (c *Core) Open(now time.Duration, m Member, learner bool) (s, superseded Session, err error) {
	c.clock(now)
	if c.over != nil {
		return 0, 0, c.over
	}
	if m.Replica == c.o.Self.Replica || m.Replica == 0 {
		return 0, 0, mqerr.New(mqerr.Invalid, "replica %d can't follow itself", m.Replica)
	}
	if c.find(m.Replica) == nil && len(c.peers) >= PeersMax {
		return 0, 0, mqerr.New(mqerr.Exhausted, "replica %d can't follow: %d others are known, the most that are allowed", m.Replica, len(c.peers))
	}
	p := c.peer(m.Replica)
	if m.Inc < p.known {
		return 0, 0, mqerr.New(mqerr.Fenced, "replica %d has incarnation %d: incarnation %d is over", m.Replica, p.known, m.Inc)
	}
	superseded = p.session
	c.sessions++
	*p = peer{
		id: p.id, registered: p.registered, known: m.Inc, session: c.sessions, inc: m.Inc, learner: learner,
		broke: p.broke, lastAck: now, caughtAt: p.caughtAt, was: true,
	}
	return c.sessions, superseded, nil
}

// Close ends a session. One that is over already is nobody's.
func (c *Core) Close(now time.Duration, s Session) Out {
	c.clock(now)
	if p := c.at(s); p != nil {
		c.closed(p)
	}
	return c.step()
}

// Left is Close when the follower has said that it stops: nobody waits for it to come back.
func (c *Core) Left(now time.Duration, s Session) Out {
	c.clock(now)
	if p := c.at(s); p != nil {
		c.closed(p)
		p.left = true
	}
	return c.step()
}

func (c *Core) closed(p *peer) {
	p.session, p.acked, p.caught, p.waiting = 0, false, false, false
	p.broke = c.now
}

// Sent says that a follower is sent a batch or a beat just now, while the log ends at end. False if the session is
// over: then nothing more is to be sent in it.
func (c *Core) Sent(now time.Duration, s Session, end record.Pos) bool {
	c.clock(now)
	p := c.at(s)
	if p == nil || c.over != nil {
		return false
	}
	if !p.waiting {
		p.sentEnd, p.waiting = min(end, c.written), true
	}
	return true
}

// Acked says that a follower has written and flushed its log up to these ends. Followers answer every batch and
// every beat, also with the same ends. In one session acks only grow; one that came out of order moves no end. Fenced if session or epoch is not the present one, Invalid if the ends
// can't be: such a session is to be closed.
func (c *Core) Acked(now time.Duration, s Session, epoch record.Epoch, written, durable record.Pos) (Out, error) {
	c.clock(now)
	if epoch > c.epoch {
		c.Higher(epoch)
	}
	p := c.at(s)
	switch {
	case p == nil || epoch != c.epoch || c.over != nil:
		return c.step(), mqerr.New(mqerr.Fenced, "an ack of session %d in epoch %d, in epoch %d", s, epoch, c.epoch)
	case written > c.written || durable > written || durable < 0:
		return c.step(), mqerr.New(mqerr.Invalid, "replica %d acks %d written and %d durable of a log that ends at %d", p.id, written, durable, c.written)
	}
	p.acked, p.lastAck = true, now
	p.written, p.durable = max(p.written, written), max(p.durable, durable)
	c.catchUp(p)
	return c.step(), nil
}

// catchUp notes how late a follower is: it is caught up whenever it reaches the end that the log had when it was
// sent something. One that is so and so late reaches the next such end so much later.
func (c *Core) catchUp(p *peer) {
	end := c.endOf(p)
	if end < c.written && (!p.waiting || end < p.sentEnd) {
		return
	}
	p.waiting = p.waiting && end < p.sentEnd
	if !p.caught || c.now-p.caughtAt > c.o.Times.Rejoin {
		p.caught, p.caughtSince = true, c.now
	}
	p.caughtAt = c.now
}

// endOf is how far a follower's acks count.
func (c *Core) endOf(p *peer) record.Pos {
	if c.o.Mode == Memory {
		return p.written
	}
	return p.durable
}

// ackOf is how far a member's ack counts, 0 if it has none in a session of this incarnation. The master itself is
// no limit here.
func (c *Core) ackOf(m Member) record.Pos {
	if m == c.o.Self {
		return c.own()
	}
	p := c.find(m.Replica)
	if p == nil || p.session == 0 || p.inc != m.Inc || !p.acked {
		return 0
	}
	return c.endOf(p)
}
