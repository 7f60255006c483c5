package controller

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// member is a replica of group "a" as the controller sees it: it can follow, and beats often.
type member struct {
	t       *testing.T
	r       *running
	id      uint32
	end     int64
	request *controllerv1.RegisterRequest
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex // guards the rest
	stream   grpc.BidiStreamingClient[controllerv1.BrokerHeartbeat, controllerv1.BrokerUpdate]
	inc      uint64
	epoch    uint64 // that it leads
	number   uint64
	resigns  bool
	shard    *controllerv1.Shard
	handOver bool
	leases   int // in the epoch that it leads
}

// join registers a replica and opens its session.
func join(t *testing.T, r *running, id uint32, end int64) *member {
	t.Helper()
	m := &member{t: t, r: r, id: id, end: end, request: &controllerv1.RegisterRequest{
		Hello: hello(), ShardName: "a", ReplicaId: id, Uuid: append(make([]byte, 15), byte(id)), Address: "127.0.0.1:1",
	}}
	m.start()
	t.Cleanup(m.crash)
	return m
}

func (m *member) start() {
	m.t.Helper()
	resp, err := m.r.client.Register(m.r.ctx(), m.request)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := m.r.client.BrokerSession(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	m.mu.Lock()
	m.cancel, m.stream, m.inc, m.epoch, m.shard, m.leases = cancel, stream, resp.GetIncarnation(), resp.GetEpoch(), resp.GetShard(), 0
	m.request.Hello.ClusterId, m.request.LastIncarnation = resp.GetHello().GetClusterId(), m.inc
	m.mu.Unlock()
	m.beat()
	m.wg.Go(m.read)
	m.wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				m.beat()
			case <-ctx.Done():
				return
			}
		}
	})
}

func (m *member) beat() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.number++
	_ = m.stream.Send(&controllerv1.BrokerHeartbeat{ // Recv tells the cause
		Hello: hello(), Shard: m.shard.GetId(), ReplicaId: m.id, Incarnation: m.inc, Epoch: m.epoch, Number: m.number, Resigning: m.resigns, Follows: true,
		Report: &controllerv1.ReplicaReport{WrittenEnd: m.end, DurableEnd: m.end},
	})
}

func (m *member) read() {
	for {
		u, err := m.stream.Recv()
		if err != nil {
			return
		}
		m.mu.Lock()
		if h := u.GetShard(); h != nil {
			m.shard, m.handOver = h, u.GetHandOver()
			epoch := uint64(0)
			if h.GetMaster() == m.id && h.GetMasterIncarnation() == m.inc {
				epoch = h.GetEpoch()
			}
			if epoch != m.epoch {
				m.epoch, m.leases = epoch, 0
			}
		}
		if l := u.GetLease(); l != nil && l.GetEpoch() == m.epoch {
			m.leases++
		}
		m.mu.Unlock()
	}
}

// crash ends the process without a word.
func (m *member) crash() {
	m.cancel()
	m.wg.Wait()
}

// wait waits until what the replica knows fits.
func (m *member) wait(what string, fits func() bool) time.Duration {
	m.t.Helper()
	began := time.Now()
	for limit := began.Add(patience); ; {
		m.mu.Lock()
		ok := fits()
		m.mu.Unlock()
		if ok {
			return time.Since(began)
		}
		if time.Now().After(limit) {
			m.t.Fatalf("replica %d, never: %s; it knows %v", m.id, what, m.shard)
		}
		time.Sleep(time.Millisecond)
	}
}

func (m *member) leads() time.Duration {
	m.t.Helper()
	return m.wait("it leads, with a lease", func() bool { return m.epoch != 0 && m.leases > 0 })
}

// now is what the replica knows, and the epoch that it leads.
func (m *member) now() (*controllerv1.Shard, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shard, m.epoch
}

func shards(r *running) controllerv1.ShardServiceClient {
	return controllerv1.NewShardServiceClient(r.cc)
}

// alter proposes a set in the name of the master.
func (m *member) alter(version uint64, set ...*member) *controllerv1.AlterSyncStateSetResponse {
	m.t.Helper()
	h, epoch := m.now()
	req := &controllerv1.AlterSyncStateSetRequest{
		Hello: hello(), Shard: h.GetId(), Epoch: epoch, Master: &controllerv1.SetMember{Id: m.id, Incarnation: m.inc}, SetVersion: version,
	}
	for _, x := range set {
		req.Set = append(req.Set, &controllerv1.SetMember{Id: x.id, Incarnation: x.inc})
	}
	resp, err := shards(m.r).AlterSyncStateSet(m.r.ctx(), req)
	if err != nil {
		m.t.Fatal(err)
	}
	return resp
}

// trio is a group of three replicas, led by 1; 1 and 2 have everything, 3 has the longest log.
func trio(t *testing.T, o Options) (r *running, one, two, three *member) {
	o.DataDir, o.Lease = t.TempDir(), 600*time.Millisecond
	r = startWith(t, o)
	one, two, three = join(t, r, 1, 50), join(t, r, 2, 40), join(t, r, 3, 99)
	one.leads()
	h, _ := one.now()
	if resp := one.alter(h.GetSetVersion(), one, two); !resp.GetAccepted() || !slices.Equal(resp.GetShard().GetSyncStateSet(), []uint32{1, 2}) {
		t.Fatalf("%v", resp)
	}
	return r, one, two, three
}

func TestMasterDies(t *testing.T) {
	_, one, two, three := trio(t, Options{})
	if resp := one.alter(1, one, two, three); resp.GetAccepted() || resp.GetRefusal() == "" || resp.GetShard().GetSetVersion() <= 1 {
		t.Errorf("a proposal that is too old: %v", resp)
	}
	two.wait("the set", func() bool { return slices.Equal(two.shard.GetSyncStateSet(), []uint32{1, 2}) })
	_, epoch := one.now()
	one.crash()
	took := two.leads()
	if _, now := two.now(); now != epoch+1 || took < 400*time.Millisecond {
		t.Errorf("epoch %d after %d, within %v", now, epoch, took)
	}
	three.wait("the new master", func() bool {
		return three.shard.GetMaster() == 2 && slices.Equal(three.shard.GetSyncStateSet(), []uint32{2})
	})
	three.wait("a follower has no lease", func() bool { return three.leases == 0 })
	one.start() // it is told that it follows
	one.wait("it follows", func() bool { return one.epoch == 0 && one.shard.GetMaster() == 2 })
}

// A master that leaves, or restarts, is replaced at once; so is one that is gone, with fast fail-over.
func TestMasterLeaves(t *testing.T) {
	for name, test := range map[string]struct {
		o     Options
		leave func(*member)
	}{
		"resigns":       {leave: func(m *member) { m.mu.Lock(); m.resigns = true; m.mu.Unlock(); m.beat() }},
		"fast failover": {o: Options{FastFailover: true}, leave: (*member).crash},
	} {
		t.Run(name, func(t *testing.T) {
			_, one, two, _ := trio(t, test.o)
			test.leave(one)
			if took := two.wait("it leads", func() bool { return two.epoch != 0 }); took > 350*time.Millisecond {
				t.Errorf("after %v, as if a lease was waited for", took)
			}
		})
	}
}

func TestElectOnDemand(t *testing.T) {
	r, one, two, three := trio(t, Options{})
	elect := func(to uint32) (*controllerv1.ElectResponse, error) {
		return shards(r).Elect(r.ctx(), &controllerv1.ElectRequest{ShardName: "a", To: to})
	}
	if _, err := elect(3); !mqerr.Is(rpc.FromStatus(err), mqerr.Invalid) {
		t.Errorf("to one that may miss something: %v", err)
	}
	if _, err := elect(9); !mqerr.Is(rpc.FromStatus(err), mqerr.NotFound) {
		t.Errorf("to nobody: %v", err)
	}
	resp, err := elect(2)
	if err != nil || resp.GetShard().GetMaster() != 2 || !resp.GetChanged() {
		t.Fatalf("%v, %v", resp, err)
	}
	two.leads()
	one.wait("it follows", func() bool { return one.epoch == 0 && !one.handOver })
	if resp, err := elect(2); err != nil || resp.GetChanged() {
		t.Errorf("again: %v, %v", resp, err)
	}
	if _, err := elect(1); !mqerr.Is(rpc.FromStatus(err), mqerr.Invalid) { // it left S with the election
		t.Errorf("back to the old master: %v", err)
	}
	_ = three
}

// A master that is asked to hand over is told, and is replaced as soon as it resigns.
func TestHandOver(t *testing.T) {
	r, one, two, _ := trio(t, Options{})
	done := make(chan error, 1)
	go func() {
		_, err := shards(r).Elect(r.ctx(), &controllerv1.ElectRequest{ShardName: "a"})
		done <- err
	}()
	one.wait("it is to hand over", func() bool { return one.handOver })
	one.mu.Lock()
	one.resigns = true
	one.mu.Unlock()
	two.leads()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestUncleanElection(t *testing.T) {
	r, one, two, three := trio(t, Options{})
	unclean := func(to uint32, token string) (*controllerv1.ElectResponse, error) {
		return shards(r).Elect(r.ctx(), &controllerv1.ElectRequest{ShardName: "a", To: to, Unclean: true, Token: token})
	}
	if _, err := unclean(3, "x"); !mqerr.Is(rpc.FromStatus(err), mqerr.Invalid) {
		t.Errorf("while others have everything: %v", err)
	}
	two.crash()
	one.crash()
	three.wait("the group is stuck", func() bool {
		resp, err := r.client.Status(r.ctx(), &controllerv1.StatusRequest{})
		return err == nil && resp.GetShards()[0].GetStuck()
	})
	if _, err := unclean(3, ""); !mqerr.Is(rpc.FromStatus(err), mqerr.Invalid) {
		t.Errorf("without a decision: %v", err)
	}
	resp, err := unclean(3, "x")
	if err != nil || !resp.GetChanged() || resp.GetShard().GetMaster() != 3 || resp.GetShard().GetDataLosses() != 1 {
		t.Fatalf("%v, %v", resp, err)
	}
	three.leads()
	if resp, err := unclean(3, "x"); err != nil || resp.GetChanged() || resp.GetShard().GetDataLosses() != 1 {
		t.Errorf("the same decision: %v, %v", resp, err)
	}
	if s := r.Stats().Registry; s.DataLosses != 1 || s.Elections["unclean"] != 1 || s.Elections["vacant"] != 1 || s.Leases != 1 {
		t.Errorf("%+v", s)
	}
}

func TestShardCommands(t *testing.T) {
	r, one, two, three := trio(t, Options{})
	set, err := shards(r).SetShard(r.ctx(), &controllerv1.SetShardRequest{ShardName: "a", MinIsr: new(int32(2))})
	if err != nil || !set.GetChanged() || set.GetShard().GetMinIsr() != 2 {
		t.Fatalf("%v, %v", set, err)
	}
	one.wait("the copies that are wanted", func() bool { return one.shard.GetMinIsr() == 2 })
	if _, err := shards(r).SetShard(r.ctx(), &controllerv1.SetShardRequest{ShardName: "a", CommitMode: controllerv1.CommitMode_COMMIT_MODE_MEMORY}); !mqerr.Is(rpc.FromStatus(err), mqerr.Invalid) {
		t.Errorf("another mode: %v", err)
	}
	flushed := &controllerv1.PutTopicRequest{Name: "t", Flush: controllerv1.FlushPolicy_FLUSH_POLICY_ASYNC}
	if _, err := r.client.PutTopic(r.ctx(), flushed); !mqerr.Is(rpc.FromStatus(err), mqerr.Invalid) {
		t.Errorf("a flush policy on replicas: %v", err)
	}
	if _, err := shards(r).RemoveReplica(r.ctx(), &controllerv1.RemoveReplicaRequest{ShardName: "a", ReplicaId: 1}); !mqerr.Is(rpc.FromStatus(err), mqerr.Invalid) {
		t.Errorf("the master: %v", err)
	}
	gone, err := shards(r).RemoveReplica(r.ctx(), &controllerv1.RemoveReplicaRequest{ShardName: "a", ReplicaId: 3})
	if err != nil || len(gone.GetShard().GetReplicas()) != 2 {
		t.Fatalf("%v, %v", gone, err)
	}
	if _, err := r.client.Register(r.ctx(), three.request); !mqerr.Is(rpc.FromStatus(err), mqerr.Denied) {
		t.Errorf("a replica that was removed: %v", err)
	}
	if _, err := shards(r).DeleteShard(r.ctx(), &controllerv1.DeleteShardRequest{ShardName: "a"}); !mqerr.Is(rpc.FromStatus(err), mqerr.Invalid) {
		t.Errorf("a group that serves: %v", err)
	}
	_ = two
}
