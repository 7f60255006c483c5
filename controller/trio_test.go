package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/raft"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/internal/testport"
)

// freeAddr is a loopback address on which nobody listened a moment ago, below those of clients.
func freeAddr(t *testing.T) string {
	t.Helper()
	return testport.Addr(t)
}

// startNode starts a controller on ports of its own and does not wait for it.
func startNode(t *testing.T, dir, id string, members []raft.Member, o Options) *running {
	t.Helper()
	o.ID, o.DataDir, o.Members, o.Silence, o.Release, o.Log = id, filepath.Join(dir, id), members, testSilence, "0.1.0-test", slog.New(slog.DiscardHandler)
	for _, m := range members {
		if m.ID == id {
			o.RaftAddr = m.Addr
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Listener = ln
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Controller: c, t: t, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- c.Run(ctx) }()
	r.cc = dial(t, "passthrough:///"+ln.Addr().String())
	r.client = controllerv1.NewControllerServiceClient(r.cc)
	t.Cleanup(r.stop)
	return r
}

// startTrio starts three controllers and waits until all of them serve.
func startTrio(t *testing.T) []*running {
	t.Helper()
	var members []raft.Member
	for i := range 3 {
		members = append(members, raft.Member{ID: fmt.Sprint("c", i+1), Addr: freeAddr(t)})
	}
	dir := t.TempDir()
	var all []*running
	for _, m := range members {
		all = append(all, startNode(t, dir, m.ID, members, Options{}))
	}
	for _, r := range all {
		r.awaitReady()
	}
	return all
}

func (r *running) awaitReady() {
	r.t.Helper()
	select {
	case <-r.Ready():
	case <-time.After(patience):
		r.t.Fatal("not ready")
	}
}

// listening waits until something listens at an address.
func listening(t *testing.T, addr string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(patience); ; <-tick.C {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(limit) {
			t.Fatal(err)
		}
	}
}

// roles tells who leads, and somebody who follows.
func roles(t *testing.T, all []*running) (leader, follower *running) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(patience); leader == nil || follower == nil; <-tick.C {
		leader, follower = nil, nil
		for _, r := range all {
			if r.cancel == nil {
				continue
			}
			if leads, _ := r.reg.Leads(); leads {
				leader = r
			} else {
				follower = r
			}
		}
		if time.Now().After(limit) {
			t.Fatal("nobody leads")
		}
	}
	return leader, follower
}

// Whoever is asked: the leader does it. A session is with the leader, and another node says where that is.
func TestFollowersHandOn(t *testing.T) {
	leader, follower := roles(t, startTrio(t))
	b := newBroker(t, "a")
	b.register(follower)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := follower.client.BrokerSession(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	if !mqerr.Is(err, mqerr.NotLeader) || rpc.LeaderOf(err) != leader.AdvertiseAddr() {
		t.Errorf("%v, at %q; want %q", err, rpc.LeaderOf(err), leader.AdvertiseAddr())
	}
	b.open(leader)
	tables, _ := watch(follower)
	done, err := follower.client.PutTopic(follower.ctx(), &controllerv1.PutTopicRequest{Name: "t", Queues: 2})
	if err != nil || !done.GetCreated() {
		t.Fatalf("%v, %v", done, err)
	}
	// What the leader says of the broker counts when this node has applied the election that it speaks of.
	until(t, tables, "the topic and a live broker, at a node that follows", func(x table) bool { return x.topics["t"] != nil && x.shards["a"].GetLive() })
	if _, err := follower.client.PutTopic(follower.ctx(), &controllerv1.PutTopicRequest{Name: "t", Queues: 1}); !mqerr.Is(err, mqerr.Exists) {
		t.Errorf("a refusal: %v", err)
	}
	if _, err := follower.client.DeleteTopic(follower.ctx(), &controllerv1.DeleteTopicRequest{Name: "no"}); !mqerr.Is(err, mqerr.TopicNotFound) {
		t.Errorf("a refusal: %v", err)
	}
}

// The lead changes: watches go on, nothing vanishes from them, and changes are taken by the next leader.
func TestLeadChanges(t *testing.T) {
	all := startTrio(t)
	leader, follower := roles(t, all)
	b := newBroker(t, "a")
	b.register(leader)
	b.open(leader)
	if _, err := leader.client.PutTopic(leader.ctx(), &controllerv1.PutTopicRequest{Name: "t", Queues: 2}); err != nil {
		t.Fatal(err)
	}
	tables, failed := watch(follower)
	until(t, tables, "the topic", func(x table) bool { return x.topics["t"] != nil && x.shards["a"].GetLive() })
	leader.stop()
	b.close()
	leader, _ = roles(t, all)
	b.open(leader)
	if _, err := follower.client.PutGroup(follower.ctx(), &controllerv1.PutGroupRequest{Name: "g"}); err != nil {
		t.Fatal(err)
	}
	until(t, tables, "the group, and all else as it was", func(x table) bool {
		if x.topics["t"] == nil || !x.shards["a"].GetLive() {
			t.Fatalf("something vanished: %+v", x)
		}
		return x.groups["g"] != nil
	})
	select {
	case err := <-failed:
		t.Errorf("the watch ended: %v", err)
	default:
	}

	// Without a majority nothing is stored, and that is said.
	leader.stop()
	for _, r := range all {
		if r.cancel != nil {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_, err := r.client.PutGroup(ctx, &controllerv1.PutGroupRequest{Name: "never"})
			cancel()
			if !mqerr.Is(err, mqerr.NotLeader) && !mqerr.Is(err, mqerr.UnknownOutcome) {
				t.Errorf("without a majority: %v", err)
			}
		}
	}
}

// Members are looked at before the cluster counts on them.
func TestMembersAreLookedAt(t *testing.T) {
	all := startTrio(t)
	leader, follower := roles(t, all)
	cluster := controllerv1.NewClusterServiceClient(follower.cc)
	add := func(id, addr string) error {
		_, err := cluster.AddMember(follower.ctx(), &controllerv1.AddMemberRequest{Id: id, RaftAddress: addr})
		return err
	}
	alone := startNode(t, t.TempDir(), "c8", nil, Options{RaftAddr: "127.0.0.1:0"})
	alone.awaitReady()
	joining := startNode(t, t.TempDir(), "c9", nil, Options{RaftAddr: freeAddr(t), Join: true})
	listening(t, joining.o.RaftAddr)
	for _, c := range []struct {
		id, addr string
		kind     mqerr.Kind
	}{
		{"c4", freeAddr(t), mqerr.Unavailable},
		{"c4", "nothing", mqerr.Invalid},
		{"a b", "127.0.0.1:1", mqerr.Invalid},
		{"c4", leader.node.Addr(), mqerr.Exists},
		{"c8", alone.node.Addr(), mqerr.Denied}, // a cluster of its own
		{"c4", joining.o.RaftAddr, mqerr.Invalid},
	} {
		if err := add(c.id, c.addr); !mqerr.Is(err, c.kind) {
			t.Errorf("%s at %s: %v", c.id, c.addr, err)
		}
	}
	if err := add("c9", joining.o.RaftAddr); err != nil {
		t.Fatal(err)
	}
	joining.awaitReady()
	r, err := controllerv1.NewClusterServiceClient(leader.cc).Node(joining.ctx(), &controllerv1.NodeRequest{})
	if err != nil || len(r.GetMembers()) != 4 || !r.GetMembers()[3].GetVotes() || r.GetMembers()[3].GetAddress() != joining.AdvertiseAddr() {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := cluster.RemoveMember(follower.ctx(), &controllerv1.RemoveMemberRequest{Id: leader.o.ID}); err != nil {
		t.Errorf("the leader is removed: %v", err)
	}
	if next, _ := roles(t, []*running{all[0], all[1], all[2], joining}); next == nil {
		t.Error("nobody leads")
	}
	// It is told, or finds out, and ends; its process says why.
	select {
	case err := <-leader.done:
		if !mqerr.Is(err, mqerr.Denied) {
			t.Errorf("the removed one: %v", err)
		}
		leader.cancel()
		leader.cancel = nil
		_ = leader.cc.Close()
	case <-time.After(patience):
		t.Error("the removed one goes on")
	}
}
