package server

import (
	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// QueryAssignment says where a group's clients should receive: from every broker group, all of them
// the same. The bytes stay the same as long as the topic does, since clients take down their
// receiving on any difference. A client that pulls is told every queue by its number: which client reads
// which is theirs to agree on, since a pull leases nothing.
func (s *Server) QueryAssignment(c call.Unary) {
	client, r := clientID(c)
	if r.given() {
		reject(c, r)
		return
	}
	var q wire.QueryAssignmentRequest
	if err := q.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	r = checkTopic(q.Topic.Name)
	if !r.given() {
		r = checkGroup(q.Group.Name)
	}
	if r.given() {
		reject(c, r)
		return
	}
	endpoints, r := s.endpoints(c, &q.Endpoints)
	if r.given() {
		reject(c, r)
		return
	}
	settings, _ := s.o.Clients.Settings(client)
	pulls := settings.Type == clients.PullConsumer
	routes := s.o.Routes.Load()
	if t := routes.Topic(q.Topic.Name); t != nil {
		c.Reply(assignmentReply(routes, t, &q, endpoints, pulls))
		return
	}
	held := q // the request's bytes live until the call is completed
	s.topicMissing(c, string(held.Topic.Name), func(routes *route.Snapshot, t *route.Topic, err error) {
		if err != nil {
			reject(c, s.outcome(RPCQueryAssignment, err))
			return
		}
		c.Reply(assignmentReply(routes, t, &held, endpoints, pulls))
	})
}

// assignmentReply has one assignment per broker group with queue -1, for any queue; an ordered group
// or a client that pulls gets one per queue. A group that does not exist counts as a plain one.
func assignmentReply(routes *route.Snapshot, t *route.Topic, req *wire.QueryAssignmentRequest, endpoints []byte, pulls bool) []byte {
	q := wire.Queue{Topic: req.Topic.Bytes(), Permission: int32(rmqv2.Permission_READ_WRITE), Endpoints: endpoints}
	group := routes.Group(req.Group.Name)
	dst := okReply(len(t.Placements) * (len(q.Topic) + len(endpoints) + 48))
	for _, p := range t.Placements {
		q.Broker = brokerName(routes, p.Shard)
		if !pulls && (group == nil || !group.Ordered) {
			q.ID = int32(brokerapi.AnyQueue)
			dst = wire.AppendAssignment(dst, &q)
			continue
		}
		for id := range p.Queues {
			q.ID = id
			dst = wire.AppendAssignment(dst, &q)
		}
	}
	return dst
}

// brokerName is the public name of a shard. A placement may be known a moment before its shard.
func brokerName(routes *route.Snapshot, id brokerapi.ShardID) string {
	if sh := routes.Shard(id); sh != nil {
		return sh.Name
	}
	return ""
}
