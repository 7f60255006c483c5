package server

import (
	"context"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// goodbyeTime is how long brokers have to hear that a client leaves. What they miss ends by itself,
// a minute after the client's last sign of life.
const goodbyeTime = time.Second

// NotifyClientTermination forgets a client and ends its sessions at every broker: it may have used
// some of them through other proxies. Whoever is not known may leave as well.
func (s *Server) NotifyClientTermination(c call.Unary) {
	client, no := clientID(c)
	if no.given() {
		reject(c, no)
		return
	}
	var q wire.NotifyClientTerminationRequest
	if err := q.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	settings, known := s.o.Clients.Settings(client)
	producer := known && settings.Type == clients.Producer
	if known && !producer {
		if no := checkGroup(q.Group.Name); no.given() {
			reject(c, no)
			return
		}
	}
	s.o.Clients.Drop(client)
	s.lites.drop(client)
	if producer {
		c.Reply(okReply(0))
		return
	}
	go func() { // waits for brokers, which a transport's goroutine must not
		ctx, cancel := context.WithTimeout(context.Background(), goodbyeTime)
		defer cancel()
		clients.Goodbye(ctx, s.o.Brokers, s.shards(), client)
		c.Reply(okReply(0))
	}()
}

// shards lists all shards.
func (s *Server) shards() []brokerapi.ShardID {
	all := s.o.Routes.Load().Shards()
	ids := make([]brokerapi.ShardID, len(all))
	for i, sh := range all {
		ids[i] = sh.ID
	}
	return ids
}
