package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// A broker, a proxy and an operator through one life of the controller.
func TestLife(t *testing.T) {
	r := start(t, t.TempDir())
	tables, _ := watch(r)
	x := until(t, tables, "first", func(x table) bool { return x.full })
	if len(x.keys) != 1 || len(x.keys[0].GetKey()) != 16 || x.hello.GetClusterId() == "" || x.hello.GetVersion() != 1 {
		t.Errorf("first table: %+v", x)
	}
	_, err := r.client.PutTopic(r.ctx(), &controllerv1.PutTopicRequest{Name: "early"})
	if !mqerr.Is(err, mqerr.Unavailable) || !strings.Contains(err.Error(), "no broker has registered") {
		t.Errorf("before any broker: %v", err)
	}

	b := newBroker(t, "a")
	b.register(r)
	if b.response.GetEpoch() != 1 || b.response.GetIncarnation() == 0 || b.response.GetHello().GetClusterId() != x.hello.GetClusterId() {
		t.Errorf("registration: %v", b.response)
	}
	b.open(r)
	until(t, tables, "live", func(x table) bool { return x.shards["a"].GetLive() && x.shards["a"].GetMaster() == 1 })

	put, err := r.client.PutTopic(r.ctx(), &controllerv1.PutTopicRequest{Name: "orders", Queues: 4})
	if err != nil || !put.GetCreated() || put.GetTopic().GetId() != 1 || put.GetTopic().GetType() != controllerv1.TopicType_TOPIC_TYPE_NORMAL {
		t.Fatalf("%v %v", put, err)
	}
	b.mu.Lock()
	if b.topics[1].GetName() != "orders" || b.applied < put.GetTopic().GetVersion() {
		t.Errorf("answered before the broker had it: %v", b.topics)
	}
	b.mu.Unlock()
	x = until(t, tables, "orders", func(x table) bool { return x.topics["orders"] != nil })
	if p := x.topics["orders"].GetPlacements(); len(p) != 1 || p[0].GetShard() != b.response.GetShard().GetId() || p[0].GetQueues() != 4 {
		t.Errorf("placements %v", p)
	}
	n := int32(3)
	g, err := r.client.PutGroup(r.ctx(), &controllerv1.PutGroupRequest{Name: "billing", MaxAttempts: &n, BackoffMs: []int64{10, 20}})
	if err != nil || g.GetGroup().GetMaxAttempts() != 3 || len(g.GetGroup().GetBackoffMs()) != 2 || g.GetGroup().GetFrom() != controllerv1.StartFrom_START_FROM_FIRST {
		t.Errorf("%v %v", g, err)
	}
	st, err := r.client.Status(r.ctx(), &controllerv1.StatusRequest{})
	if err != nil || st.GetTopics() != 1 || st.GetGroups() != 1 || len(st.GetLiveShards()) != 1 || st.GetLeader() != "c1" {
		t.Errorf("%v %v", st, err)
	}
	if s := r.Stats(); s.Topics != 1 || s.Registry.Sessions != 1 || s.Registry.Watchers != 1 || !s.Leads || s.LogBytes <= 0 || s.Raft["state"] != "Leader" {
		t.Errorf("%+v", s)
	}
	if _, err := r.client.DeleteTopic(r.ctx(), &controllerv1.DeleteTopicRequest{Name: "orders"}); err != nil {
		t.Error(err)
	}
	if _, err := r.client.DeleteGroup(r.ctx(), &controllerv1.DeleteGroupRequest{Name: "billing"}); err != nil {
		t.Error(err)
	}
	b.mu.Lock()
	if len(b.topics)+len(b.groups) != 0 {
		t.Errorf("the broker still has %v %v", b.topics, b.groups)
	}
	b.mu.Unlock()
	until(t, tables, "gone", func(x table) bool { return x.topics["orders"] == nil })

	// A planned stop ends the mastership.
	b.mu.Lock()
	b.resigning = true
	b.mu.Unlock()
	b.beat(nil)
	until(t, tables, "resigned", func(x table) bool { return x.shards["a"].GetMaster() == 0 })
}

func TestRefusals(t *testing.T) {
	r := start(t, t.TempDir())
	b := newBroker(t, "a")
	b.register(r)
	b.open(r)
	if _, err := r.client.PutTopic(r.ctx(), &controllerv1.PutTopicRequest{Name: "there", Queues: 2}); err != nil {
		t.Fatal(err)
	}
	topic := func(p *controllerv1.PutTopicRequest) error {
		_, err := r.client.PutTopic(r.ctx(), p)
		return err
	}
	group := func(p *controllerv1.PutGroupRequest) error {
		_, err := r.client.PutGroup(r.ctx(), p)
		return err
	}
	register := func(change func(*controllerv1.RegisterRequest)) error {
		q := newBroker(t, "other").request
		change(q)
		_, err := r.client.Register(r.ctx(), q)
		return err
	}
	watchWith := func(h *controllerv1.Hello) error {
		w, err := r.client.Watch(r.ctx(), &controllerv1.WatchRequest{Hello: h})
		if err != nil {
			return err
		}
		_, err = w.Recv()
		return err
	}
	_, missingTopic := r.client.DeleteTopic(r.ctx(), &controllerv1.DeleteTopicRequest{Name: "missing"})
	_, missingGroup := r.client.DeleteGroup(r.ctx(), &controllerv1.DeleteGroupRequest{Name: "missing"})
	zero := int32(0)
	version := r.Stats().Raft["last_log_index"]
	for name, c := range map[string]struct {
		err  error
		kind mqerr.Kind
	}{
		"empty name":       {topic(&controllerv1.PutTopicRequest{}), mqerr.Invalid},
		"system topic":     {topic(&controllerv1.PutTopicRequest{Name: "rmq_sys_x"}), mqerr.Invalid},
		"own of a type":    {topic(&controllerv1.PutTopicRequest{Name: "%DLQ%g", Type: controllerv1.TopicType_TOPIC_TYPE_FIFO}), mqerr.Invalid},
		"unknown type":     {topic(&controllerv1.PutTopicRequest{Name: "a", Type: 99}), mqerr.Invalid},
		"unknown flush":    {topic(&controllerv1.PutTopicRequest{Name: "a", Flush: 300}), mqerr.Invalid},
		"unknown mode":     {topic(&controllerv1.PutTopicRequest{Name: "a", Mode: -1}), mqerr.Invalid},
		"negative queues":  {topic(&controllerv1.PutTopicRequest{Name: "a", Queues: -1}), mqerr.Invalid},
		"system group":     {group(&controllerv1.PutGroupRequest{Name: "CID_RMQ_SYS_x"}), mqerr.Invalid},
		"no attempts":      {group(&controllerv1.PutGroupRequest{Name: "g", MaxAttempts: &zero}), mqerr.Invalid},
		"unknown start":    {group(&controllerv1.PutGroupRequest{Name: "g", From: 257}), mqerr.Invalid},
		"missing topic":    {missingTopic, mqerr.TopicNotFound},
		"missing group":    {missingGroup, mqerr.GroupNotFound},
		"no hello":         {watchWith(nil), mqerr.Unsupported},
		"newer protocol":   {watchWith(&controllerv1.Hello{Version: 2, Release: "9.9.9"}), mqerr.Unsupported},
		"foreign cluster":  {watchWith(&controllerv1.Hello{Version: 1, ClusterId: "x"}), mqerr.Denied},
		"short uuid":       {register(func(q *controllerv1.RegisterRequest) { q.Uuid = q.Uuid[:3] }), mqerr.Invalid},
		"no replica":       {register(func(q *controllerv1.RegisterRequest) { q.ReplicaId = 0 }), mqerr.Invalid},
		"register version": {register(func(q *controllerv1.RegisterRequest) { q.Hello.Version = 0 }), mqerr.Unsupported},
	} {
		if !mqerr.Is(c.err, c.kind) {
			t.Errorf("%s: %v (%v)", name, c.err, mqerr.KindOf(c.err))
		}
	}
	if err := watchWith(&controllerv1.Hello{Version: 2, Release: "9.9.9"}); !strings.Contains(err.Error(), `run release "9.9.9" on both`) {
		t.Error(err)
	}
	if now := r.Stats().Raft["last_log_index"]; now != version {
		t.Errorf("refusals that need no state went to the log: %s, then %s", version, now)
	}
	if err := topic(&controllerv1.PutTopicRequest{Name: "there", Queues: 3}); !mqerr.Is(err, mqerr.Exists) {
		t.Error(err)
	}
	if err := topic(&controllerv1.PutTopicRequest{Name: "there", Queues: 1, Mode: controllerv1.PutMode_PUT_MODE_UPSERT}); !mqerr.Is(err, mqerr.Invalid) {
		t.Error(err)
	}
	// The codes are those of gRPC for everybody else.
	_, err := r.client.PutTopic(r.ctx(), &controllerv1.PutTopicRequest{Name: "there", Queues: 3})
	e, _ := errors.AsType[*mqerr.Error](err)
	if status.Code(e.Unwrap()) != codes.AlreadyExists {
		t.Errorf("%v", err)
	}
}

// A broker whose incarnation is over is told so, before the stream ends.
func TestFenced(t *testing.T) {
	r := start(t, t.TempDir())
	b := newBroker(t, "a")
	b.register(r)
	b.open(r)
	twin := newBroker(t, "a")
	twin.request.LastIncarnation = b.request.LastIncarnation
	twin.register(r)
	if twin.response.GetEpoch() != 3 {
		t.Errorf("epoch %d", twin.response.GetEpoch())
	}
	b.cancelWhenOver(t)
	if !b.fenced || !mqerr.Is(b.err, mqerr.Fenced) {
		t.Errorf("fenced %v, %v", b.fenced, b.err)
	}
	twin.open(r)
	if _, err := r.client.PutGroup(r.ctx(), &controllerv1.PutGroupRequest{Name: "g"}); err != nil {
		t.Error(err)
	}
	stream, err := r.client.BrokerSession(r.ctx()) // the old incarnation tries again
	if err != nil {
		t.Fatal(err)
	}
	b.stream = stream
	b.beat(hello())
	if u, err := stream.Recv(); err != nil || !u.GetFenced() {
		t.Errorf("%v %v", u, err)
	}
	if _, err := stream.Recv(); !mqerr.Is(err, mqerr.Fenced) {
		t.Errorf("%v", err)
	}
}

// cancelWhenOver waits for the session to end by itself.
func (b *broker) cancelWhenOver(t *testing.T) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			b.mu.Lock()
			err := b.err
			b.mu.Unlock()
			if err != nil {
				return
			}
			select {
			case <-b.stream.Context().Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	select {
	case <-over:
	case <-time.After(patience):
		t.Fatal("the session goes on")
	}
	b.close()
}

// A restart of the controller: brokers and proxies keep what they have, the session goes on without
// a registration, and nothing is missing in the first table.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir)
	b := newBroker(t, "a")
	b.register(r)
	b.open(r)
	tables, failed := watch(r)
	for i := range 20 {
		if _, err := r.client.PutTopic(r.ctx(), &controllerv1.PutTopicRequest{Name: fmt.Sprint("t", i), Queues: 1}); err != nil {
			t.Fatal(err)
		}
	}
	before := until(t, tables, "all", func(x table) bool { return len(x.topics) == 20 })
	r.stop()
	if err := <-failed; !mqerr.Is(err, mqerr.Draining) {
		t.Errorf("watch ended with %v", err)
	}
	b.cancelWhenOver(t)
	if b.fenced || !mqerr.Is(b.err, mqerr.Draining) {
		t.Errorf("session: fenced %v, %v", b.fenced, b.err)
	}

	r = start(t, dir)
	tables, _ = watch(r)
	b.open(r)
	x := until(t, tables, "first after restart", func(table) bool { return true })
	if !x.full || len(x.topics) != 20 || !x.shards["a"].GetLive() || x.shards["a"].GetEpoch() != before.shards["a"].GetEpoch() {
		t.Errorf("%d topics, shard %v", len(x.topics), x.shards["a"])
	}
	if !bytes.Equal(x.keys[0].GetKey(), before.keys[0].GetKey()) || x.hello.GetClusterId() != before.hello.GetClusterId() {
		t.Error("keys or cluster changed")
	}
	if len(b.topics) != 20 {
		t.Errorf("the broker has %d topics", len(b.topics))
	}
	put, err := r.client.PutTopic(r.ctx(), &controllerv1.PutTopicRequest{Name: "after"})
	if err != nil || put.GetTopic().GetId() != 21 {
		t.Errorf("%v %v", put, err)
	}
	r.stop()

	// The broker is away meanwhile: its topics stay, it is only not live.
	b.cancelWhenOver(t)
	r = start(t, dir)
	tables, _ = watch(r)
	x = until(t, tables, "first without the broker", func(table) bool { return true })
	if len(x.topics) != 21 || x.shards["a"].GetLive() || x.shards["a"].GetMaster() != 1 {
		t.Errorf("%d topics, shard %v", len(x.topics), x.shards["a"])
	}
}

// Two broker groups, one of them dead: what it serves is created and says what is missing; ensuring
// goes on without it; it gets everything when it is back.
func TestDeadBroker(t *testing.T) {
	r := start(t, t.TempDir())
	a, b := newBroker(t, "a"), newBroker(t, "b")
	for _, x := range []*broker{a, b} {
		x.register(r)
		x.open(r)
	}
	tables, _ := watch(r)
	until(t, tables, "both", func(x table) bool { return x.shards["a"].GetLive() && x.shards["b"].GetLive() })
	b.close()
	until(t, tables, "b is silent", func(x table) bool {
		return x.shards["a"].GetLive() && !x.shards["b"].GetLive() && x.shards["b"].GetMaster() == 1
	})
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	_, err := r.client.PutTopic(ctx, &controllerv1.PutTopicRequest{Name: "wide", Queues: 2})
	if !mqerr.Is(err, mqerr.Unavailable) || !strings.Contains(err.Error(), "not yet confirmed by broker group b") {
		t.Errorf("%v", err)
	}
	until(t, tables, "wide is usable on a", func(x table) bool { return x.topics["wide"] != nil })
	for _, name := range []string{"wide", "new"} {
		if _, err := r.client.PutTopic(r.ctx(), &controllerv1.PutTopicRequest{Name: name, Queues: 2, Mode: controllerv1.PutMode_PUT_MODE_ENSURE}); err != nil {
			t.Errorf("ensure %s: %v", name, err)
		}
	}
	if _, err := r.client.PutGroup(r.ctx(), &controllerv1.PutGroupRequest{Name: "g"}); err != nil {
		t.Errorf("a group waits for the dead: %v", err)
	}
	b.register(r) // a new process
	b.open(r)
	until(t, tables, "b is back", func(x table) bool { return x.shards["b"].GetLive() })
	if len(b.topics) != 2 || len(b.groups) != 1 {
		t.Errorf("b has %v %v", b.topics, b.groups)
	}
	put, err := r.client.PutTopic(r.ctx(), &controllerv1.PutTopicRequest{Name: "wide", Queues: 2})
	if err != nil || put.GetCreated() || put.GetChanged() {
		t.Errorf("again: %v %v", put, err)
	}
}

// Creating many topics is quick, and ensuring one from many sides at once makes one.
func TestManyTopics(t *testing.T) {
	r := start(t, t.TempDir())
	b := newBroker(t, "a")
	b.register(r)
	b.open(r)
	const n = 200
	begin := time.Now()
	for i := range n {
		if _, err := r.client.PutTopic(r.ctx(), &controllerv1.PutTopicRequest{Name: fmt.Sprint("t", i), Queues: 1}); err != nil {
			t.Fatal(err)
		}
	}
	each := time.Since(begin) / n
	t.Logf("%v per topic", each)
	if each > 50*time.Millisecond { // under 20 on a quiet machine, with the race detector too
		t.Errorf("%v per topic", each)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids, created := map[uint32]bool{}, 0
	for range 32 {
		wg.Go(func() {
			put, err := r.client.PutTopic(r.ctx(), &controllerv1.PutTopicRequest{Name: "same", Mode: controllerv1.PutMode_PUT_MODE_ENSURE, Type: controllerv1.TopicType_TOPIC_TYPE_MIXED})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			ids[put.GetTopic().GetId()] = true
			if put.GetCreated() {
				created++
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 || created == 0 {
		t.Errorf("ids %v, created %d", ids, created)
	}
}

// Over sockets, with the address that was given, and an end by a damaged directory.
// TestFewDefinitions: what a cluster may define is what its controller was told.
func TestFewDefinitions(t *testing.T) {
	r := startWith(t, Options{DataDir: t.TempDir(), Topics: 1, Groups: 1})
	b := newBroker(t, "a")
	b.register(r)
	b.open(r)
	for i, name := range []string{"one", "two"} {
		_, topic := r.client.PutTopic(r.ctx(), &controllerv1.PutTopicRequest{Name: name, Queues: 1})
		_, group := r.client.PutGroup(r.ctx(), &controllerv1.PutGroupRequest{Name: name})
		for _, err := range []error{topic, group} {
			if i == 0 && err != nil || i == 1 && !mqerr.Is(rpc.FromStatus(err), mqerr.Exhausted) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if s := r.Stats(); s.Connections != 1 || s.Refused != 0 {
		t.Errorf("%+v", s)
	}
}

func TestRunOnSockets(t *testing.T) {
	dir := t.TempDir()
	c, err := New(Options{DataDir: dir, Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	<-c.Ready()
	cc := dial(t, c.AdvertiseAddr())
	st, err := controllerv1.NewControllerServiceClient(cc).Status(ctx, &controllerv1.StatusRequest{})
	if err != nil || len(st.GetClusterId()) != 32 {
		t.Errorf("%v %v", st, err)
	}
	second, err := New(Options{DataDir: dir, Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(ctx); !mqerr.Is(err, mqerr.Exists) {
		t.Errorf("second on one directory: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	_ = cc.Close()
	if err := os.WriteFile(filepath.Join(dir, "raft.db"), bytes.Repeat([]byte("x"), 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged, err := New(Options{DataDir: dir, Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := damaged.Run(t.Context()); !mqerr.Is(err, mqerr.Corrupt) {
		t.Errorf("damaged: %v", err)
	}
	if _, err := New(Options{Silence: -1}); err == nil || !strings.Contains(err.Error(), "data directory") || !strings.Contains(err.Error(), "silence") {
		t.Errorf("options: %v", err)
	}
}

func TestKeysAreRotated(t *testing.T) {
	random := strings.NewReader(strings.Repeat("k", 64))
	s := state.New()
	step := func(now time.Duration, want string) {
		t.Helper()
		cmd, err := dueKey(s.Keys(), now.Milliseconds(), random)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%T", cmd); got != want {
			t.Errorf("at %v: %s, want %s", now, got, want)
		}
		if cmd != nil {
			if r, _ := s.Apply(s.Version()+1, cmd); r.Err != nil {
				t.Error(r.Err)
			}
		}
	}
	step(0, "<nil>")
	s.Apply(1, state.Init{Cluster: "c", Key: state.Secret{1}})
	step(keyAge-1, "<nil>")
	step(keyAge, "state.RotateKey")
	step(keyAge+keySpread-time.Millisecond, "<nil>")
	step(keyAge+keySpread, "state.UseKey")
	step(keyAge+keySpread+time.Hour, "<nil>")
	if s.Keys()[0].ID != 2 {
		t.Errorf("%+v", s.Keys())
	}
	step(2*keyAge+keySpread, "state.RotateKey")
}

// TestOwnTopics: a broker's own topic is there on its shard, once however often it is asked for.
func TestOwnTopics(t *testing.T) {
	r := start(t, t.TempDir())
	b := newBroker(t, "a")
	b.register(r)
	b.open(r)
	ask := func(name string) (*controllerv1.Topic, error) {
		resp, err := r.client.EnsureTopic(r.ctx(), &controllerv1.EnsureTopicRequest{Name: name, Shard: b.response.GetShard().GetId()})
		return resp.GetTopic(), err
	}
	own, err := ask("%DLQ%billing")
	if err != nil || len(own.GetPlacements()) != 1 || own.GetPlacements()[0].GetQueues() != 1 {
		t.Fatalf("%v %v", own, err)
	}
	b.mu.Lock()
	if b.topics[own.GetId()].GetName() != "%DLQ%billing" || b.applied < own.GetVersion() {
		t.Errorf("answered before the broker had it: %v", b.topics)
	}
	b.mu.Unlock()
	again, err := ask("%DLQ%billing")
	if err != nil || again.GetVersion() != own.GetVersion() {
		t.Errorf("%v %v", again, err)
	}
	if _, err := ask("orders"); !mqerr.Is(err, mqerr.Invalid) {
		t.Error(err)
	}
	if _, err := r.client.DeleteTopic(r.ctx(), &controllerv1.DeleteTopicRequest{Name: "%DLQ%billing"}); err != nil {
		t.Error(err)
	}
}
