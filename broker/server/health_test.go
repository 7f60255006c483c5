package server_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	brokerv1 "github.com/perigee-mq/perigee/api/perigee/broker/v1"
	"github.com/perigee-mq/perigee/broker/server"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/brokerapi/brokerapitest/membroker"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/link/grpclink"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// TestBeforeBegin: while the broker starts its port answers: health says "not serving", a link waits a
// while and is then refused, or served when the broker leads.
func TestBeforeBegin(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := server.New(server.Options{Name: "a/1", Release: "test", HandshakeTimeout: 50 * time.Millisecond})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	health := healthv1.NewHealthClient(conn)
	is := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, service := range []string{"", "perigee.broker.v1.LinkService"} {
			r, err := health.Check(ctx, &healthv1.HealthCheckRequest{Service: service})
			require.NoError(t, err)
			require.Equal(t, want, r.GetStatus())
		}
	}
	is(healthv1.HealthCheckResponse_NOT_SERVING)
	openLink := func() (link.Transport, error) {
		tr, _, err := grpclink.Open(ctx, dial(t, l.Addr().String()), grpclink.Hello{Cluster: "c1", Name: "p", Release: "test"})
		return tr, err
	}
	_, err = openLink()
	require.ErrorContains(t, err, "broker a/1 is starting: its /readyz says how far it is")

	mem := membroker.New(membroker.Options{Topics: map[brokerapi.TopicID]int{1: 1}})
	s.Begin(server.Leader{Connector: mem, ClusterID: "c1", Shard: 5, Epoch: 3})
	is(healthv1.HealthCheckResponse_NOT_SERVING)
	s.SetServing(true)
	is(healthv1.HealthCheckResponse_SERVING)
	tr, err := openLink()
	require.NoError(t, err)
	require.NoError(t, tr.Close())

	s.Drain(ctx)
	require.NoError(t, <-served)
	s.Drain(ctx) // again: nothing is left to do
}

// TestDrainBeforeBegin: a start that fails does not wait for links that wait for it.
func TestDrainBeforeBegin(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := server.New(server.Options{Name: "a/1", Release: "test", HandshakeTimeout: time.Hour})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	stream, err := brokerv1.NewLinkServiceClient(conn).Link(ctx)
	require.NoError(t, err)
	_, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}) // the link is there, too
	require.NoError(t, err)
	s.Drain(ctx)
	require.NoError(t, <-served)
	_, err = stream.Recv()
	require.Error(t, err)
	require.NotEqual(t, mqerr.Timeout, mqerr.KindOf(err))
}
