package controller

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testSilence = time.Second
	patience    = 15 * time.Second // for what should take milliseconds
)

// running is a controller in this process with a client.
type running struct {
	*Controller
	t      *testing.T
	client controllerv1.ControllerServiceClient
	cc     *grpc.ClientConn
	cancel context.CancelFunc
	done   chan error
}

func start(t *testing.T, dir string) *running { return startWith(t, Options{DataDir: dir}) }

func startWith(t *testing.T, o Options) *running {
	t.Helper()
	ln := bufconn.Listen(1 << 20)
	o.Listener, o.Silence, o.Release, o.Log = ln, testSilence, "0.1.0-test", slog.New(slog.DiscardHandler)
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Controller: c, t: t, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- c.Run(ctx) }()
	select {
	case <-c.Ready():
	case err := <-r.done:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("not ready")
	}
	r.cc = dial(t, "passthrough:///controller", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	r.client = controllerv1.NewControllerServiceClient(r.cc)
	t.Cleanup(r.stop)
	return r
}

func dial(t *testing.T, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(target, append(append(rpc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials())), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return cc
}

// stop stops the controller while clients still hold their streams. Calling it again does nothing.
func (r *running) stop() {
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Errorf("Run: %v", err)
		}
	case <-time.After(patience):
		r.t.Error("Run does not end")
	}
	_ = r.cc.Close()
}

func (r *running) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

func hello() *controllerv1.Hello { return &controllerv1.Hello{Version: 1, Release: "0.1.0-test"} }

// broker is a broker as the controller sees it: it logs every definition at once.
type broker struct {
	t        *testing.T
	request  *controllerv1.RegisterRequest
	response *controllerv1.RegisterResponse
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu        sync.Mutex
	stream    grpc.BidiStreamingClient[controllerv1.BrokerHeartbeat, controllerv1.BrokerUpdate]
	applied   uint64
	resigning bool
	topics    map[uint32]*controllerv1.Topic
	groups    map[uint32]*controllerv1.Group
	fenced    bool
	err       error
}

func newBroker(t *testing.T, name string) *broker {
	uuid := make([]byte, 16)
	copy(uuid, name)
	return &broker{t: t, request: &controllerv1.RegisterRequest{
		Hello: hello(), ShardName: name, ReplicaId: 1, Uuid: uuid, Address: "127.0.0.1:10911",
	}}
}

func (b *broker) register(r *running) {
	b.t.Helper()
	resp, err := r.client.Register(r.ctx(), b.request)
	if err != nil {
		b.t.Fatal(err)
	}
	b.response = resp
	b.request.Hello.ClusterId = resp.GetHello().GetClusterId()
	b.request.LastIncarnation, b.request.MaxEpoch = resp.GetIncarnation(), resp.GetEpoch()
	b.applied = 0
}

// open begins a session, and returns when all definitions are logged.
func (b *broker) open(r *running) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.topics, b.groups = map[uint32]*controllerv1.Topic{}, map[uint32]*controllerv1.Group{}
	b.err, b.fenced = nil, false
	stream, err := r.client.BrokerSession(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	b.stream = stream
	first := make(chan struct{})
	b.beat(hello())
	b.wg.Go(func() { b.read(first) })
	b.wg.Go(func() {
		t := time.NewTicker(testSilence / 5)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				b.beat(nil)
			case <-ctx.Done():
				return
			}
		}
	})
	b.t.Cleanup(b.close)
	select {
	case <-first:
	case <-time.After(patience):
		b.t.Fatal("no definitions")
	}
}

func (b *broker) beat(hello *controllerv1.Hello) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.stream.Send(&controllerv1.BrokerHeartbeat{ // Recv tells the cause
		Hello: hello, Shard: b.response.GetShard().GetId(), ReplicaId: 1, Incarnation: b.response.GetIncarnation(), Epoch: b.response.GetEpoch(),
		AppliedVersion: b.applied, Resigning: b.resigning,
	})
}

func (b *broker) read(first chan struct{}) {
	for {
		u, err := b.stream.Recv()
		b.mu.Lock()
		if err != nil {
			b.err = err
			b.mu.Unlock()
			return
		}
		d := u.GetDefinitions()
		if d.GetFull() {
			clear(b.topics)
			clear(b.groups)
		}
		for _, t := range d.GetTopics() {
			b.topics[t.GetId()] = t
		}
		for _, g := range d.GetGroups() {
			b.groups[g.GetId()] = g
		}
		for _, id := range d.GetDeletedTopics() {
			delete(b.topics, id)
		}
		for _, id := range d.GetDeletedGroups() {
			delete(b.groups, id)
		}
		b.applied = max(b.applied, d.GetVersion())
		b.fenced = b.fenced || u.GetFenced()
		b.mu.Unlock()
		b.beat(nil)
		if first != nil {
			close(first)
			first = nil
		}
	}
}

// close ends the session without a word, as a crash does.
func (b *broker) close() {
	b.cancel()
	b.wg.Wait()
}

// table is what a proxy knows.
type table struct {
	full    bool
	version uint64
	topics  map[string]*controllerv1.Topic
	groups  map[string]*controllerv1.Group
	shards  map[string]*controllerv1.Shard
	keys    []*controllerv1.HandleKey
	names   map[uint32]string
	hello   *controllerv1.Hello
}

// watch follows the routes on a channel until the test ends. The error comes when the stream ends.
func watch(r *running) (<-chan table, <-chan error) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w, err := r.client.Watch(ctx, &controllerv1.WatchRequest{Hello: hello()})
	if err != nil {
		r.t.Fatal(err)
	}
	out, failed := make(chan table, 1), make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { follow(w, out, failed) })
	r.t.Cleanup(func() { cancel(); wg.Wait() })
	return out, failed
}

func follow(w grpc.ServerStreamingClient[controllerv1.WatchUpdate], out chan table, failed chan<- error) {
	now := table{topics: map[string]*controllerv1.Topic{}, groups: map[string]*controllerv1.Group{}, shards: map[string]*controllerv1.Shard{}, names: map[uint32]string{}}
	for {
		u, err := w.Recv()
		if err != nil {
			failed <- err
			return
		}
		d := u.GetDefinitions()
		next := table{full: d.GetFull(), version: d.GetVersion(), topics: map[string]*controllerv1.Topic{}, groups: map[string]*controllerv1.Group{}, shards: map[string]*controllerv1.Shard{}, names: map[uint32]string{}, keys: now.keys, hello: now.hello}
		if u.GetHello() != nil {
			next.hello = u.GetHello()
		}
		if !next.full {
			maps.Copy(next.topics, now.topics)
			maps.Copy(next.groups, now.groups)
			maps.Copy(next.shards, now.shards)
			maps.Copy(next.names, now.names)
		}
		for _, t := range d.GetTopics() {
			next.topics[t.GetName()], next.names[t.GetId()] = t, t.GetName()
		}
		for _, id := range d.GetDeletedTopics() {
			delete(next.topics, next.names[id])
		}
		for _, g := range d.GetGroups() {
			next.groups[g.GetName()] = g
		}
		for _, h := range u.GetShards() {
			next.shards[h.GetName()] = h
		}
		if k := u.GetHandleKeys(); len(k) > 0 {
			next.keys = k
		}
		now = next
		select { // the newest table replaces one that nobody took
		case <-out:
		default:
		}
		out <- now
	}
}

// until waits for a table that fits.
func until(t *testing.T, tables <-chan table, what string, fits func(table) bool) table {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case x := <-tables:
			if fits(x) {
				return x
			}
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}
