package server

import (
	"context"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// place is where a queue is that a client named.
type place struct {
	topic *route.Topic
	shard brokerapi.ShardID
	queue brokerapi.QueueID
}

// placeOf finds a queue as QueryRoute named it: by topic, broker and number. A topic is not made on the
// way: who names a queue has seen a route. The broker may be left out where there is only one.
func (s *Server) placeOf(rpc RPC, q *wire.MessageQueue) (place, refusal) {
	routes := s.o.Routes.Load()
	t := routes.Topic(q.Topic.Name)
	switch {
	case t == nil:
		return place{}, s.outcome(rpc, mqerr.New(mqerr.TopicNotFound, "topic %s does not exist", q.Topic.Name))
	case len(t.Placements) == 0:
		return place{}, refuse(rmqv2.Code_FORBIDDEN, "topic "+t.Name+" has no queue")
	case isBlank(q.Broker) && len(t.Placements) > 1:
		return place{}, refuse(rmqv2.Code_BAD_REQUEST, "the queue has no broker name: topic "+t.Name+" is on more than one, name that of the route")
	}
	for _, p := range t.Placements {
		if name := brokerName(routes, p.Shard); !isBlank(q.Broker) && name != string(q.Broker) {
			continue
		}
		if q.ID < 0 || q.ID >= p.Queues {
			return place{}, refuse(rmqv2.Code_NOT_FOUND, mqerr.New(mqerr.NotFound, "topic %s has no queue %d at broker %s, only 0 to %d", t.Name, q.ID, brokerName(routes, p.Shard), p.Queues-1).Error())
		}
		return place{t, p.Shard, brokerapi.QueueID(q.ID)}, refusal{}
	}
	return place{}, refuse(rmqv2.Code_NOT_FOUND, "topic "+t.Name+" has no queue at broker "+string(q.Broker)+": ask for the route again")
}

// asking is a call about one queue. The broker is asked on a goroutine of its own, which a transport's
// must not wait for.
func (s *Server) asking(c call.Unary, rpc RPC, at place, f func(context.Context, brokerapi.Broker) ([]byte, error)) {
	go func() {
		ctx, cancel := context.WithDeadline(c.Context(), s.deadline(c))
		defer cancel()
		var reply []byte
		err := s.asked(ctx, at.shard, func(b brokerapi.Broker) (err error) {
			reply, err = f(ctx, b)
			return err
		})
		if err != nil {
			reject(c, s.outcome(rpc, err))
			return
		}
		c.Reply(reply)
	}()
}

// UpdateOffset stores how far a group has read a queue.
func (s *Server) UpdateOffset(c call.Unary) {
	client, no := clientID(c)
	if no.given() {
		reject(c, no)
		return
	}
	q := &wire.UpdateOffsetRequest{}
	if err := q.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	s.o.Clients.Heard(client, s.o.Now())
	at, no := place{}, checkTopic(q.Queue.Topic.Name)
	if !no.given() {
		no = checkGroup(q.Group.Name)
	}
	if !no.given() {
		no = checkOffset(q.Offset)
	}
	if !no.given() {
		at, no = s.placeOf(RPCUpdateOffset, &q.Queue)
	}
	if no.given() {
		reject(c, no)
		return
	}
	update := func(g *route.Group, err error) {
		if err != nil {
			reject(c, s.outcome(RPCUpdateOffset, err))
			return
		}
		s.asking(c, RPCUpdateOffset, at, func(ctx context.Context, b brokerapi.Broker) ([]byte, error) {
			_, err := b.SetOffsets(ctx, &brokerapi.SetOffsetsRequest{Offsets: []brokerapi.SetOffset{
				{Topic: at.topic.ID, Group: g.ID, Queue: at.queue, Offset: brokerapi.QueueOffset(q.Offset)},
			}})
			return okReply(0), err
		})
	}
	if g := s.o.Routes.Load().Group(q.Group.Name); g != nil {
		update(g, nil)
		return
	}
	s.groupMissing(c, string(q.Group.Name), update)
}

// GetOffset tells how far a group has read a queue. It makes no group.
func (s *Server) GetOffset(c call.Unary) {
	client, no := clientID(c)
	if no.given() {
		reject(c, no)
		return
	}
	var q wire.GetOffsetRequest
	if err := q.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	s.o.Clients.Heard(client, s.o.Now())
	at, no := place{}, checkTopic(q.Queue.Topic.Name)
	if !no.given() {
		no = checkGroup(q.Group.Name)
	}
	if !no.given() {
		at, no = s.placeOf(RPCGetOffset, &q.Queue)
	}
	g := s.o.Routes.Load().Group(q.Group.Name)
	if !no.given() && g == nil {
		no = s.outcome(RPCGetOffset, mqerr.New(mqerr.GroupNotFound, "consumer group %s does not exist", q.Group.Name))
	}
	if no.given() {
		reject(c, no)
		return
	}
	s.asking(c, RPCGetOffset, at, offsetOf(&brokerapi.OffsetRequest{Of: brokerapi.OffsetOfGroup, Topic: at.topic.ID, Group: g.ID, Queue: at.queue}))
}

// offsetOf asks a broker for an offset and makes the reply.
func offsetOf(req *brokerapi.OffsetRequest) func(context.Context, brokerapi.Broker) ([]byte, error) {
	return func(ctx context.Context, b brokerapi.Broker) ([]byte, error) {
		r, err := b.Offset(ctx, req)
		if err != nil {
			return nil, err
		}
		return wire.AppendOffset(okReply(12), int64(r.Offset)), nil
	}
}

// QueryOffset tells where a queue begins, where it ends, or where the messages of a time begin.
func (s *Server) QueryOffset(c call.Unary) {
	client, no := clientID(c)
	if no.given() {
		reject(c, no)
		return
	}
	var q wire.QueryOffsetRequest
	if err := q.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	s.o.Clients.Heard(client, s.o.Now())
	var req brokerapi.OffsetRequest
	at, no := place{}, checkTopic(q.Queue.Topic.Name)
	if !no.given() {
		no = policyOf(&q, &req)
	}
	if !no.given() {
		at, no = s.placeOf(RPCQueryOffset, &q.Queue)
	}
	if no.given() {
		reject(c, no)
		return
	}
	req.Topic, req.Queue = at.topic.ID, at.queue
	s.asking(c, RPCQueryOffset, at, offsetOf(&req))
}

// policyOf fills in which offset is asked for.
func policyOf(q *wire.QueryOffsetRequest, req *brokerapi.OffsetRequest) refusal {
	switch rmqv2.QueryOffsetPolicy(q.Policy) {
	case rmqv2.QueryOffsetPolicy_BEGINNING:
		req.Of = brokerapi.OffsetBegin
	case rmqv2.QueryOffsetPolicy_END:
		req.Of = brokerapi.OffsetEnd
	case rmqv2.QueryOffsetPolicy_TIMESTAMP:
		ms, ok := q.Time.UnixMillis()
		if !q.Time.Set || !ok {
			return refuse(rmqv2.Code_BAD_REQUEST, "the policy is TIMESTAMP, and the timestamp is missing or no time of the years 1 to 9999")
		}
		if q.Time.Nanos%1e6 != 0 {
			ms++ // store times are whole milliseconds: the first one that is not earlier
		}
		req.Of, req.TimeMS = brokerapi.OffsetAtTime, ms
	default:
		return refuse(rmqv2.Code_BAD_REQUEST, "the offset policy is none of BEGINNING, END and TIMESTAMP")
	}
	return refusal{}
}
