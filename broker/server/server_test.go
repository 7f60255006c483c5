package server_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	brokerv1 "github.com/perigee-mq/perigee/api/perigee/broker/v1"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/server"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/brokerapi/brokerapitest"
	"github.com/perigee-mq/perigee/internal/brokerapi/brokerapitest/membroker"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/link/brokerlink"
	"github.com/perigee-mq/perigee/internal/link/grpclink"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newEngine is a harness around the real engine.
func newEngine(t *testing.T) brokerapitest.Harness {
	st, err := store.Open(store.Options{FS: vfs.OS, Dir: t.TempDir(), SegmentBytes: 16 << 20})
	require.NoError(t, err)
	e, err := engine.Open(engine.Options{Store: st, SessionTimeout: time.Second, GoodbyeDelay: 200 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, e.Start(engine.Identity{Epoch: 3, Incarnation: 1}))
	t.Cleanup(func() {
		_, err := e.Close()
		require.NoError(t, err)
		require.NoError(t, st.Close())
	})
	require.NoError(t, e.Define(t.Context(), &engine.Definitions{
		Topics: []topic.Definition{
			{ID: 1, Name: "one", Queues: 4, Version: 1},
			{ID: 2, Name: "two", Queues: 4, Version: 2},
			{ID: 30, Name: "%DLQ%a", Queues: 1, Version: 4},
			{ID: 31, Name: "parent", Type: 5, Queues: 1, Version: 2},
		},
		Groups: []group.Definition{
			{ID: 7, Name: "a", MaxAttempts: 17, Version: 3},
			{ID: 8, Name: "b", MaxAttempts: 17, Version: 4},
			{ID: 30, Name: "lite", MaxAttempts: 17, LiteTopic: "parent", Version: 4},
		},
		Full: true, Version: 4,
	}))
	return brokerapitest.Harness{
		Connector: e, Topic: 1, OtherTopic: 2, Queues: 4, Group: 7, OtherGroup: 8, Epoch: 3,
		SessionTimeout: time.Second, GoodbyeDelay: 200 * time.Millisecond, Pulls: true, Delays: true, Dead: 30, Transactions: true,
		LiteParent: 31, LiteGroup: 30,
	}
}

func TestSuiteOnEngine(t *testing.T) { brokerapitest.Run(t, newEngine) }

func TestSuiteOnEngineOverNetwork(t *testing.T) {
	brokerapitest.Run(t, func(t *testing.T) brokerapitest.Harness {
		h := newEngine(t)
		h.Connector = dialer{t, listen(t, server.Options{Leader: server.Leader{Connector: h.Connector, Shard: 5, Epoch: 3}})}
		return h
	})
}

// listen starts a server that is drained at the end.
func listen(t *testing.T, o server.Options) string {
	o.ClusterID, o.Name, o.Release = "c1", "a/1", "test"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := server.New(o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.Drain(ctx)
		require.NoError(t, <-served)
	})
	return l.Addr().String()
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	opts := append(rpc.DialOptions(), grpclink.DialOptions()...)
	cc, err := grpc.NewClient(address, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// dialer attaches over one stream, without coming back.
type dialer struct {
	t       *testing.T
	address string
}

func (d dialer) Attach(proxy string, ev brokerapi.Events) (brokerapi.Broker, error) {
	t, peer, err := grpclink.Open(context.Background(), dial(d.t, d.address), grpclink.Hello{Cluster: "c1", Name: proxy, Release: "test"})
	if err != nil {
		return nil, err
	}
	require.Equal(d.t, grpclink.Hello{Release: "test", Cluster: "c1", Name: "a/1", Shard: 5, Epoch: 3}, peer)
	return brokerlink.NewClient(t, ev, link.Options{}), nil
}

// Whoever does not keep to the handshake is refused with a reason, and leaves nothing behind.
func TestHandshake(t *testing.T) {
	mem := membroker.New(membroker.Options{Topics: map[brokerapi.TopicID]int{1: 1}})
	address := listen(t, server.Options{Leader: server.Leader{Connector: mem, Shard: 5, Epoch: 3}, HandshakeTimeout: 100 * time.Millisecond})
	hello := func(h *brokerv1.LinkHello) *brokerv1.LinkRequest { return &brokerv1.LinkRequest{Hello: h} }
	for name, test := range map[string]struct {
		first *brokerv1.LinkRequest
		kind  mqerr.Kind
		text  string
	}{
		"version":  {hello(&brokerv1.LinkHello{Version: 2, ClusterId: "c1", Name: "p", Release: "9.9"}), mqerr.Unsupported, "p (release 9.9) speaks version 2 of the link, a/1 (release test) speaks version 1"},
		"cluster":  {hello(&brokerv1.LinkHello{Version: 1, ClusterId: "other", Name: "p"}), mqerr.Invalid, "cluster"},
		"no hello": {&brokerv1.LinkRequest{Frames: []byte("x")}, mqerr.Invalid, "hello"},
		"silence":  {nil, mqerr.Timeout, "no hello within"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			stream, err := brokerv1.NewLinkServiceClient(dial(t, address)).Link(ctx)
			require.NoError(t, err)
			if test.first != nil {
				require.NoError(t, stream.Send(test.first))
			}
			_, err = stream.Recv()
			require.Equal(t, test.kind, mqerr.KindOf(err), "error: %v", err)
			require.ErrorContains(t, err, test.text)
			require.Zero(t, mem.Sessions())
		})
	}
}

// A proxy that sends garbage after its hello is told what was wrong; its session is closed.
func TestGarbage(t *testing.T) {
	mem := membroker.New(membroker.Options{Topics: map[brokerapi.TopicID]int{1: 1}})
	address := listen(t, server.Options{Leader: server.Leader{Connector: mem, Shard: 5}})
	for name, packet := range map[string]*brokerv1.LinkRequest{
		"frames":        {Frames: []byte("this is no frame at all")},
		"another hello": {Hello: &brokerv1.LinkHello{Version: 1}},
		"empty":         {},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			stream, err := brokerv1.NewLinkServiceClient(dial(t, address)).Link(ctx)
			require.NoError(t, err)
			require.NoError(t, stream.Send(&brokerv1.LinkRequest{Hello: &brokerv1.LinkHello{Version: 1, ClusterId: "c1", Name: "p"}}))
			m, err := stream.Recv()
			require.NoError(t, err)
			require.Equal(t, "c1", m.GetHello().GetClusterId())
			require.NoError(t, stream.Send(packet))
			for err == nil {
				_, err = stream.Recv() // windows, then the end
			}
			if name == "frames" {
				require.True(t, mqerr.Is(err, mqerr.Invalid), "error: %v", err)
			}
			require.Eventually(t, func() bool { return mem.Sessions() == 0 }, 10*time.Second, time.Millisecond)
		})
	}
}
