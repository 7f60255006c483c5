package server

import (
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/receipt"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// RecallMessage takes a delayed message back, by the handle that its sender got. Again is no error; a
// message that was delivered is NOT_FOUND, and the text says so.
func (s *Server) RecallMessage(c call.Unary) {
	if _, no := clientID(c); no.given() {
		reject(c, no)
		return
	}
	var q wire.RecallRequest
	if err := q.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	if no := checkTopic(q.Topic.Name); no.given() {
		reject(c, no)
		return
	}
	routes := s.o.Routes.Load()
	t := routes.Topic(q.Topic.Name)
	if t != nil {
		if no := checkType(t, brokerapi.Delay); no.given() {
			reject(c, no)
			return
		}
	}
	s.recall(c, routes, t, &q, func(reply *brokerapi.RecallReply, err error) {
		if err != nil {
			reject(c, s.outcome(RPCRecallMessage, err))
			return
		}
		c.Reply(wire.AppendRecalled(okReply(2+len(reply.ID)), reply.ID))
	})
}

// recall asks the message's broker.
func (s *Server) recall(c call.Info, routes *route.Snapshot, t *route.Topic, q *wire.RecallRequest, then func(*brokerapi.RecallReply, error)) {
	if t == nil {
		then(nil, mqerr.New(mqerr.TopicNotFound, "topic %s does not exist", q.Topic.Name))
		return
	}
	h, err := receipt.DecodeRecall(q.Handle, keyRing{routes})
	if err == nil && h.Topic != t.ID {
		err = mqerr.New(mqerr.NotFound, "the recall handle is not of a message of topic %s", t.Name)
	}
	if err != nil {
		then(nil, err)
		return
	}
	out := &brokerapi.RecallRequest{
		Head:  brokerapi.Head{Deadline: s.deadline(c)},
		Topic: h.Topic, Ref: h.Ref, DeliverAt: h.DeliverAt,
	}
	var found *brokerapi.RecallReply
	s.steadily(c, h.Shard, func(home home, done func(error)) {
		out.Epoch = home.epoch
		home.broker.Recall(out, func(reply *brokerapi.RecallReply, err error) {
			found = reply
			done(err)
		})
	}, func(err error) { then(found, err) })
}
