package ctl

import (
	"context"
	"errors"
	"log/slog"
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
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// fake is a controller whose answers the test puts in: register answers registrations, one by one; each
// session gets what is in script.
type fake struct {
	controllerv1.UnimplementedControllerServiceServer
	register chan registered
	asked    chan *controllerv1.RegisterRequest
	script   chan step
	beats    chan *controllerv1.BrokerHeartbeat
	ensured  chan *controllerv1.EnsureTopicRequest
	stubborn bool // does not end a session that the broker has closed
}

type registered struct {
	resp *controllerv1.RegisterResponse
	err  error
}

// step is an update, or the end of the session with err.
type step struct {
	update *controllerv1.BrokerUpdate
	err    error
	over   bool
}

func (f *fake) Register(_ context.Context, r *controllerv1.RegisterRequest) (*controllerv1.RegisterResponse, error) {
	f.asked <- r
	a := <-f.register
	return a.resp, a.err
}

func (f *fake) BrokerSession(st grpc.BidiStreamingServer[controllerv1.BrokerHeartbeat, controllerv1.BrokerUpdate]) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			b, err := st.Recv()
			if err != nil {
				return
			}
			f.beats <- b
		}
	}()
	closed := ended
	if f.stubborn {
		closed = nil
	}
	for {
		select {
		case s := <-f.script:
			if s.over {
				return s.err
			}
			if err := st.Send(s.update); err != nil {
				return err
			}
		case <-closed:
			return nil
		case <-st.Context().Done():
			return nil
		}
	}
}

func start(t *testing.T) (*fake, *Client) {
	t.Helper()
	f := &fake{
		register: make(chan registered, 16), asked: make(chan *controllerv1.RegisterRequest, 16),
		script: make(chan step, 16), beats: make(chan *controllerv1.BrokerHeartbeat, 1024),
		ensured: make(chan *controllerv1.EnsureTopicRequest, 16),
	}
	ln := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(rpc.ServerOptions(slog.New(slog.DiscardHandler))...)
	controllerv1.RegisterControllerServiceServer(srv, f)
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(ln) })
	conn, err := grpc.NewClient("passthrough:///controller", append(rpc.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
		serving.Wait()
	})
	return f, New(conn, nil)
}

func member() Member {
	return Member{Release: "r", ClusterID: "c", Shard: "a", Replica: 2, UUID: [16]byte{1}, Address: "h:1", LastIncarnation: 4, Clean: true, LogEnd: 99, MaxEpoch: 6}
}

func accepted() *controllerv1.RegisterResponse {
	return &controllerv1.RegisterResponse{
		Hello: &controllerv1.Hello{Version: ProtocolVersion, ClusterId: "c"}, Shard: &controllerv1.Shard{Id: 5, SetVersion: 8}, Incarnation: 11, Epoch: 7,
	}
}

// TestRegister tries until the controller can answer, and takes a refusal as final.
func TestRegister(t *testing.T) {
	f, c := start(t)
	for _, k := range []mqerr.Kind{mqerr.NotLeader, mqerr.Unavailable, mqerr.Draining} {
		f.register <- registered{err: mqerr.New(k, "not now")}
	}
	f.register <- registered{resp: accepted()}
	term, err := c.Register(t.Context(), member())
	require.NoError(t, err)
	require.EqualValues(t, 8, term.Group.View.Version)
	term.Group = ShardView{}
	require.Equal(t, Term{ClusterID: "c", ShardID: 5, Incarnation: 11, Epoch: 7, SetVersion: 8}, term)
	require.Len(t, f.asked, 4)
	r := <-f.asked
	require.EqualValues(t, ProtocolVersion, r.GetHello().GetVersion())
	require.Equal(t, []any{"c", "a", uint32(2), "h:1", uint64(4), true, int64(99), uint64(6)}, []any{
		r.GetHello().GetClusterId(), r.GetShardName(), r.GetReplicaId(), r.GetAddress(), r.GetLastIncarnation(), r.GetClean(), r.GetLogEnd(), r.GetMaxEpoch(),
	})

	f.register <- registered{err: mqerr.New(mqerr.Invalid, "another data directory")}
	_, err = c.Register(t.Context(), member())
	require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
	require.ErrorContains(t, err, "another data directory")

	later := accepted()
	later.Hello.Version, later.Hello.Release = 2, "9.0"
	f.register <- registered{resp: later}
	_, err = c.Register(t.Context(), member())
	require.True(t, mqerr.Is(err, mqerr.Unsupported), "%v", err)
	require.ErrorContains(t, err, "9.0")
}

// TestRegisterGivesUp when it is told to stop.
func TestRegisterGivesUp(t *testing.T) {
	f, c := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := c.Register(ctx, member()); done <- err }()
	<-f.asked
	f.register <- registered{err: mqerr.New(mqerr.Unavailable, "not now")}
	cancel()
	err := <-done // of the call, or of the pause after it
	require.True(t, errors.Is(err, context.Canceled) || mqerr.Is(err, mqerr.Cancelled), "%v", err)
}

// logger notes what it is given and answers what the test wants.
type logger struct {
	got  chan *engine.Definitions
	errs chan error
}

func (d *logger) Define(_ context.Context, defs *engine.Definitions) error {
	d.got <- defs
	select {
	case err := <-d.errs:
		return err
	default:
		return nil
	}
}

// open runs a session until the returned function is called, which returns what Run did.
func open(t *testing.T, c *Client) (d *logger, defined chan struct{}, stop func() error) {
	d, defined = &logger{got: make(chan *engine.Definitions, 16), errs: make(chan error, 16)}, make(chan struct{}, 16)
	s := NewSession(c, 5, 2, Term{ClusterID: "c", ShardID: 5, Incarnation: 11, Epoch: 7})
	s.Release = "r"
	s.Lead(7, d, func() { defined <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return d, defined, stop
}

func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("it does not come")
		panic("unreachable")
	}
}

// until waits for a heartbeat that is as wanted.
func (f *fake) until(t *testing.T, want func(*controllerv1.BrokerHeartbeat) bool) *controllerv1.BrokerHeartbeat {
	t.Helper()
	for {
		b := next(t, f.beats)
		require.Equal(t, []any{uint32(5), uint32(2), uint64(11), uint64(7)}, []any{b.GetShard(), b.GetReplicaId(), b.GetIncarnation(), b.GetEpoch()})
		if want(b) {
			return b
		}
	}
}

func isHello(b *controllerv1.BrokerHeartbeat) bool { return b.GetHello() != nil }

func update(d *controllerv1.Definitions) step {
	return step{update: &controllerv1.BrokerUpdate{Definitions: d}}
}

func topicProto(id, shard uint32, queues int32) *controllerv1.Topic {
	return &controllerv1.Topic{
		Id: id, Name: "t", Version: 3, Flush: controllerv1.FlushPolicy_FLUSH_POLICY_ASYNC,
		Placements: []*controllerv1.Placement{{Shard: 99, Queues: 9}, {Shard: shard, Queues: queues}},
		Limits: &controllerv1.TopicLimits{
			MaxDelayMs: new(int64(9)), CheckAfterMs: new(int64(1)), CheckIntervalMs: new(int64(2000)), CheckLimit: new(int64(3)),
			DuplicateWindowMs: new(int64(-1)), LiteExpiryMs: new(int64(900_000)),
		},
	}
}

// TestDefinitions: what concerns the shard is logged, whole sets and changes, and then reported.
func TestDefinitions(t *testing.T) {
	f, c := start(t)
	d, defined, stop := open(t, c)
	hello := f.until(t, isHello)
	require.Equal(t, "c", hello.GetHello().GetClusterId())
	require.Zero(t, hello.GetAppliedVersion())

	f.script <- update(&controllerv1.Definitions{
		Full: true, Version: 9,
		Topics: []*controllerv1.Topic{topicProto(1, 5, 4), topicProto(2, 6, 4), topicProto(3, 5, 0)},
		Groups: []*controllerv1.Group{{Id: 8, Name: "g", From: controllerv1.StartFrom_START_FROM_LAST, BackoffMs: []int64{5}}},
	})
	defs := next(t, d.got)
	require.True(t, defs.Full)
	require.Len(t, defs.Topics, 1, "topics of other shards, and those without a queue here, are left out")
	require.EqualValues(t, 1, defs.Topics[0].ID)
	require.Equal(t, 4, defs.Topics[0].Queues)
	require.EqualValues(t, 2, defs.Topics[0].Flush)
	require.Equal(t, topic.Limits{CheckAfterMS: 1, CheckIntervalMS: 2000, CheckLimit: 3, DuplicatesMS: -1, LiteExpiryMS: 900_000}, defs.Topics[0].Limits)
	require.Equal(t, 1, defs.Groups[0].MaxAttempts)
	require.EqualValues(t, 1, defs.Groups[0].From)
	next(t, defined)
	f.until(t, func(b *controllerv1.BrokerHeartbeat) bool { return b.GetAppliedVersion() == 9 })

	f.script <- update(&controllerv1.Definitions{Version: 12, DeletedTopics: []uint32{1}, DeletedGroups: []uint32{8}})
	defs = next(t, d.got)
	require.False(t, defs.Full)
	require.EqualValues(t, 1, defs.DeletedTopics[0])
	require.EqualValues(t, 8, defs.DeletedGroups[0])
	f.until(t, func(b *controllerv1.BrokerHeartbeat) bool { return b.GetAppliedVersion() == 12 })
	require.Empty(t, defined, "ready once")

	require.NoError(t, stop())
	f.until(t, func(b *controllerv1.BrokerHeartbeat) bool { return b.GetResigning() })
}

// TestSessionComesBack: however the controller ends a session, short of fencing, the broker goes on and
// opens another one as the same incarnation.
func TestSessionComesBack(t *testing.T) {
	f, c := start(t)
	d, defined, stop := open(t, c)
	f.until(t, isHello)
	for _, err := range []error{
		nil, mqerr.New(mqerr.NotLeader, "stepped down"), mqerr.New(mqerr.Internal, "a bug"), mqerr.New(mqerr.Cancelled, "gone"),
		mqerr.New(mqerr.Unsupported, "too old"), mqerr.New(mqerr.Invalid, "another cluster"),
	} {
		f.script <- step{over: true, err: err}
		f.until(t, isHello)
	}
	d.errs <- mqerr.New(mqerr.DiskFull, "no room")
	f.script <- update(&controllerv1.Definitions{Full: true, Version: 9})
	next(t, d.got)
	require.True(t, next(t, d.got).Full, "it is tried again from the beginning")
	next(t, defined)
	f.until(t, func(b *controllerv1.BrokerHeartbeat) bool { return b.GetAppliedVersion() == 9 })
	require.NoError(t, stop())
}

// TestFenced: a broker whose place another one has ends.
//
//fault:operator a second process takes the place of a broker => the older one ends, told why
func TestFenced(t *testing.T) {
	for name, s := range map[string]step{
		"update": {update: &controllerv1.BrokerUpdate{Fenced: true}},
		"error":  {over: true, err: mqerr.New(mqerr.Fenced, "over")},
	} {
		t.Run(name, func(t *testing.T) {
			f, c := start(t)
			d := &logger{got: make(chan *engine.Definitions, 1)}
			done := make(chan error, 1)
			session := NewSession(c, 5, 2, Term{Incarnation: 11, Epoch: 7})
			session.Lead(7, d, nil)
			go func() { done <- session.Run(t.Context()) }()
			f.until(t, isHello)
			f.script <- s
			err := next(t, done)
			require.True(t, mqerr.Is(err, mqerr.Fenced), "%v", err)
		})
	}
}

// TestResignationIsNotWaitedForLong: a controller that does not answer holds no broker up.
func TestResignationIsNotWaitedForLong(t *testing.T) {
	f, c := start(t)
	f.stubborn = true
	_, _, stop := open(t, c)
	f.until(t, isHello)
	began := time.Now()
	require.NoError(t, stop())
	require.Less(t, time.Since(began), goodbyeTimeout+5*time.Second)
	f.until(t, func(b *controllerv1.BrokerHeartbeat) bool { return b.GetResigning() })
}

// TestSendOnAnEndedStream: gRPC tells the sender io.EOF, which says nothing.
func TestSendOnAnEndedStream(t *testing.T) {
	f, c := start(t)
	st, err := c.rpc.BrokerSession(t.Context())
	require.NoError(t, err)
	s := NewSession(c, 5, 2, Term{Incarnation: 11, Epoch: 7})
	f.script <- step{over: true, err: mqerr.New(mqerr.NotLeader, "stepped down")}
	for err == nil {
		err = s.beat(st, false)
	}
	end := ending{over: make(chan struct{}), err: s.receive(st)}
	close(end.over)
	err = end.why(t.Context(), func() {}, err)
	require.True(t, mqerr.Is(err, mqerr.NotLeader), "%v", err)
}
