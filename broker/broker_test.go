package broker_test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/broker"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/controller"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// cluster is a controller in this process, reached over a pipe.
type cluster struct {
	t      *testing.T
	conn   *grpc.ClientConn
	client controllerv1.ControllerServiceClient
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	ln := bufconn.Listen(1 << 18)
	c, err := controller.New(controller.Options{DataDir: t.TempDir(), Listener: ln, Release: "test"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	k := &cluster{t: t, conn: dial(t, ln)}
	k.client = controllerv1.NewControllerServiceClient(k.conn)
	t.Cleanup(func() {
		_ = k.conn.Close()
		cancel()
		require.NoError(t, <-ended)
	})
	select {
	case <-c.Ready():
	case <-time.After(patience):
		t.Fatal("the controller is not ready")
	}
	return k
}

func dial(t *testing.T, ln *bufconn.Listener) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///controller", append(rpc.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))...)
	require.NoError(t, err)
	return conn
}

// define makes the topic and the group of the tests; both are logged when it returns.
func (k *cluster) define() (brokerapi.TopicID, brokerapi.GroupID) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	topic, err := k.client.PutTopic(ctx, &controllerv1.PutTopicRequest{Name: "orders", Queues: 2})
	require.NoError(k.t, err)
	group, err := k.client.PutGroup(ctx, &controllerv1.PutGroupRequest{Name: "billing"})
	require.NoError(k.t, err)
	return brokerapi.TopicID(topic.GetTopic().GetId()), brokerapi.GroupID(group.GetGroup().GetId())
}

// running is a broker in this process.
type running struct {
	*broker.Broker
	t        *testing.T
	cancel   context.CancelFunc
	ended    chan error
	replayed int64
}

// run starts a broker and does not wait for it.
func (k *cluster) run(o broker.Options) *running {
	r := &running{t: k.t, ended: make(chan error, 1), replayed: -1}
	o.Controller, o.SegmentBytes, o.Release = k.conn, 1<<20, "test"
	if o.Advertise == "" {
		o.Advertise = "127.0.0.1:1"
	}
	if o.Group == "" {
		o.Group = "a"
	}
	o.Engine.Events.Recovered = func(_, _ record.Pos, records int64, _ time.Duration) { r.replayed = records }
	r.Broker = broker.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- r.Run(ctx) }()
	k.t.Cleanup(func() { _ = r.stop() })
	return r
}

// start starts a broker that must become ready.
func (k *cluster) start(o broker.Options) *running {
	k.t.Helper()
	r := k.run(o)
	select {
	case <-r.Ready():
	case err := <-r.ended:
		r.ended <- err
		k.t.Fatalf("the broker ends: %v", err)
	case <-time.After(patience):
		k.t.Fatal("the broker is not ready")
	}
	return r
}

// stop asks the broker to end and returns what Run returned. Calling it again returns nil.
func (r *running) stop() error {
	if r.cancel == nil {
		return nil
	}
	r.cancel()
	r.cancel = nil
	return r.over()
}

// over waits for the end of Run.
func (r *running) over() error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err
		return err
	case <-time.After(patience):
		r.t.Fatal("the broker does not end")
		return nil
	}
}

// wait makes a call and waits for its answer.
func wait[R any](t *testing.T, call func(done func(R, error))) (R, error) {
	t.Helper()
	type answer struct {
		r   R
		err error
	}
	c := make(chan answer, 1)
	call(func(r R, err error) { c <- answer{r, err} })
	select {
	case a := <-c:
		return a.r, a.err
	case <-time.After(patience):
		t.Fatal("no answer")
		panic("unreachable")
	}
}

// user is a proxy of a broker.
type user struct {
	t     *testing.T
	b     brokerapi.Broker
	topic brokerapi.TopicID
	group brokerapi.GroupID
}

func (r *running) user(topic brokerapi.TopicID, group brokerapi.GroupID) *user {
	r.t.Helper()
	b, err := r.Attach("test", brokerapi.Events{})
	require.NoError(r.t, err)
	return &user{r.t, b, topic, group}
}

func (u *user) send(body string) error {
	u.t.Helper()
	req := &brokerapi.SendRequest{Topic: u.topic, Messages: []brokerapi.Message{{Queue: brokerapi.AnyQueue, Type: brokerapi.Normal, ID: []byte(body), Body: []byte(body)}}}
	_, err := wait(u.t, func(done func(*brokerapi.SendReply, error)) { u.b.Send(req, done) })
	return err
}

// take receives and acks everything.
func (u *user) take() []string {
	u.t.Helper()
	var bodies []string
	for {
		r, err := wait(u.t, func(done func(*brokerapi.PopReply, error)) {
			u.b.Pop(&brokerapi.PopRequest{Topic: u.topic, Group: u.group, Client: "c", Max: 32, Invisible: time.Minute}, done)
		})
		require.NoError(u.t, err)
		if len(r.Messages) == 0 {
			return bodies
		}
		ack := &brokerapi.AckRequest{Topic: u.topic, Group: u.group}
		for _, m := range r.Messages {
			bodies = append(bodies, string(m.Body))
			ack.Handles = append(ack.Handles, brokerapi.Handle{Queue: m.Queue, Offset: m.Offset, Lease: m.Lease, Epoch: m.Epoch})
		}
		r.Release()
		a, err := wait(u.t, func(done func(*brokerapi.AckReply, error)) { u.b.Ack(ack, done) })
		require.NoError(u.t, err)
		for _, err := range a.Errors {
			require.NoError(u.t, err)
		}
	}
}

// TestRestart: after a clean stop nothing of the log is read, and all is as it was.
func TestRestart(t *testing.T) {
	k := newCluster(t)
	o := broker.Options{DataDir: t.TempDir()}
	b := k.start(o)
	topic, group := k.define()
	u := b.user(topic, group)
	for _, body := range []string{"one", "two"} {
		require.NoError(t, u.send(body))
	}
	require.ElementsMatch(t, []string{"one", "two"}, u.take())
	require.NoError(t, u.send("three"))
	require.NoError(t, b.Healthy())
	_, epoch := b.Leads()
	require.NoError(t, b.stop())
	require.Error(t, u.send("late"))

	again := k.start(o)
	require.Zero(t, again.replayed, "no record of the log is read")
	require.Zero(t, again.Progress().Records)
	require.Zero(t, again.Progress().Bytes())
	_, later := again.Leads()
	require.Greater(t, later, epoch)
	require.Equal(t, []string{"three"}, again.user(topic, group).take())
	require.NoError(t, again.stop())
}

// TestLaterStartTakesOver: a broker that was cut off is replaced by a start on what its disk has, and
// ends when it hears of that.
func TestLaterStartTakesOver(t *testing.T) {
	k := newCluster(t)
	disk := memfs.New()
	o := broker.Options{DataDir: "data", FS: disk}
	b := k.start(o)
	topic, group := k.define()
	u := b.user(topic, group)
	for _, body := range []string{"one", "two", "three"} {
		require.NoError(t, u.send(body))
	}
	require.Len(t, u.take(), 3)
	require.NoError(t, u.send("four"))
	o.FS = disk.Crash(rand.New(rand.NewPCG(1, 1)), 0)
	again := k.start(o)
	err := b.over()
	require.True(t, mqerr.Is(err, mqerr.Fenced), "%v", err)
	require.Positive(t, again.replayed)
	require.Equal(t, []string{"four"}, again.user(topic, group).take())
	require.NoError(t, again.stop())
}

// TestRefused: a directory serves one process, of one replica, of one cluster. A start that is refused
// harms nothing.
func TestRefused(t *testing.T) {
	k, abroad := newCluster(t), newCluster(t)
	o := broker.Options{DataDir: t.TempDir()}
	b := k.start(o)
	topic, group := k.define()
	require.NoError(t, b.user(topic, group).send("one"))
	require.ErrorContains(t, k.run(o).over(), "is locked by process")
	require.NoError(t, b.stop())

	another, second := o, o
	another.Group, second.ID = "b", 2
	require.ErrorContains(t, k.run(another).over(), `replica 1 of broker group "a"`)
	require.ErrorContains(t, k.run(second).over(), `replica 1 of broker group "a"`)
	require.ErrorContains(t, abroad.run(o).over(), "belongs to cluster")

	again := k.start(o)
	require.Zero(t, again.replayed)
	require.Equal(t, []string{"one"}, again.user(topic, group).take())
	require.NoError(t, again.stop())
}

// TestStopBeforeTheControllerAnswers leaves the directory as clean as it was.
func TestStopBeforeTheControllerAnswers(t *testing.T) {
	k := newCluster(t)
	o := broker.Options{DataDir: t.TempDir()}
	require.NoError(t, k.start(o).stop())

	silent := &cluster{t: t, conn: dial(t, bufconn.Listen(1))}
	b := silent.run(o)
	require.Eventually(t, func() bool { return b.Progress().Stage == engine.StageDone }, patience, time.Millisecond)
	require.NoError(t, b.Live())
	require.ErrorContains(t, b.Healthy(), "waits for the controller")
	require.Error(t, b.stop())
	require.NoError(t, silent.conn.Close())
	_, err := vfs.OS.Stat(o.DataDir + "/clean.json")
	require.NoError(t, err)
	require.NoError(t, k.start(o).stop())
}

// stuckFS fails to sync when it is told to.
type stuckFS struct {
	vfs.FS
	mu   sync.Mutex
	fail bool
}

func (s *stuckFS) Create(name string) (vfs.File, error) { return s.wrap(s.FS.Create(name)) }
func (s *stuckFS) Open(name string) (vfs.File, error)   { return s.wrap(s.FS.Open(name)) }

func (s *stuckFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &stuckFile{f, s}, nil
}

func (s *stuckFS) set(fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

type stuckFile struct {
	vfs.File
	fs *stuckFS
}

func (f *stuckFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.fail {
		return context.DeadlineExceeded
	}
	return f.File.Sync()
}

// TestFailedDisk: after a sync that failed the broker answers honestly, says so and ends; a later start
// has all that was acknowledged.
//
//fault:storage fdatasync fails under load => callers hear that the outcome is unknown, the broker is not ready any more and ends with an error; a later start has all that was answered
func TestFailedDisk(t *testing.T) {
	k := newCluster(t)
	mem := memfs.New()
	disk := &stuckFS{FS: mem}
	o := broker.Options{DataDir: "data", FS: disk}
	b := k.start(o)
	topic, group := k.define()
	u := b.user(topic, group)
	require.NoError(t, u.send("one"))
	disk.set(true)
	err := u.send("two")
	require.True(t, mqerr.Is(err, mqerr.UnknownOutcome), "%v", err)
	err = u.send("three")
	require.True(t, mqerr.Is(err, mqerr.Unavailable), "%v", err)
	require.Error(t, b.Live())
	require.Error(t, b.Healthy())
	require.ErrorContains(t, b.over(), "commit log failed")

	disk.set(false)
	o.FS = mem.Crash(rand.New(rand.NewPCG(1, 1)), 0)
	again := k.start(o)
	require.Equal(t, []string{"one"}, again.user(topic, group).take())
	require.NoError(t, again.stop())
}
