package edge

import (
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/call"
)

// TestTooManyConnections: those beyond the bound are closed at once, and when some are closed others are taken.
func TestTooManyConnections(t *testing.T) {
	s, addr := start(t, Options{Connections: 3})
	dialed := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var within []net.Conn
	for range 3 {
		within = append(within, dialed())
	}
	over := dialed()
	_ = over.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := over.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Fatalf("a connection beyond the bound stays open: %v", err)
	}
	if l := s.Load(); l.Connections != 3 || l.ConnectionsRefused != 1 {
		t.Fatalf("%+v", l)
	}
	for _, c := range within {
		_ = c.Close()
	}
	for end := time.Now().Add(10 * time.Second); s.Load().Connections > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("closed connections still count: %+v", s.Load())
		}
	}
	c := dialed()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 9)); err != nil {
		t.Fatalf("a connection within the bound is not served: %v", err)
	}
}

// TestTooManyCalls: a call beyond the bound is refused with a pause, and taken when another has ended.
func TestTooManyCalls(t *testing.T) {
	held := make(chan call.Unary, 2)
	s, addr := start(t, Options{Calls: 2, Service: Service{QueryRoute: func(c call.Unary) { held <- c }}})
	c := client(t, addr)
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := c.QueryRoute(short(t), &rmqv2.QueryRouteRequest{})
			results <- err
		}()
	}
	first, second := <-held, <-held
	var trailer metadata.MD
	_, err := c.QueryRoute(short(t), &rmqv2.QueryRouteRequest{}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.ResourceExhausted || len(trailer.Get("retry-after-ms")) != 1 {
		t.Fatalf("a call too many: %v, %v", err, trailer)
	}
	if l := s.Load(); l.Calls != 2 || l.CallsRefused != 1 {
		t.Fatalf("%+v", l)
	}
	first.Reply(statusBytes(t))
	second.Reply(statusBytes(t))
	for range 2 {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
}
