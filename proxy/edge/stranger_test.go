package edge

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStrangersHoldNoDrain, wherever in the handshake they have stopped: it may take an hour here.
func TestStrangersHoldNoDrain(t *testing.T) {
	s, addr := start(t, Options{Service: Service{QueryRoute: echoRoute}, Handshake: time.Hour})
	dial := func(says string) net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = c.Write([]byte(says))
		require.NoError(t, err)
		return c
	}
	for _, says := range []string{"", "P", "\x16\x03\x01", "PROXY TCP4 "} {
		dial(says)
	}
	unknown := func() int {
		s.sniffer.mu.Lock()
		defer s.sniffer.mu.Unlock()
		return len(s.sniffer.unknown)
	}
	require.Eventually(t, func() bool { return unknown() == 4 }, 20*time.Second, time.Millisecond)
	drained := make(chan struct{})
	go func() { s.Drain(t.Context()); close(drained) }()
	select {
	case <-drained:
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for strangers")
	}
	require.Zero(t, unknown())
}

// TestStrangersAreCutOff, who have come as far as HTTP/2 and say nothing there, with all others.
func TestStrangersAreCutOff(t *testing.T) {
	s, addr := start(t, Options{Service: Service{QueryRoute: echoRoute}, Handshake: time.Hour})
	plain, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = plain.Close() })
	_, err = plain.Write([]byte("PRI * HTTP"))
	require.NoError(t, err)
	secure, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(t.Context(), "tcp", addr) //nolint:gosec // a test's own server
	require.NoError(t, err)
	t.Cleanup(func() { _ = secure.Close() })
	require.Eventually(t, func() bool {
		s.sniffer.mu.Lock()
		defer s.sniffer.mu.Unlock()
		return len(s.sniffer.young) == 2 && len(s.sniffer.unknown) == 0
	}, 20*time.Second, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no patience with anybody
	drained := make(chan struct{})
	go func() { s.Drain(ctx); close(drained) }()
	select {
	case <-drained:
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for strangers")
	}
}
