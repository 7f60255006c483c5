package server

import (
	"context"
	"log/slog"
	"slices"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/election"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// leastCopies are what a broker group needs before anything is acknowledged as soon as it has more, unless somebody has
// chosen another number: one replica may go, and what is acknowledged meanwhile has two copies.
const leastCopies = 2

// AlterSyncStateSet lets the state machine judge a master's proposal. Only its verdict is a verdict: whatever
// else goes wrong is an error, which says nothing.
func (s *Server) AlterSyncStateSet(ctx context.Context, r *controllerv1.AlterSyncStateSetRequest) (*controllerv1.AlterSyncStateSetResponse, error) {
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	if err := s.hello(r.GetHello(), true); err != nil {
		return nil, err
	}
	member := func(m *controllerv1.SetMember) state.Member {
		return state.Member{ID: state.ReplicaID(m.GetId()), Inc: state.Incarnation(m.GetIncarnation())}
	}
	c := state.AlterS{Shard: state.ShardID(r.GetShard()), Epoch: state.Epoch(r.GetEpoch()), Master: member(r.GetMaster()), SetVersion: r.GetSetVersion(), Least: leastCopies}
	if n := len(r.GetSet()); n > state.ReplicasMax {
		return nil, mqerr.New(mqerr.Invalid, "a SyncStateSet of %d replicas, at most %d are possible", n, state.ReplicasMax)
	}
	for _, m := range r.GetSet() {
		c.Set = append(c.Set, member(m))
	}
	done, err := s.o.Node.Apply(c)
	if done.Version == 0 {
		if err != nil && !mqerr.Is(err, mqerr.NotLeader) {
			return nil, mqerr.New(mqerr.UnknownOutcome, "it is not known what becomes of this proposal: %w", err)
		}
		return nil, err
	}
	resp := &controllerv1.AlterSyncStateSetResponse{Accepted: err == nil}
	if err != nil {
		resp.Refusal = err.Error()
	}
	if h := s.shard(c.Shard); h != nil {
		resp.Shard = shardProto(h, false)
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "SyncStateSet proposed", slog.Uint64("shard", uint64(c.Shard)), slog.Uint64("epoch", uint64(c.Epoch)), slog.Any("set", c.Set), slog.String("refusal", resp.GetRefusal()))
	return resp, nil
}

func (s *Server) shard(id state.ShardID) (h *state.Shard) {
	s.o.Node.View(func(st *state.State) { h = st.Shard(id) })
	return h
}

// named finds a broker group.
func (s *Server) named(name string) (h *state.Shard, err error) {
	s.o.Node.View(func(st *state.State) { h = st.ShardNamed(name) })
	if h == nil {
		return nil, mqerr.New(mqerr.NotFound, "there is no broker group %q: perigee cluster status lists them", name)
	}
	return h, nil
}

// Elect gives a shard another master, and waits until there is one.
func (s *Server) Elect(ctx context.Context, r *controllerv1.ElectRequest) (*controllerv1.ElectResponse, error) {
	ctx, cancel := answerBy(ctx)
	defer cancel()
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	h, err := s.named(r.GetShardName())
	if err != nil {
		return nil, err
	}
	to := state.ReplicaID(r.GetTo())
	if to != 0 && h.Replica(to) == nil {
		return nil, mqerr.New(mqerr.NotFound, "broker group %q has no replica %d", h.Name, to)
	}
	if r.GetUnclean() {
		return s.electUnclean(ctx, h, to, r)
	}
	if to != 0 && to == h.Master {
		return &controllerv1.ElectResponse{Shard: s.shardNow(h)}, s.sure(ctx)
	}
	switch {
	case to != 0 && !slices.Contains(h.Set, to) && !slices.Contains(h.ELR, to):
		return nil, mqerr.New(mqerr.Invalid, "replica %d of broker group %q may miss acknowledged messages: wait until it is in sync; only --unclean elects it as it is, and what it misses is lost", to, h.Name)
	case h.Master != 0 && !s.o.Registry.Heir(h.ID, to), to != 0 && !s.o.Registry.Present(h.ID, to):
		return nil, mqerr.New(mqerr.Unavailable, "broker group %q: no other replica that could be the master is heard from", h.Name)
	}
	now, err := s.o.Registry.Transfer(ctx, h.ID, h.Epoch, to)
	if err != nil {
		return nil, mqerr.New(mqerr.Unavailable, "broker group %q has no other master yet (%w): ask again", h.Name, err)
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "master changed on demand", slog.String("shard", h.Name), slog.Uint64("replica", uint64(now.Master)), slog.String("principal", r.GetPrincipal()))
	if to != 0 && now.Master != to {
		return nil, mqerr.New(mqerr.Unavailable, "broker group %q: replica %d is the master now, as replica %d went away", h.Name, now.Master, to)
	}
	return &controllerv1.ElectResponse{Shard: s.shardNow(now), Changed: true}, nil
}

// electUnclean carries out an operator's decision to lose what the new master misses.
func (s *Server) electUnclean(ctx context.Context, h *state.Shard, to state.ReplicaID, r *controllerv1.ElectRequest) (*controllerv1.ElectResponse, error) {
	if to == 0 || r.GetToken() == "" {
		return nil, mqerr.New(mqerr.Invalid, "an election that may lose messages names the replica, and the decision")
	}
	if h.Loss != nil && h.Loss.Token == r.GetToken() {
		return &controllerv1.ElectResponse{Shard: s.shardNow(h)}, s.sure(ctx)
	}
	for _, id := range slices.Concat(h.Set, h.ELR) {
		if s.o.Registry.Present(h.ID, id) {
			return nil, mqerr.New(mqerr.Invalid, "broker group %q: replica %d has every acknowledged message and is heard from: elect that one, or stop it if its data is of no use", h.Name, id)
		}
	}
	if !s.o.Registry.Present(h.ID, to) {
		return nil, mqerr.New(mqerr.Unavailable, "broker group %q: replica %d is not heard from: start it first", h.Name, to)
	}
	if h.Master != 0 { // its lease may last, though nobody hears from it
		if err := s.o.Registry.AwaitFree(ctx, h.ID); err != nil {
			return nil, mqerr.New(mqerr.Unavailable, "broker group %q: the lease of replica %d is not over yet: ask again", h.Name, h.Master)
		}
	}
	free, err := s.electing(ctx, h.ID)
	if err != nil {
		return nil, err
	}
	defer free()
	done, err := s.o.Node.Apply(state.UncleanElect{Shard: h.ID, Epoch: h.Epoch, Winner: to, Inc: h.Replica(to).Incarnation, Token: r.GetToken()})
	if err != nil {
		return nil, err
	}
	if done.Changed {
		s.o.Registry.Counted(election.Unclean)
	}
	s.o.Log.LogAttrs(ctx, slog.LevelError, "unclean election: acknowledged messages that the new master misses are lost; this was an operator's decision",
		slog.String("shard", h.Name), slog.Uint64("replica", uint64(to)), slog.Uint64("epoch", uint64(done.Shard.Epoch)), slog.Uint64("data_losses", done.Shard.DataLoss), slog.String("principal", r.GetPrincipal()))
	return &controllerv1.ElectResponse{Shard: s.shardNow(done.Shard), Changed: done.Changed}, nil
}

// SetShard changes what operators decide of a shard.
func (s *Server) SetShard(ctx context.Context, r *controllerv1.SetShardRequest) (*controllerv1.SetShardResponse, error) {
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	h, err := s.named(r.GetShardName())
	if err != nil {
		return nil, err
	}
	c := state.SetShard{Shard: h.ID}
	if r.MinIsr != nil {
		c.MinISR = new(int(r.GetMinIsr()))
	}
	if r.GetCommitMode() != controllerv1.CommitMode_COMMIT_MODE_UNSPECIFIED {
		mode, err := commitOf(r.GetCommitMode())
		if err != nil {
			return nil, err
		}
		c.Commit = &mode
	}
	done, err := s.o.Node.Apply(c)
	if err != nil {
		return nil, err
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "broker group changed", slog.String("shard", h.Name), slog.Int("min_isr", done.Shard.MinISR), slog.String("commit_mode", done.Shard.Commit.String()), slog.String("principal", r.GetPrincipal()))
	return &controllerv1.SetShardResponse{Shard: s.shardNow(done.Shard), Changed: done.Changed}, nil
}

// RemoveReplica forgets a replica for good.
func (s *Server) RemoveReplica(ctx context.Context, r *controllerv1.RemoveReplicaRequest) (*controllerv1.RemoveReplicaResponse, error) {
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	h, err := s.named(r.GetShardName())
	if err != nil {
		return nil, err
	}
	c := state.RemoveReplica{Shard: h.ID, Replica: state.ReplicaID(r.GetReplicaId())}
	if x := h.Replica(c.Replica); x != nil {
		c.Inc = x.Incarnation
	}
	done, err := s.o.Node.Apply(c)
	if err != nil {
		return nil, err
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "replica removed", slog.String("shard", h.Name), slog.Uint64("replica", uint64(c.Replica)), slog.String("principal", r.GetPrincipal()))
	return &controllerv1.RemoveReplicaResponse{Shard: s.shardNow(done.Shard)}, nil
}

// DeleteShard deletes a shard for good.
func (s *Server) DeleteShard(ctx context.Context, r *controllerv1.DeleteShardRequest) (*controllerv1.DeleteShardResponse, error) {
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	h, err := s.named(r.GetShardName())
	if err != nil {
		return nil, err
	}
	if _, err := s.o.Node.Apply(state.DeleteShard{Shard: h.ID}); err != nil {
		return nil, err
	}
	s.locks.Delete(h.ID)
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "broker group deleted", slog.String("shard", h.Name), slog.String("principal", r.GetPrincipal()))
	return &controllerv1.DeleteShardResponse{}, nil
}

// shardNow is a shard with what this node knows of it besides the state.
func (s *Server) shardNow(h *state.Shard) *controllerv1.Shard {
	p := shardProto(h, s.o.Registry.Live(h.ID))
	soft, ok := s.o.Registry.Soft(h.ID)
	if !ok {
		return p
	}
	p.Stuck = soft.Stuck
	if soft.Leased && h.Master != 0 {
		p.LeaseAgeMs = new(max(0, soft.LeaseAge.Milliseconds()))
	}
	for _, r := range p.GetReplicas() {
		if t, ok := soft.Reports[state.ReplicaID(r.GetId())]; ok {
			r.Report = &controllerv1.ReplicaReport{
				AgeMs: max(0, t.Age.Milliseconds()), WrittenEnd: t.Written, DurableEnd: t.Durable, Confirm: t.Commit, FlushP99Us: t.FlushP99, DiskUsedPermille: t.DiskUsed,
				HttpAddress: t.HTTP, Release: t.Release,
			}
		}
	}
	return p
}
