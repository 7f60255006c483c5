package simtest

import (
	"context"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// seen is what the observer knows of the cluster.
type seen struct {
	leader string // of the controllers
	shard  *controllerv1.Shard
}

// ask asks the controllers what is.
func (s *sim) ask(ctx context.Context) (*seen, *controllerv1.StatusResponse) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	st, err := controllerv1.NewControllerServiceClient(s.observer).Status(ctx, &controllerv1.StatusRequest{})
	if err != nil || len(st.GetShards()) == 0 {
		return nil, st
	}
	now := &seen{leader: st.GetLeader(), shard: st.GetShards()[0]}
	s.last.Store(now)
	return now, st
}

// leader is the controller that leads as far as is known.
func (s *sim) leader() *process {
	if now := s.last.Load(); now != nil {
		for _, c := range s.controllers {
			if c.name == now.leader {
				return c
			}
		}
	}
	return s.controllers[0]
}

// master is the replica that leads as far as is known.
func (s *sim) master() *process {
	if now := s.last.Load(); now != nil && now.shard.GetMaster() != 0 {
		return s.brokers[now.shard.GetMaster()-1]
	}
	return nil
}

// replica is one that does not lead as far as is known, and runs if there is such a one.
func (s *sim) replica() *process {
	m := s.master()
	var out *process
	for _, i := range s.rng.Perm(len(s.brokers)) {
		if p := s.brokers[i]; p != m && (out == nil || p.up()) {
			out = p
		}
	}
	return out
}

// whole tells whether all replicas are in sync under a master.
func (n *seen) whole(replicas int) bool {
	return n != nil && n.shard.GetMaster() != 0 && len(n.shard.GetSyncStateSet()) == replicas
}

// await looks again and again until something is, at most for a time.
func (s *sim) await(d time.Duration, is func(*seen) bool) bool {
	for end := time.Now().Add(d); ; {
		if now, _ := s.ask(context.Background()); is(now) {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// forget takes a replica that has lost its disk out of its group, as an operator does. The caller has the turn.
func (s *sim) forget(p *process) {
	rpc := controllerv1.NewShardServiceClient(s.observer)
	var err error
	s.free(func() {
		for range 200 {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			_, err = rpc.RemoveReplica(ctx, &controllerv1.RemoveReplicaRequest{ShardName: "a", ReplicaId: s.disks[p].id})
			cancel()
			if err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	if err != nil {
		s.fail("replica %s could not be removed: %v", p.name, err)
	}
}

// hand makes another replica the master, as an operator does, and does not wait for it.
func (s *sim) hand(to *process) {
	s.besides.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		defer cancel()
		began := boot()
		resp, err := controllerv1.NewShardServiceClient(s.observer).Elect(ctx, &controllerv1.ElectRequest{ShardName: "a", To: s.disks[to].id})
		if err == nil {
			s.reg.add(began, call{shard: resp.GetShard().GetId()}, said{known: true, reg: registerOf(resp.GetShard())})
		}
	})
}
