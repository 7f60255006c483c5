package ctl

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/proxy/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a controller whose watch sends what the test puts into updates. A nil update breaks the
// stream.
type fake struct {
	controllerv1.UnimplementedControllerServiceServer
	updates chan *controllerv1.WatchUpdate
	refuse  error

	mu     sync.Mutex
	hellos []*controllerv1.Hello
	puts   []*controllerv1.PutTopicRequest
	hold   chan struct{} // if not nil, puts wait for it
}

func (f *fake) Watch(r *controllerv1.WatchRequest, stream grpc.ServerStreamingServer[controllerv1.WatchUpdate]) error {
	f.mu.Lock()
	f.hellos = append(f.hellos, r.GetHello())
	refuse := f.refuse
	f.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	for {
		select {
		case u := <-f.updates:
			if u == nil {
				return mqerr.New(mqerr.NotLeader, "stepped down")
			}
			if err := stream.Send(u); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (f *fake) PutTopic(ctx context.Context, r *controllerv1.PutTopicRequest) (*controllerv1.PutTopicResponse, error) {
	f.mu.Lock()
	f.puts = append(f.puts, r)
	f.mu.Unlock()
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if r.GetName() == "refused" {
		return nil, mqerr.New(mqerr.Exhausted, "too many topics")
	}
	t := &controllerv1.Topic{Id: 50, Name: r.GetName(), Type: r.GetType(), Placements: []*controllerv1.Placement{{Shard: 1, Queues: r.GetQueues()}}}
	f.updates <- &controllerv1.WatchUpdate{Definitions: &controllerv1.Definitions{Topics: []*controllerv1.Topic{t}}}
	return &controllerv1.PutTopicResponse{Topic: t, Created: true}, nil
}

func (f *fake) PutGroup(_ context.Context, r *controllerv1.PutGroupRequest) (*controllerv1.PutGroupResponse, error) {
	g := &controllerv1.Group{Id: 60, Name: r.GetName(), Ordered: r.GetOrdered()}
	f.updates <- &controllerv1.WatchUpdate{Definitions: &controllerv1.Definitions{Groups: []*controllerv1.Group{g}}}
	return &controllerv1.PutGroupResponse{Group: g, Created: true}, nil
}

func snapshot(topics ...*controllerv1.Topic) *controllerv1.WatchUpdate {
	return &controllerv1.WatchUpdate{
		Hello:       &controllerv1.Hello{Version: 1, ClusterId: "cluster"},
		Definitions: &controllerv1.Definitions{Full: true, Topics: topics},
		Shards: []*controllerv1.Shard{{
			Id: 1, Name: "a", Epoch: 3, Master: 2, Live: true,
			Replicas: []*controllerv1.Replica{{Id: 1, Address: "other:1"}, {Id: 2, Address: "master:1"}},
		}},
		HandleKeys: []*controllerv1.HandleKey{{Id: 7, Key: []byte("0123456789abcdef")}, {Id: 0, Key: nil}},
	}
}

type harness struct {
	*Client
	fake   *fake
	routes *route.Table
	ended  chan error
}

func start(t *testing.T, f *fake) *harness {
	t.Helper()
	f.updates = make(chan *controllerv1.WatchUpdate, 16)
	ln := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(rpc.ServerOptions(slog.New(slog.DiscardHandler))...)
	controllerv1.RegisterControllerServiceServer(srv, f)
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) })
	conn, err := grpc.NewClient("passthrough:///controller", append(rpc.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	routes := &route.Table{}
	h := &harness{Client: New(Options{Conn: conn, Routes: routes, Release: "test"}), fake: f, routes: routes, ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { h.ended <- h.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
		srv.Stop()
		wg.Wait()
	})
	return h
}

// until waits for the table to be as wanted.
func (h *harness) until(t *testing.T, what string, good func(*route.Snapshot) bool) *route.Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := h.routes.WaitFor(ctx, good)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return s
}

func has(name string) func(*route.Snapshot) bool {
	return func(s *route.Snapshot) bool { return s.Topic([]byte(name)) != nil }
}

func TestTableFollowsTheController(t *testing.T) {
	h := start(t, &fake{})
	h.fake.updates <- snapshot(&controllerv1.Topic{
		Id: 1, Name: "orders", Type: controllerv1.TopicType_TOPIC_TYPE_FIFO,
		Placements: []*controllerv1.Placement{{Shard: 1, Queues: 4}, {Shard: 2, Queues: 0}},
		Limits:     &controllerv1.TopicLimits{MaxDelayMs: new(int64(1500))},
	})
	<-h.Ready()
	s := h.until(t, "first snapshot", has("orders"))
	if got := s.Topic([]byte("orders")); got.Type != route.FIFO || got.Queues != 4 || len(got.Placements) != 1 || got.Limits.MaxDelay != 1500*time.Millisecond {
		t.Errorf("topic is %+v", got)
	}
	if got := s.Shard(1); *got != (route.Shard{ID: 1, Name: "a", Address: "master:1", Epoch: 3, HasMaster: true, Live: true}) {
		t.Errorf("shard is %+v", got)
	}
	if got := s.HandleKeys(); len(got) != 1 || got[0].ID != 7 || string(got[0].Key[:]) != "0123456789abcdef" {
		t.Errorf("keys are %v", got)
	}
	h.fake.updates <- &controllerv1.WatchUpdate{
		Definitions: &controllerv1.Definitions{
			Groups:        []*controllerv1.Group{{Id: 9, Name: "g", MaxAttempts: 5, BackoffMs: []int64{1500}, LiteTopic: "l"}},
			DeletedTopics: []uint32{1},
		},
		Shards: []*controllerv1.Shard{{Id: 1, Name: "a", Epoch: 3, Master: 2, Live: false}},
	}
	s = h.until(t, "change", func(s *route.Snapshot) bool { return s.Group([]byte("g")) != nil })
	if g := s.Group([]byte("g")); g.MaxAttempts != 5 || g.Backoff[0] != 1500*time.Millisecond || g.LiteTopic != "l" {
		t.Errorf("group is %+v", g)
	}
	if s.Topic([]byte("orders")) != nil || !s.Shard(1).HasMaster || s.Shard(1).Live || s.Shard(1).Address != "master:1" {
		t.Errorf("shard is %+v", s.Shard(1))
	}
}

// TestBrokenWatch: the table stays as it was until the next snapshot.
func TestBrokenWatch(t *testing.T) {
	h := start(t, &fake{})
	h.fake.updates <- snapshot(&controllerv1.Topic{Id: 1, Name: "old"})
	s := h.until(t, "first snapshot", has("old"))
	h.fake.updates <- nil
	h.fake.updates <- snapshot(&controllerv1.Topic{Id: 2, Name: "new"})
	if select1(s.Changed()) == nil {
		t.Fatal("no second snapshot")
	}
	s = h.routes.Load()
	if has("old")(s) || !has("new")(s) {
		t.Errorf("topics are %v", s.Topics())
	}
	h.fake.mu.Lock()
	defer h.fake.mu.Unlock()
	if n := len(h.fake.hellos); n != 2 || h.fake.hellos[0].GetClusterId() != "" || h.fake.hellos[1].GetClusterId() != "cluster" {
		t.Errorf("hellos are %v", h.fake.hellos)
	}
}

// select1 waits for c, nil if it takes too long.
func select1(c <-chan struct{}) any {
	select {
	case <-c:
		return true
	case <-time.After(10 * time.Second):
		return nil
	}
}

func TestRefusedForGood(t *testing.T) {
	for _, tc := range []struct {
		name string
		fake *fake
		up   *controllerv1.WatchUpdate
	}{
		{"refused", &fake{refuse: mqerr.New(mqerr.Unsupported, "run release 9")}, nil},
		{"other version", &fake{}, &controllerv1.WatchUpdate{Hello: &controllerv1.Hello{Version: 2}}},
	} {
		h := start(t, tc.fake)
		if tc.up != nil {
			h.fake.updates <- tc.up
		}
		if err := <-h.ended; !mqerr.Is(err, mqerr.Unsupported) {
			t.Errorf("%s: run ends with %v", tc.name, err)
		}
	}
}

// TestEnsureTopicOnce has many callers and one request; one caller is in no mood to wait.
func TestEnsureTopicOnce(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	h := start(t, f)
	f.updates <- snapshot()
	<-h.Ready()
	impatient, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 20)
	var wg sync.WaitGroup
	go func() { errs <- h.EnsureTopic(impatient, "fresh") }()
	cancel()
	if err := <-errs; !mqerr.Is(err, mqerr.Cancelled) {
		t.Errorf("a caller that left: %v", err)
	}
	for range cap(errs) {
		wg.Go(func() { errs <- h.EnsureTopic(t.Context(), "fresh") })
	}
	close(f.hold)
	wg.Wait()
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if err := h.EnsureTopic(t.Context(), "fresh"); err != nil || !has("fresh")(h.routes.Load()) {
		t.Errorf("again: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.puts) != 1 {
		t.Fatalf("%d requests", len(f.puts))
	}
	if p := f.puts[0]; p.GetMode() != controllerv1.PutMode_PUT_MODE_ENSURE || p.GetQueues() != 8 || p.GetType() != controllerv1.TopicType_TOPIC_TYPE_MIXED {
		t.Errorf("request is %v", p)
	}
}

func TestEnsureFailuresAreNotRemembered(t *testing.T) {
	f := &fake{}
	h := start(t, f)
	f.updates <- snapshot()
	<-h.Ready()
	for range 2 {
		if err := h.EnsureTopic(t.Context(), "refused"); !mqerr.Is(err, mqerr.Exhausted) {
			t.Errorf("refused: %v", err)
		}
	}
	if len(f.puts) != 2 {
		t.Errorf("%d requests", len(f.puts))
	}
	if err := h.EnsureGroup(t.Context(), "g"); err != nil || h.routes.Load().Group([]byte("g")) == nil {
		t.Errorf("group: %v", err)
	}
	if err := waited(context.DeadlineExceeded, "x"); !mqerr.Is(err, mqerr.Timeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("deadline: %v", err)
	}
}
