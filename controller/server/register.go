package server

import (
	"context"
	"log/slog"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Register begins an incarnation and, if nobody leads the shard, elects a master.
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
	c := state.RegisterReplica{
		Cluster: r.GetHello().GetClusterId(), Shard: r.GetShardName(), Replica: state.ReplicaID(r.GetReplicaId()), UUID: state.UUID(r.GetUuid()),
		Address: r.GetAddress(), Last: state.Incarnation(r.GetLastIncarnation()), Clean: r.GetClean(), LogEnd: r.GetLogEnd(), MaxEpoch: state.Epoch(r.GetMaxEpoch()),
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	done, err := s.o.Node.Apply(c)
	if err != nil {
		return nil, err
	}
	inc := done.Shard.Replica(c.Replica).Incarnation
	h, err := s.elect(done.Shard, c.Replica)
	if err != nil {
		return nil, err
	}
	resp := &controllerv1.RegisterResponse{Hello: s.ownHello(), Shard: shardProto(h, false), Incarnation: uint64(inc)}
	if h.Master == c.Replica && h.MasterInc == inc {
		resp.Epoch = uint64(h.Epoch)
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "broker registered", slog.String("shard", h.Name), slog.Uint64("replica", uint64(c.Replica)),
		slog.String("address", c.Address), slog.Uint64("incarnation", uint64(inc)), slog.Uint64("leads_epoch", resp.Epoch), slog.Bool("clean", c.Clean))
	return resp, nil
}

// elect gives a shard without a master one, if there is a candidate: the replica that has just
// registered is alive, others if they were heard from.
func (s *Server) elect(h *state.Shard, registered state.ReplicaID) (*state.Shard, error) {
	if h.Master != 0 {
		return h, nil
	}
	winner := h.Candidate(func(id state.ReplicaID) bool {
		return id == registered || s.o.Registry.Alive(h.ID, id)
	})
	if winner == 0 {
		return h, nil
	}
	r, err := s.o.Node.Apply(state.Elect{Shard: h.ID, Epoch: h.Epoch, Winner: winner, Inc: h.Replica(winner).Incarnation})
	if mqerr.Is(err, mqerr.Fenced) { // somebody else was quicker
		s.o.Node.View(func(st *state.State) { h = st.Shard(h.ID) })
		return h, nil
	}
	if err != nil {
		return nil, err
	}
	s.o.Log.Info("master elected", slog.String("shard", r.Shard.Name), slog.Uint64("replica", uint64(winner)), slog.Uint64("epoch", uint64(r.Shard.Epoch)))
	return r.Shard, nil
}
