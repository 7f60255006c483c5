package server

import (
	"context"
	"log/slog"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Register begins an incarnation and, if nobody leads the shard, elects a master: this replica is alive, others
// if they were heard from.
func (s *Server) Register(ctx context.Context, r *controllerv1.RegisterRequest) (*controllerv1.RegisterResponse, error) {
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	if err := s.hello(r.GetHello(), true); err != nil {
		return nil, err
	}
	if len(r.GetUuid()) != len(state.UUID{}) {
		return nil, mqerr.New(mqerr.Invalid, "broker group %q: the identity of a data directory has %d bytes, not %d", r.GetShardName(), len(state.UUID{}), len(r.GetUuid()))
	}
	mode, err := commitOf(r.GetCommitMode())
	if err != nil {
		return nil, err
	}
	c := state.Enroll{RegisterReplica: state.RegisterReplica{
		Cluster: r.GetHello().GetClusterId(), Shard: r.GetShardName(), Replica: state.ReplicaID(r.GetReplicaId()), UUID: state.UUID(r.GetUuid()),
		Address: r.GetAddress(), Last: state.Incarnation(r.GetLastIncarnation()), Clean: r.GetClean(), LogEnd: r.GetLogEnd(), MaxEpoch: state.Epoch(r.GetMaxEpoch()),
	}, Damaged: r.GetDamaged(), Learner: r.GetLearner(), MinISR: int(r.GetMinIsr()), Commit: mode}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	done, err := s.o.Node.Apply(c)
	if err != nil {
		return nil, err
	}
	inc := done.Shard.Replica(c.Replica).Incarnation
	s.o.Registry.Registered(done.Shard.ID, c.Replica, inc)
	s.elect(ctx, done.Shard.ID)
	h := s.shard(done.Shard.ID)
	if h == nil {
		return nil, mqerr.New(mqerr.Fenced, "broker group %q was deleted just now", c.Shard)
	}
	resp := &controllerv1.RegisterResponse{Hello: s.ownHello(), Shard: shardProto(h, false), Incarnation: uint64(inc)}
	if h.Master == c.Replica && h.MasterInc == inc {
		resp.Epoch = uint64(h.Epoch)
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "broker registered", slog.String("shard", h.Name), slog.Uint64("replica", uint64(c.Replica)),
		slog.String("address", c.Address), slog.Uint64("incarnation", uint64(inc)), slog.Uint64("leads_epoch", resp.Epoch), slog.Bool("clean", c.Clean))
	return resp, nil
}
