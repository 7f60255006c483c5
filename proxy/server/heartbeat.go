package server

import (
	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// Heartbeat notes that a client lives. It works for one whose settings are not known, since clients
// do not send them again when a proxy starts anew, and only OK ends their avoidance of it.
func (s *Server) Heartbeat(c call.Unary) {
	client, no := clientID(c)
	if no.given() {
		reject(c, no)
		return
	}
	var q wire.HeartbeatRequest
	if err := q.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	if s.typeOf(client, &q) == clients.Producer {
		s.o.Clients.Beat(client, false, s.o.Now())
		c.Reply(okReply(0))
		return
	}
	if no := checkGroup(q.Group.Name); no.given() {
		reject(c, no)
		return
	}
	alive := func() {
		s.o.Clients.Beat(client, true, s.o.Now())
		c.Reply(okReply(0))
	}
	if s.o.Routes.Load().Group(q.Group.Name) != nil {
		alive()
		return
	}
	s.groupMissing(c, string(q.Group.Name), func(_ *route.Group, err error) {
		if err != nil {
			reject(c, s.outcome(RPCHeartbeat, err))
			return
		}
		alive()
	})
}

// typeOf is what a client's settings say it is, else what its heartbeat says: Go's push consumers call
// themselves simple ones there.
func (s *Server) typeOf(client string, q *wire.HeartbeatRequest) clients.Type {
	if settings, ok := s.o.Clients.Settings(client); ok {
		return settings.Type
	}
	if q.ClientType == int32(rmqv2.ClientType_PRODUCER) {
		return clients.Producer
	}
	return clients.Unknown
}
