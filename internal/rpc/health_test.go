package rpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/perigee-mq/perigee/internal/rpc"
)

// TestHealthService: a port and its services are "not serving" until told otherwise, watches follow, and
// the end tells every watch before it ends it, so that a graceful stop does not wait for watchers.
func TestHealthService(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	h := rpc.NewHealth("a.Service")
	ln, srv := bufconn.Listen(1<<16), grpc.NewServer(grpc.WaitForHandlers(true))
	h.Register(srv)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	require.NoError(t, err)
	defer conn.Close()
	client := healthv1.NewHealthClient(conn)
	is := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, service := range []string{"", "a.Service"} {
			r, err := client.Check(ctx, &healthv1.HealthCheckRequest{Service: service})
			require.NoError(t, err)
			require.Equal(t, want, r.GetStatus(), service)
		}
	}
	is(healthv1.HealthCheckResponse_NOT_SERVING)
	_, err = client.Check(ctx, &healthv1.HealthCheckRequest{Service: "b.Service"})
	require.Equal(t, codes.NotFound, status.Code(err))

	next := func(w healthv1.Health_WatchClient, want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		r, err := w.Recv()
		require.NoError(t, err)
		require.Equal(t, want, r.GetStatus())
	}
	var watches []healthv1.Health_WatchClient
	for _, service := range []string{"", "a.Service"} {
		w, err := client.Watch(ctx, &healthv1.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		next(w, healthv1.HealthCheckResponse_NOT_SERVING)
		watches = append(watches, w)
	}
	unknown, err := client.Watch(ctx, &healthv1.HealthCheckRequest{Service: "b.Service"})
	require.NoError(t, err)
	next(unknown, healthv1.HealthCheckResponse_SERVICE_UNKNOWN)
	left, leave := context.WithCancel(ctx)
	gone, err := client.Watch(left, &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	next(gone, healthv1.HealthCheckResponse_NOT_SERVING)
	leave()

	h.SetServing(true)
	is(healthv1.HealthCheckResponse_SERVING)
	for _, w := range watches {
		next(w, healthv1.HealthCheckResponse_SERVING)
	}

	h.End()
	h.SetServing(true)
	is(healthv1.HealthCheckResponse_NOT_SERVING)
	for _, w := range watches {
		next(w, healthv1.HealthCheckResponse_NOT_SERVING)
		_, err := w.Recv()
		require.Equal(t, codes.Unavailable, status.Code(err), err)
	}
	_, err = unknown.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), err)
	srv.GracefulStop() // nobody holds it up
	require.NoError(t, <-served)
}
