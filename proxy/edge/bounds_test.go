package edge

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
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
	r, err := c.QueryRoute(short(t), &rmqv2.QueryRouteRequest{}, grpc.Trailer(&trailer))
	refused(t, "unary", err, r.GetStatus(), trailer)
	large := &rmqv2.QueryRouteRequest{Topic: &rmqv2.Resource{Name: strings.Repeat("x", 8<<20)}} // nobody reads it
	r, err = c.QueryRoute(short(t), large, grpc.Trailer(&trailer))
	refused(t, "large", err, r.GetStatus(), trailer)
	from := time.Now()
	receive, err := c.ReceiveMessage(short(t), &rmqv2.ReceiveMessageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := receive.Recv()
	if took := time.Since(from); took < callsPause {
		t.Fatalf("a refused receive is answered after %v: the client asks again at once", took)
	}
	_, end := receive.Recv()
	if !errors.Is(end, io.EOF) {
		t.Fatal(end)
	}
	refused(t, "receive", err, answer.GetStatus(), receive.Trailer())
	telemetry, err := c.Telemetry(short(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = telemetry.Recv()
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "(retry after 1000 ms)") || len(telemetry.Trailer().Get("retry-after-ms")) != 1 {
		t.Fatalf("a telemetry stream too many: %v, %v", err, telemetry.Trailer())
	}
	if l := s.Load(); l.Calls != 2 || l.CallsRefused != 4 {
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

// refused checks the answer to a call too many: the public code, the pause in its text and in the trailer.
func refused(t *testing.T, what string, err error, st *rmqv2.Status, trailer metadata.MD) {
	t.Helper()
	if err != nil || st.GetCode() != rmqv2.Code_TOO_MANY_REQUESTS || !strings.Contains(st.GetMessage(), "(retry after 1000 ms)") {
		t.Fatalf("%s: a call too many: %v, %v", what, err, st)
	}
	if v := trailer.Get("retry-after-ms"); len(v) != 1 || v[0] != "1000" {
		t.Fatalf("%s: retry-after-ms is %q", what, v)
	}
}

// TestHeldReceivesAreBounded: of many receives too many, few take their pause here; the others are answered at once.
func TestHeldReceivesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{o: Options{Calls: 2 * heldShare}, draining: make(chan struct{})}
		began := time.Now()
		took := func(ctx context.Context) chan time.Duration {
			c := make(chan time.Duration, 1)
			go func() {
				s.hold(aCall{ctx: ctx})
				c <- time.Since(began)
			}()
			synctest.Wait()
			return c
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second, third := took(t.Context()), took(ctx), took(t.Context())
		if d := <-third; d != 0 {
			t.Errorf("one too many waits %v", d)
		}
		time.Sleep(callsPause / 4)
		cancel()
		if d := <-second; d != callsPause/4 {
			t.Errorf("one that is gone waits %v", d)
		}
		if d := <-first; d != callsPause {
			t.Errorf("it waits %v", d)
		}
		last := took(t.Context())
		close(s.draining)
		if d := <-last; d != callsPause {
			t.Errorf("at a drain it waits until %v", d)
		}
	})
}

// aCall is a stream that knows its context only.
type aCall struct {
	grpc.ServerStream
	ctx context.Context
}

func (a aCall) Context() context.Context { return a.ctx }
