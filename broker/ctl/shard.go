package ctl

import (
	"context"
	"slices"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/store/record"
)

// ShardView is the broker group as the controller shows it.
type ShardView struct {
	View     quorum.View
	Mode     quorum.Mode
	Master   string                    // where the master is reached, host:port; empty: there is none
	Addrs    map[quorum.Replica]string // of all replicas
	Learners []quorum.Replica          // those that never count, by number
	// HandOver says to the master that another replica is to be it: drain and resign.
	HandOver bool
}

func shardOf(h *controllerv1.Shard, handOver bool) ShardView {
	g := ShardView{
		View: quorum.View{
			Epoch: record.Epoch(h.GetEpoch()), Version: h.GetSetVersion(), MinISR: int(h.GetMinIsr()),
			Master: quorum.Member{Replica: quorum.Replica(h.GetMaster()), Inc: quorum.Incarnation(h.GetMasterIncarnation())},
		},
		Addrs: map[quorum.Replica]string{}, HandOver: handOver,
	}
	if h.GetCommitMode() == controllerv1.CommitMode_COMMIT_MODE_MEMORY {
		g.Mode = quorum.Memory
	}
	for _, r := range h.GetReplicas() {
		m := quorum.Member{Replica: quorum.Replica(r.GetId()), Inc: quorum.Incarnation(r.GetIncarnation())}
		g.View.Replicas = append(g.View.Replicas, m)
		g.Addrs[m.Replica] = r.GetAddress()
		if slices.Contains(h.GetSyncStateSet(), r.GetId()) {
			g.View.Set = append(g.View.Set, m)
		}
		if r.GetLearner() {
			g.Learners = append(g.Learners, m.Replica)
		}
	}
	g.Master = g.Addrs[g.View.Master.Replica]
	return g
}

// Alter sends a master's proposal. Done and Refused are the verdict of the controller's state machine, and come
// with its state right after that, or later; anything else is Unknown, with the reason: the proposal may be
// carried out yet.
func (c *Client) Alter(ctx context.Context, shard uint32, hello *controllerv1.Hello, p quorum.Proposal) (quorum.Outcome, ShardView, error) {
	member := func(m quorum.Member) *controllerv1.SetMember {
		return &controllerv1.SetMember{Id: uint32(m.Replica), Incarnation: uint64(m.Inc)}
	}
	req := &controllerv1.AlterSyncStateSetRequest{Hello: hello, Shard: shard, Epoch: uint64(p.Epoch), Master: member(p.Master), SetVersion: p.Version}
	for _, m := range p.Set {
		req.Set = append(req.Set, member(m))
	}
	resp, err := c.shards.AlterSyncStateSet(ctx, req)
	switch {
	case err != nil:
		return quorum.Unknown, ShardView{}, rpc.FromStatus(err)
	case resp.GetShard() == nil:
		return quorum.Unknown, ShardView{}, mqerr.New(mqerr.NotFound, "broker group %d does not exist any more: %s", shard, resp.GetRefusal())
	case resp.GetAccepted():
		return quorum.Done, shardOf(resp.GetShard(), false), nil
	}
	return quorum.Refused, shardOf(resp.GetShard(), false), nil
}
