package server

import (
	"cmp"
	"context"
	"slices"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/registry"
	"github.com/perigee-mq/perigee/controller/state"
)

// Status tells what this node knows, whether it leads or not, broker groups by name.
func (s *Server) Status(context.Context, *controllerv1.StatusRequest) (*controllerv1.StatusResponse, error) {
	resp := &controllerv1.StatusResponse{Leader: s.o.Node.Leader()}
	s.o.Node.View(func(st *state.State) {
		topics, groups, _ := st.Len()
		resp.ClusterId, resp.Topics, resp.Groups, resp.Version = st.Cluster(), uint32(topics), uint32(groups), uint64(st.Definitions())
	})
	shards := s.o.Registry.Shards()
	slices.SortFunc(shards, func(a, b registry.ShardView) int { return cmp.Compare(a.Name, b.Name) })
	for _, h := range shards {
		resp.Shards = append(resp.Shards, s.shardNow(h.Shard))
		if h.Live {
			resp.LiveShards = append(resp.LiveShards, uint32(h.ID))
		}
	}
	return resp, nil
}
