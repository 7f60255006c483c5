package server

import (
	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// QueryRoute returns the queues of a topic, all of them at the address that the client has used, so
// that it opens no second connection. Shards without a master stay in the route.
func (s *Server) QueryRoute(c call.Unary) {
	if _, r := clientID(c); r.given() {
		reject(c, r)
		return
	}
	var q wire.QueryRouteRequest
	if err := q.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	if r := checkTopic(q.Topic.Name); r.given() {
		reject(c, r)
		return
	}
	endpoints, r := s.endpoints(c, &q.Endpoints)
	if r.given() {
		reject(c, r)
		return
	}
	routes := s.o.Routes.Load()
	if t := routes.Topic(q.Topic.Name); t != nil {
		c.Reply(routeReply(routes, t, q.Topic.Bytes(), endpoints))
		return
	}
	topic := q.Topic // the request's bytes live until the call is completed
	s.topicMissing(c, string(topic.Name), func(routes *route.Snapshot, t *route.Topic, err error) {
		if err != nil {
			reject(c, s.outcome(RPCQueryRoute, err))
			return
		}
		c.Reply(routeReply(routes, t, topic.Bytes(), endpoints))
	})
}

func routeReply(routes *route.Snapshot, t *route.Topic, topic, endpoints []byte) []byte {
	q := wire.Queue{
		Topic: topic, Permission: int32(rmqv2.Permission_READ_WRITE), Endpoints: endpoints, Accepts: t.Type.Advertised(),
	}
	dst := okReply(t.Queues * (len(topic) + len(endpoints) + 48))
	for _, p := range t.Placements {
		q.Broker = brokerName(routes, p.Shard)
		for id := range p.Queues {
			q.ID = id
			dst = wire.AppendRouteQueue(dst, &q)
		}
	}
	return dst
}
