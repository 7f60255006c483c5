package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/call"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves s on a loopback port until the test ends.
func start(t *testing.T, o Options) (*Server, string) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Drain(ctx)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, ln.Addr().String()
}

func dial(t *testing.T, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)
	conn, err := grpc.NewClient("passthrough:///"+addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func client(t *testing.T, addr string, opts ...grpc.DialOption) rmqv2.MessagingServiceClient {
	return rmqv2.NewMessagingServiceClient(dial(t, addr, opts...))
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// echoRoute answers QueryRoute with a queue that holds what the transport told.
func echoRoute(c call.Unary) {
	var q rmqv2.QueryRouteRequest
	if err := proto.Unmarshal(c.Request(), &q); err != nil {
		c.Fail(call.InvalidArgument, err.Error())
		return
	}
	_, bounded := c.Deadline()
	reply := &rmqv2.QueryRouteResponse{
		Status: &rmqv2.Status{Code: rmqv2.Code_OK, Message: fmt.Sprint(bounded, " ", c.Header("x-mq-client-id"), " ", c.Header("x-none"))},
		MessageQueues: []*rmqv2.MessageQueue{{
			Topic:  q.GetTopic(),
			Broker: &rmqv2.Broker{Name: c.Peer() + " " + c.Local()},
		}},
	}
	b, err := proto.Marshal(reply)
	if err != nil {
		c.Fail(call.Internal, err.Error())
		return
	}
	c.Reply(b)
}

func askRoute(t *testing.T, c rmqv2.MessagingServiceClient, topic string, opts ...grpc.CallOption) *rmqv2.QueryRouteResponse {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(short(t), "x-mq-client-id", "me@1")
	r, err := c.QueryRoute(ctx, &rmqv2.QueryRouteRequest{Topic: &rmqv2.Resource{Name: topic}}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.GetMessageQueues()[0].GetTopic().GetName(); got != topic {
		t.Fatalf("topic %d bytes came back as %d", len(topic), len(got))
	}
	return r
}

func TestUnary(t *testing.T) {
	_, addr := start(t, Options{Service: Service{QueryRoute: echoRoute}})
	c := client(t, addr)
	r := askRoute(t, c, "a")
	if got := r.GetStatus().GetMessage(); got != "true me@1 " {
		t.Errorf("deadline and headers: %q", got)
	}
	peer, local, _ := strings.Cut(r.GetMessageQueues()[0].GetBroker().GetName(), " ")
	if local != addr || !strings.HasPrefix(peer, "127.0.0.1:") || peer == addr {
		t.Errorf("peer %q local %q", peer, local)
	}
	askRoute(t, c, strings.Repeat("long ", 100_000)) // many frames
	askRoute(t, c, strings.Repeat("zip", 1000), grpc.UseCompressor(gzip.Name))
}

func TestTLSAndPlainOnOnePort(t *testing.T) {
	_, addr := start(t, Options{Service: Service{QueryRoute: echoRoute}, Hosts: []string{"proxy.example", "192.0.2.9"}})
	plain := client(t, addr)
	secure := client(t, addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	askRoute(t, plain, "plain")
	askRoute(t, secure, "secure")
	askRoute(t, secure, strings.Repeat("x", 100_000))

	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, host := range []string{"localhost", "127.0.0.1", "::1", "proxy.example", "192.0.2.9"} {
		if err := conn.ConnectionState().PeerCertificates[0].VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

// TestStrangersDisturbNobody opens connections that say nothing, nonsense, HTTP/1 or half a greeting.
func TestStrangersDisturbNobody(t *testing.T) {
	s, addr := start(t, Options{Service: Service{QueryRoute: echoRoute}, Handshake: 300 * time.Millisecond})
	c := client(t, addr)
	askRoute(t, c, "before")
	var wg sync.WaitGroup
	for _, greeting := range []string{
		"", "P", "PR", "PRI * HT", "\x16", "\x16\x03\x01\x00\x05hello", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		strings.Repeat("\x00\x01noise", 20), "PROXY TCP4 x", "PROXY NOTHING\r\n", "PROXY " + strings.Repeat("x", 200),
		"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x01x", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff",
	} {
		wg.Go(func() {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, greeting); err != nil {
				return // cut off already
			}
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
				t.Errorf("connection that said %.20q is still open", greeting)
			}
		})
	}
	askRoute(t, client(t, addr), "meanwhile")
	wg.Wait()
	askRoute(t, c, "after")
	// Nothing, P, PR, the first byte of TLS, half a line of PROXY, less than its binary head says.
	if n := s.Load().HandshakesLate; n < 5 {
		t.Errorf("%d connections were closed for being late", n)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestProxyHeader(t *testing.T) {
	_, addr := start(t, Options{Service: Service{QueryRoute: echoRoute}})
	for _, tc := range []struct{ name, header, peer string }{
		{"v1", "PROXY TCP4 192.0.2.1 192.0.2.2 4711 8081\r\n", "192.0.2.1:4711"},
		{"v1 IPv6", "PROXY TCP6 2001:db8::1 2001:db8::2 4711 8081\r\n", "[2001:db8::1]:4711"},
		{"v1 unknown", "PROXY UNKNOWN\r\n", "127.0.0.1:"},
		{"v2", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0f\xc0\x00\x02\x01\xc0\x00\x02\x02\x12\x67\x1f\x91\x03\x00\x00", "192.0.2.1:4711"},
		{"v2 local", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", "127.0.0.1:"},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.name, " TLS ", secure), func(t *testing.T) {
				opts := []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
					if err == nil {
						_, err = io.WriteString(conn, tc.header)
					}
					return conn, err
				})}
				if secure {
					opts = append(opts, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
				}
				r := askRoute(t, client(t, addr, opts...), "a")
				if got := r.GetMessageQueues()[0].GetBroker().GetName(); !strings.HasPrefix(got, tc.peer) {
					t.Errorf("peer and local are %q, want %q", got, tc.peer)
				}
			})
		}
	}
}

func TestUnimplementedAndUnknown(t *testing.T) {
	_, addr := start(t, Options{})
	conn := dial(t, addr)
	c := rmqv2.NewMessagingServiceClient(conn)
	if _, err := c.GetOffset(short(t), &rmqv2.GetOffsetRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("method without handler: %v", err)
	}
	pull, err := c.PullMessage(short(t), &rmqv2.PullMessageRequest{})
	if err == nil {
		_, err = pull.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("stream without handler: %v", err)
	}
	err = conn.Invoke(short(t), "/apache.rocketmq.v2.MessagingService/NoSuchMethod", &rmqv2.QueryRouteRequest{}, &rmqv2.QueryRouteResponse{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("unknown method: %v", err)
	}
}

func TestHealthAndReflection(t *testing.T) {
	s, addr := start(t, Options{Service: Service{QueryRoute: echoRoute}})
	conn := dial(t, addr)
	h := healthv1.NewHealthClient(conn)
	for _, want := range []healthv1.HealthCheckResponse_ServingStatus{healthv1.HealthCheckResponse_NOT_SERVING, healthv1.HealthCheckResponse_SERVING} {
		r, err := h.Check(short(t), &healthv1.HealthCheckRequest{})
		if err != nil || r.GetStatus() != want {
			t.Errorf("health is %v, %v, want %v", r, err, want)
		}
		s.SetServing(true)
	}
	for _, version := range []string{"v1", "v1alpha"} {
		stream, err := conn.NewStream(short(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			"/grpc.reflection."+version+".ServerReflection/ServerReflectionInfo")
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []*reflectv1.ServerReflectionRequest{
			{MessageRequest: &reflectv1.ServerReflectionRequest_ListServices{}},
			{MessageRequest: &reflectv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: serviceName}},
		} {
			r := &reflectv1.ServerReflectionResponse{}
			if err := stream.SendMsg(q); err != nil {
				t.Fatal(err)
			}
			if err := stream.RecvMsg(r); err != nil || !strings.Contains(r.String(), "MessagingService") {
				t.Errorf("reflection %s: %v, %v", version, r, err)
			}
		}
	}
}

// TestCompletionElsewhere completes calls from another goroutine, twice, and after the caller left.
func TestCompletionElsewhere(t *testing.T) {
	late := make(chan call.Unary, 1)
	var wg sync.WaitGroup
	_, addr := start(t, Options{Service: Service{
		QueryRoute: func(c call.Unary) {
			wg.Go(func() {
				c.Reply(nil)
				c.Reply([]byte("garbage"))
				c.Fail(call.Internal, "too late")
			})
		},
		Heartbeat:   func(c call.Unary) { late <- c },
		SendMessage: func(c call.Unary) { c.Fail(call.InvalidArgument, "no") },
	}})
	c := client(t, addr)
	for range 200 {
		if r, err := c.QueryRoute(short(t), &rmqv2.QueryRouteRequest{}); err != nil || r.GetStatus() != nil {
			t.Fatalf("reply %v, %v", r, err)
		}
	}
	if _, err := c.SendMessage(short(t), &rmqv2.SendMessageRequest{}); status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != "no" {
		t.Errorf("failure arrives as %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := c.Heartbeat(ctx, &rmqv2.HeartbeatRequest{Group: &rmqv2.Resource{Name: "kept"}})
		gone <- err
	}()
	u := <-late
	cancel()
	if err := <-gone; status.Code(err) != codes.Canceled {
		t.Errorf("cancelled call: %v", err)
	}
	<-u.Context().Done()
	if !strings.Contains(string(u.Request()), "kept") {
		t.Error("the request is gone before the call is completed")
	}
	u.Reply(nil)
	wg.Wait()
}

func TestPanicsAreAnswered(t *testing.T) {
	_, addr := start(t, Options{Service: Service{
		QueryRoute:     func(call.Unary) { panic("unary") },
		ReceiveMessage: func(call.Stream) { panic("stream") },
		Telemetry:      func(call.Duplex) error { panic("duplex") },
	}})
	c := client(t, addr)
	for range 3 {
		if _, err := c.QueryRoute(short(t), &rmqv2.QueryRouteRequest{}); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "unary") {
			t.Errorf("unary: %v", err)
		}
		r, err := c.ReceiveMessage(short(t), &rmqv2.ReceiveMessageRequest{})
		if err == nil {
			_, err = r.Recv()
		}
		if status.Code(err) != codes.Internal {
			t.Errorf("stream: %v", err)
		}
		d, err := c.Telemetry(short(t))
		if err == nil {
			_, err = d.Recv()
		}
		if status.Code(err) != codes.Internal {
			t.Errorf("duplex: %v", err)
		}
	}
}

func TestStream(t *testing.T) {
	sent := make(chan error, 1)
	_, addr := start(t, Options{Service: Service{ReceiveMessage: func(c call.Stream) {
		go func() {
			for range 3 {
				if err := c.Send(statusBytes(t)); err != nil {
					sent <- err
					c.End()
					return
				}
			}
			c.End()
			c.Fail(call.Internal, "too late")
			sent <- c.Send(nil)
		}()
	}}})
	r, err := client(t, addr).ReceiveMessage(short(t), &rmqv2.ReceiveMessageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		m, err := r.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || m.GetStatus().GetCode() != rmqv2.Code_OK {
			t.Fatalf("message %v, %v", m, err)
		}
		n++
	}
	if err := <-sent; n != 3 || err == nil {
		t.Errorf("%d messages came; a send after the end says %v", n, err)
	}
}

func statusBytes(t *testing.T) []byte {
	b, err := proto.Marshal(&rmqv2.ReceiveMessageResponse{Content: &rmqv2.ReceiveMessageResponse_Status{Status: &rmqv2.Status{Code: rmqv2.Code_OK}}})
	if err != nil {
		t.Error(err)
	}
	return b
}

// TestSendToNobody has a caller that goes away: a send must not look as if it had arrived.
func TestSendToNobody(t *testing.T) {
	begun, result := make(chan struct{}), make(chan error, 1)
	_, addr := start(t, Options{Service: Service{ReceiveMessage: func(c call.Stream) {
		close(begun)
		<-c.Context().Done()
		result <- c.Send(statusBytes(t))
		c.End()
	}}})
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := client(t, addr).ReceiveMessage(ctx, &rmqv2.ReceiveMessageRequest{}); err != nil {
		t.Fatal(err)
	}
	<-begun
	cancel()
	if err := <-result; err == nil {
		t.Error("sent to a caller that is gone")
	}
}

func TestDuplex(t *testing.T) {
	_, addr := start(t, Options{Service: Service{Telemetry: func(d call.Duplex) error {
		if err := d.SendHeaders(); err != nil {
			return err
		}
		for {
			b, err := d.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case len(b) == 0:
				return &call.Failure{Code: call.InvalidArgument, Text: "empty"}
			}
			if err := d.Send(append([]byte(nil), b...)); err != nil {
				return err
			}
		}
	}}})
	c := client(t, addr)
	d, err := c.Telemetry(short(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Header(); err != nil { // comes before any message
		t.Fatal(err)
	}
	for i := range 3 {
		want := &rmqv2.TelemetryCommand{Status: &rmqv2.Status{Message: fmt.Sprint(i)}}
		if err := d.Send(want); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Recv(); err != nil || !proto.Equal(got, want) {
			t.Fatalf("echo is %v, %v", got, err)
		}
	}
	if err := d.Send(&rmqv2.TelemetryCommand{}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("failure arrives as %v", err)
	}
	closed, err := c.Telemetry(short(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.CloseSend()
	if _, err := closed.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("a stream that was closed ends with %v", err)
	}
}

// TestDrain has a telemetry stream, a call that is answered meanwhile, and one that never is.
func TestDrain(t *testing.T) {
	held := make(chan call.Unary, 2)
	var ended atomic.Bool
	s, err := New(Options{Service: Service{
		SendMessage: func(c call.Unary) { held <- c },
		Telemetry: func(d call.Duplex) error {
			_ = d.SendHeaders()
			_, err := d.Recv()
			ended.Store(err != nil && d.Send(nil) != nil)
			return err
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	s.SetServing(true)
	c := client(t, ln.Addr().String())
	d, err := c.Telemetry(short(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Header(); err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := c.SendMessage(short(t), &rmqv2.SendMessageRequest{})
			results <- err
		}()
	}
	answered := <-held
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() { defer close(drained); s.Drain(ctx) }()
	if _, err := d.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	answered.Reply(nil)
	if err := <-results; err != nil {
		t.Errorf("a call that is answered while draining: %v", err)
	}
	cancel()
	if err := <-results; status.Code(err) != codes.Unavailable {
		t.Errorf("a call that is not answered: %v", err)
	}
	<-drained
	if !ended.Load() {
		t.Error("the stream's handler has not seen the end")
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestAuthIsAskedForOtherServicesOnly(t *testing.T) {
	_, addr := start(t, Options{
		Service: Service{QueryRoute: echoRoute, ReceiveMessage: func(c call.Stream) { c.End() }},
		Auth: func(ctx context.Context, method string) (context.Context, error) {
			return ctx, status.Error(codes.PermissionDenied, method)
		},
	})
	conn := dial(t, addr)
	askRoute(t, rmqv2.NewMessagingServiceClient(conn), "a")
	_, err := healthv1.NewHealthClient(conn).Check(short(t), &healthv1.HealthCheckRequest{})
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "/grpc.health.v1.Health/Check") {
		t.Errorf("health: %v", err)
	}
	r, err := rmqv2.NewMessagingServiceClient(conn).ReceiveMessage(short(t), &rmqv2.ReceiveMessageRequest{})
	if err == nil {
		_, err = r.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("receive: %v", err)
	}
}

func TestRequestTooLarge(t *testing.T) {
	_, addr := start(t, Options{Service: Service{QueryRoute: echoRoute}, RequestBytes: 1000})
	c := client(t, addr)
	_, err := c.QueryRoute(short(t), &rmqv2.QueryRouteRequest{Topic: &rmqv2.Resource{Name: strings.Repeat("x", 2000)}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("too large: %v", err)
	}
	// A small compressed request must not become a large one.
	_, err = c.QueryRoute(short(t), &rmqv2.QueryRouteRequest{Topic: &rmqv2.Resource{Name: strings.Repeat("x", 100_000)}}, grpc.UseCompressor(gzip.Name))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("too large when decompressed: %v", err)
	}
	askRoute(t, c, "small")
}

// TestNumberOfRequests sends none and two to a unary call.
func TestNumberOfRequests(t *testing.T) {
	_, addr := start(t, Options{Service: Service{QueryRoute: echoRoute}})
	conn := dial(t, addr)
	for _, n := range []int{0, 2} {
		stream, err := conn.NewStream(short(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/"+serviceName+"/QueryRoute")
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			if err := stream.SendMsg(&rmqv2.QueryRouteRequest{Topic: &rmqv2.Resource{Name: "a"}}); err != nil {
				t.Fatal(err)
			}
		}
		_ = stream.CloseSend()
		if err := stream.RecvMsg(&rmqv2.QueryRouteResponse{}); status.Code(err) != codes.Internal {
			t.Errorf("%d requests: %v", n, err)
		}
	}
}
