package membroker

import (
	"bytes"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Send stores messages in one queue.
func (s *session) Send(req *brokerapi.SendRequest, done func(*brokerapi.SendReply, error)) {
	s.b.mu.Lock()
	reply, err := s.send(req)
	fire := s.b.ready()
	s.b.mu.Unlock()
	s.b.o.Later(func() { done(reply, err) })
	fire()
}

func (s *session) send(req *brokerapi.SendRequest) (*brokerapi.SendReply, error) {
	if err := s.usable(&req.Head); err != nil {
		return nil, err
	}
	t, err := s.topic(req.Topic)
	if err != nil {
		return nil, err
	}
	if len(req.Messages) == 0 {
		return nil, mqerr.New(mqerr.Invalid, "a send without messages")
	}
	q := req.Messages[0].Queue
	for i := range req.Messages {
		if m := &req.Messages[i]; m.Queue != q || len(m.ID) == 0 {
			return nil, mqerr.New(mqerr.Invalid, "a message for queue %d with the id %q", m.Queue, m.ID)
		}
	}
	switch {
	case q == brokerapi.AnyQueue:
		q = brokerapi.QueueID(t.turn % len(t.queues))
		t.turn++
	case q < 0 || int(q) >= len(t.queues):
		return nil, mqerr.New(mqerr.Invalid, "there is no queue %d", q)
	}
	reply := &brokerapi.SendReply{}
	for _, m := range req.Messages {
		m.ID, m.User, m.Sys, m.Body = bytes.Clone(m.ID), bytes.Clone(m.User), bytes.Clone(m.Sys), bytes.Clone(m.Body)
		one := stored{Message: m, pos: s.b.nextPos(), time: time.Now().UnixMilli()}
		reply.Results = append(reply.Results, brokerapi.SendResult{
			Queue: q, Offset: brokerapi.QueueOffset(len(t.queues[q])), Pos: one.pos, StoreTime: one.time,
		})
		t.queues[q] = append(t.queues[q], one)
	}
	return reply, nil
}

func (b *Broker) nextPos() brokerapi.LogPos {
	b.pos += 100
	return b.pos
}
