package server

import (
	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// ForwardMessageToDeadLetterQueue moves one message to the dead-letter topic of its group, once however
// often it is asked for. How often it was delivered is the broker's to know: what the client counts is
// not looked at.
func (s *Server) ForwardMessageToDeadLetterQueue(c call.Unary) {
	var q wire.ForwardRequest
	if err := q.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	client, no := clientID(c)
	if no.given() {
		reject(c, no)
		return
	}
	s.o.Clients.Heard(client, s.o.Now())
	if no = checkTopic(q.Topic.Name); !no.given() {
		no = checkGroup(q.Group.Name)
	}
	if no.given() {
		reject(c, no)
		return
	}
	s.forward(c, &q, func(err error) {
		if err != nil {
			reject(c, s.outcome(RPCForwardMessage, err))
			return
		}
		reject(c, refuse(rmqv2.Code_OK, okText))
	})
}

// forward asks the message's broker.
func (s *Server) forward(c call.Info, q *wire.ForwardRequest, then func(error)) {
	routes := s.o.Routes.Load()
	h, err := handleOf(routes, q.Handle, routes.Topic(q.Topic.Name), routes.Group(q.Group.Name))
	if err != nil {
		then(err)
		return
	}
	out := &brokerapi.ForwardRequest{
		Head:  brokerapi.Head{Deadline: s.deadline(c)},
		Topic: h.Topic, Group: h.Group, Handles: []brokerapi.Handle{h.Handle},
	}
	s.ending(c, h.Shard, func(home home, done func(error)) {
		out.Epoch = home.epoch
		home.broker.Forward(out, func(reply *brokerapi.ForwardReply, err error) {
			done(single(func() []error { return reply.Errors }, err))
		})
	}, then)
}
