package server

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/clients"
)

// LiteGone fetches the ended lite subscriptions that a broker has for this proxy, and tells the clients. It
// waits for the broker, and asks again until ctx ends: the broker says only once that there are some. What is
// missed for good the client learns when it synchronises the next time.
func (s *Server) LiteGone(ctx context.Context, shard brokerapi.ShardID) {
	for {
		reply, err := s.liteGone(ctx, shard)
		if err != nil {
			s.o.Log.LogAttrs(ctx, slog.LevelDebug, "ended lite subscriptions not fetched", slog.Uint64("shard", uint64(shard)), slog.Any("error", err))
			select {
			case <-ctx.Done():
				return
			case <-time.After(liteGonePause):
			}
			continue
		}
		if len(reply.Gone) == 0 {
			return
		}
		for i := range reply.Gone {
			s.lites.gone(&reply.Gone[i])
			s.tellGone(&reply.Gone[i])
		}
	}
}

// liteGonePause is how long to wait after a failure.
const liteGonePause = time.Second

func (s *Server) liteGone(ctx context.Context, shard brokerapi.ShardID) (*brokerapi.LiteGoneReply, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Limits.BrokerTimeout)
	defer cancel()
	h, err := s.shard(shard)
	if err != nil {
		return nil, err
	}
	return h.broker.LiteGone(ctx, &brokerapi.LiteGoneRequest{})
}

// tellGone sends the command to a lite client; others would not survive it.
func (s *Server) tellGone(g *brokerapi.LiteGone) {
	settings, ok := s.o.Clients.Settings(g.Client)
	if !ok || settings.Type != clients.LitePush && settings.Type != clients.LiteSimple {
		return
	}
	msg, err := proto.Marshal(&rmqv2.TelemetryCommand{Command: &rmqv2.TelemetryCommand_NotifyUnsubscribeLiteCommand{
		NotifyUnsubscribeLiteCommand: &rmqv2.NotifyUnsubscribeLiteCommand{LiteTopic: g.Name},
	}})
	if err != nil {
		return
	}
	for _, stream := range s.o.Clients.Streams(g.Client) {
		if stream.Send(msg) == nil {
			return
		}
	}
}
