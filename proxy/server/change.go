package server

import (
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/receipt"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// ChangeInvisibleDuration gives one message another time until it comes back, 0 for at once. The
// handle stays as it is, since the lease does; it is in every answer, because clients overwrite their
// handle with it even when they were refused.
func (s *Server) ChangeInvisibleDuration(c call.Unary) {
	var q wire.ChangeInvisibleDurationRequest
	if err := q.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	answer := func(r refusal) {
		r.hint(c)
		dst := make([]byte, 0, 32+len(r.text)+len(q.Handle))
		c.Reply(wire.AppendHandle(appendRefusal(dst, r), q.Handle))
	}
	client, no := clientID(c)
	if no.given() {
		answer(no)
		return
	}
	s.o.Clients.Heard(client, s.o.Now())
	length := q.InvisibleDuration.Duration() // none is 0
	if no = s.checkChange(&q, length); no.given() {
		answer(no)
		return
	}
	routes := s.o.Routes.Load()
	h, err := handleOf(routes, q.Handle, routes.Topic(q.Topic.Name), routes.Group(q.Group.Name))
	if err == nil {
		err = checkLiteHandle(&h, q.LiteTopic)
	}
	if err != nil {
		answer(s.outcome(RPCChangeInvisibleDuration, err))
		return
	}
	s.change(c, &h, length, q.Suspend, func(err error) {
		if err != nil {
			answer(s.outcome(RPCChangeInvisibleDuration, err))
			return
		}
		answer(refuse(rmqv2.Code_OK, okText))
	})
}

func (s *Server) checkChange(q *wire.ChangeInvisibleDurationRequest, length time.Duration) refusal {
	if no := checkTopic(q.Topic.Name); no.given() {
		return no
	}
	if no := checkGroup(q.Group.Name); no.given() {
		return no
	}
	return s.checkInvisible(length, 0)
}

// change asks the message's broker. A suspended message keeps its attempt number.
func (s *Server) change(c call.Info, h *receipt.Handle, length time.Duration, suspend bool, then func(error)) {
	out := &brokerapi.ChangeRequest{
		Head:  brokerapi.Head{Deadline: s.deadline(c)},
		Topic: h.Topic, Group: h.Group, Handles: []brokerapi.Handle{h.Handle}, Invisible: length,
	}
	if suspend {
		out.Mode = brokerapi.ChangeKeep
	}
	s.ending(c, h.Shard, func(home home, done func(error)) {
		out.Epoch = home.epoch
		home.broker.Change(out, func(reply *brokerapi.ChangeReply, err error) {
			done(single(func() []error { return reply.Errors }, err))
		})
	}, then)
}
