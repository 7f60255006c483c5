package rpc

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// TestSilentStrangerHoldsNoStop: and a client is let go in good order.
func TestSilentStrangerHoldsNoStop(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gate := NewGate(ln, NewBound(100))
	s, h := grpc.NewServer(), NewHealth()
	h.Register(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(gate) }()

	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	var strangers []net.Conn
	for _, says := range []string{"", "PRI * HT"} {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
		require.NoError(t, err)
		_, err = c.Write([]byte(says))
		require.NoError(t, err)
		strangers = append(strangers, c)
	}
	require.Eventually(t, func() bool { return gate.strangers() == len(strangers) }, 20*time.Second, time.Millisecond)

	gate.Shut()
	stopped := make(chan struct{})
	go func() { s.GracefulStop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(20 * time.Second):
		t.Fatal("the stop waits for strangers")
	}
	require.NoError(t, <-served)
	for _, c := range strangers {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
		_, err = io.Copy(io.Discard, c)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, c.Close())
	}
	require.Zero(t, gate.strangers())
	require.Zero(t, gate.bound.Open())
}

// TestTooManyConnections: one too many is closed at once, and there is room again when another one goes.
func TestTooManyConnections(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	bound := NewBound(2)
	s := grpc.NewServer()
	served := make(chan error, 1)
	gate := NewGate(ln, bound)
	go func() { served <- s.Serve(gate) }()
	dial := func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
		return c
	}
	a, _ := dial(), dial()
	require.Eventually(t, func() bool { return bound.Open() == 2 }, 20*time.Second, time.Millisecond)
	_, err = io.Copy(io.Discard, dial())
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.EqualValues(t, 1, bound.Refused())
	require.NoError(t, a.Close())
	require.Eventually(t, func() bool { return bound.Open() == 1 }, 20*time.Second, time.Millisecond)
	dial()
	require.Eventually(t, func() bool { return bound.Open() == 2 }, 20*time.Second, time.Millisecond)
	gate.Shut()
	s.Stop()
	require.NoError(t, <-served)
	require.Zero(t, bound.Open())
	require.EqualValues(t, 1, bound.Refused())
}

func (g *Gate) strangers() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.fresh)
}
