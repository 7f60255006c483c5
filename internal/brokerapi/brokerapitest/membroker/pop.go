package membroker

import (
	"bytes"
	"slices"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// sessionLease is how long a session lease lives at most.
const sessionLease = 3 * time.Hour

// Pop leases messages.
func (s *session) Pop(req *brokerapi.PopRequest, done func(*brokerapi.PopReply, error)) {
	s.b.mu.Lock()
	reply, err := s.pop(req)
	s.b.mu.Unlock()
	s.b.o.Later(func() { done(reply, err) })
}

func (s *session) pop(req *brokerapi.PopRequest) (*brokerapi.PopReply, error) {
	if err := s.usable(&req.Head); err != nil {
		return nil, err
	}
	t, u, err := s.sub(req.Topic, req.Group)
	if err != nil {
		return nil, err
	}
	if req.Client != "" {
		s.b.clients[req.Client] = time.Now()
	}
	if again := s.again(t, u, req); len(again) > 0 {
		reply := s.b.reply(again)
		reply.More = true
		return reply, nil
	}
	p := pick{b: s.b, t: t, u: u, req: req, now: time.Now(), lease: s.b.nextPos()}
	for i := range t.queues {
		p.queue((u.turn + i) % len(t.queues))
	}
	u.turn++
	reply := s.b.reply(p.got)
	reply.More = s.b.readyCount(t, u, p.now) > 0
	if req.Arm && !reply.More {
		u.armed[s] = struct{}{}
	}
	s.b.schedule()
	return reply, nil
}

// again is the un-done rest of what the same attempt got before.
func (s *session) again(t *topic, u *sub, req *brokerapi.PopRequest) []brokerapi.Delivery {
	if req.AttemptID == "" {
		return nil
	}
	var got []brokerapi.Delivery
	now := time.Now()
	for q := range u.items {
		for off := range u.items[q] {
			it := &u.items[q][off]
			if !it.done && it.id == req.AttemptID && it.client == req.Client && s.b.until(it).After(now) {
				got = append(got, s.b.delivery(t, q, off, it))
			}
		}
	}
	return got
}

// pick chooses the messages of one pop.
type pick struct {
	b     *Broker
	t     *topic
	u     *sub
	req   *brokerapi.PopRequest
	now   time.Time
	lease brokerapi.LogPos
	size  int
	got   []brokerapi.Delivery
}

func (p *pick) queue(q int) {
	for off := range p.t.queues[q] {
		fresh := off >= len(p.u.items[q])
		if !fresh {
			if it := &p.u.items[q][off]; it.done || p.b.until(it).After(p.now) {
				continue
			}
		}
		m := &p.t.queues[q][off]
		if p.full(m) {
			return
		}
		if fresh {
			p.u.items[q] = append(p.u.items[q], item{})
		}
		it := &p.u.items[q][off]
		if !p.matches(m) {
			it.done = true
			continue
		}
		if !it.keep {
			it.attempt++
		}
		until := p.now.Add(p.req.Invisible)
		if p.req.Session {
			until = p.now.Add(sessionLease)
		}
		*it = item{attempt: it.attempt, lease: p.lease, until: until, session: p.req.Session, client: p.req.Client, id: p.req.AttemptID}
		p.size += cost(m)
		p.got = append(p.got, p.b.delivery(p.t, q, off, it))
	}
}

func (p *pick) full(m *stored) bool {
	limit := p.req.MaxBytes
	if limit <= 0 {
		limit = 4 << 20
	}
	return len(p.got) >= max(p.req.Max, 1) || len(p.got) > 0 && p.size+cost(m) > limit
}

// cost stands for the size of a record.
func cost(m *stored) int { return 100 + len(m.ID) + len(m.User) + len(m.Sys) + len(m.Body) }

func (p *pick) matches(m *stored) bool {
	return p.req.Filter.Kind == brokerapi.FilterAll ||
		slices.ContainsFunc(p.req.Filter.Tags, func(tag string) bool { return brokerapi.HashTag([]byte(tag)) == m.TagHash })
}

// delivery is one message with bytes of its own.
func (b *Broker) delivery(t *topic, q, off int, it *item) brokerapi.Delivery {
	m := &t.queues[q][off]
	return brokerapi.Delivery{
		Queue: brokerapi.QueueID(q), Offset: brokerapi.QueueOffset(off), Lease: it.lease, Epoch: b.o.Epoch, Attempt: it.attempt,
		Type: m.Type, StoreTime: m.time, DeliverAt: m.DeliverAt, Digest: m.Digest,
		User: bytes.Clone(m.User), Sys: bytes.Clone(m.Sys), Body: bytes.Clone(m.Body),
	}
}

// reply overwrites its bytes when it is released.
func (b *Broker) reply(got []brokerapi.Delivery) *brokerapi.PopReply {
	if len(got) == 0 {
		return brokerapi.NewPopReply(nil, nil)
	}
	b.held++
	own := slices.Clone(got)
	return brokerapi.NewPopReply(got, func() {
		for i := range own {
			for _, span := range [][]byte{own[i].User, own[i].Sys, own[i].Body} {
				for j := range span {
					span[j] = 0xDD
				}
			}
		}
		b.mu.Lock()
		b.held--
		b.mu.Unlock()
	})
}

// until is when a lease ends.
func (b *Broker) until(it *item) time.Time {
	if !it.session {
		return it.until
	}
	return earlier(it.until, b.clients[it.client].Add(b.o.SessionTimeout))
}

// readyCount is how many messages are due for a group, before filtering.
func (b *Broker) readyCount(t *topic, u *sub, now time.Time) int {
	n := 0
	for q := range t.queues {
		n += len(t.queues[q]) - len(u.items[q])
		for i := range u.items[q] {
			if it := &u.items[q][i]; !it.done && !b.until(it).After(now) {
				n++
			}
		}
	}
	return n
}
