package server

import (
	"context"
	"time"

	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/registry"
	"github.com/perigee-mq/perigee/controller/state"
)

// Watch streams routes to a proxy, whether this node leads or not, and to a controller that follows this
// one while it leads.
func (s *Server) Watch(r *controllerv1.WatchRequest, stream grpc.ServerStreamingServer[controllerv1.WatchUpdate]) error {
	ctx := stream.Context()
	if err := s.hello(r.GetHello(), true); err != nil {
		return err
	}
	w := s.o.Registry.Watch(registry.Viewer{
		Address: r.GetAddress(), HTTP: r.GetHttpAddress(), Release: r.GetHello().GetRelease(), Controller: r.GetController() != "",
		SeenVersion: state.Version(r.GetSeenVersion()), SeenIndex: state.Version(r.GetSeenIndex()),
	})
	defer w.Close()
	u, err := s.first(ctx, w)
	hello := s.ownHello()
	for ; err == nil; u, err = w.Next(ctx) {
		m := &controllerv1.WatchUpdate{Hello: hello, Definitions: definitionsProto(u), HandleKeys: keyProtos(u.Keys), Index: uint64(u.Index)}
		for _, h := range u.Shards {
			m.Shards = append(m.Shards, shardProto(h.Shard, h.Live))
		}
		if err := stream.Send(m); err != nil {
			return err
		}
		hello = nil
	}
	return err
}

// first is the first update. A node that can't tell in time says why, so that another one is asked.
func (s *Server) first(ctx context.Context, w *registry.Watcher) (registry.Update, error) {
	short, cancel := context.WithTimeout(ctx, firstUpdate)
	defer cancel()
	begun := time.Now()
	u, err := w.Next(short)
	if err != nil && ctx.Err() == nil && time.Since(begun) >= firstUpdate {
		err = w.Behind()
	}
	return u, err
}
