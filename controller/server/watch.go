package server

import (
	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// Watch streams routes to a proxy.
func (s *Server) Watch(r *controllerv1.WatchRequest, stream grpc.ServerStreamingServer[controllerv1.WatchUpdate]) error {
	ctx := stream.Context()
	if err := s.leading(ctx); err != nil {
		return err
	}
	if err := s.hello(r.GetHello(), true); err != nil {
		return err
	}
	w := s.o.Registry.Watch()
	defer w.Close()
	hello := s.ownHello()
	for {
		u, err := w.Next(ctx)
		if err != nil {
			return err
		}
		m := &controllerv1.WatchUpdate{Hello: hello, Definitions: definitionsProto(u), HandleKeys: keyProtos(u.Keys)}
		for _, h := range u.Shards {
			m.Shards = append(m.Shards, shardProto(h.Shard, h.Live))
		}
		if err := stream.Send(m); err != nil {
			return err
		}
		hello = nil
	}
}
