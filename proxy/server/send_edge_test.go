package server

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/edge"
)

// port serves the world's sending side and returns its address.
func (w *world) port(t *testing.T) string {
	t.Helper()
	e, err := edge.New(edge.Options{Service: edge.Service{SendMessage: w.SendMessage, QueryRoute: w.QueryRoute, QueryAssignment: w.QueryAssignment}})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- e.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		e.Drain(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func connect(t *testing.T, addr string, c credentials.TransportCredentials) rmqv2.MessagingServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return rmqv2.NewMessagingServiceClient(conn)
}

// TestSendOnTheWire sends small and large messages over both kinds of connections.
func TestSendOnTheWire(t *testing.T) {
	w := newWorld(t, nil)
	addr := w.port(t)
	for _, c := range []credentials.TransportCredentials{
		insecure.NewCredentials(), credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}),
	} {
		client := connect(t, addr, c)
		for _, size := range []int{1, 100_000, 4 << 20} {
			ctx, cancel := asClient(t, "c", 10*time.Second)
			sent := plain(body(size), func(m *rmqv2.Message) { m.Body[size-1] = 7 }, sys(func(p *rmqv2.SystemProperties) { p.BornHost = "" }))
			r, err := client.SendMessage(ctx, &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{sent}})
			cancel()
			if err != nil || r.GetStatus().GetCode() != rmqv2.Code_OK || len(r.GetEntries()) != 1 {
				t.Fatalf("%d bytes: %v, %v", size, r, err)
			}
			got := w.brokers[1].last()
			if b := got.Messages[0].Body; len(b) != size || b[size-1] != 7 {
				t.Errorf("%d bytes arrived of %d", len(b), size)
			}
			if left := time.Until(got.Deadline); left <= 0 || left > 10*time.Second {
				t.Errorf("the broker has %v", left)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := connect(t, addr, insecure.NewCredentials()).QueryRoute(ctx, &rmqv2.QueryRouteRequest{Topic: &rmqv2.Resource{Name: "normal"}})
	if err != nil || r.GetStatus().GetCode() != rmqv2.Code_CLIENT_ID_REQUIRED {
		t.Errorf("without headers: %v, %v", r, err)
	}
}

// TestCancelledSend has callers that leave before the broker answers. The bytes must stay untouched
// until then, whoever uses the connection meanwhile.
func TestCancelledSend(t *testing.T) {
	w := newWorld(t, nil)
	held := make(chan func(), 100)
	w.brokers[1].later = held
	client := connect(t, w.port(t), insecure.NewCredentials())
	var answers []func()
	for range 20 {
		ctx, cancel := asClient(t, "c", time.Minute)
		gone := make(chan error, 1)
		go func() {
			_, err := client.SendMessage(ctx, &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{plain(body(10_000))}})
			gone <- err
		}()
		answers = append(answers, <-held)
		cancel()
		if err := <-gone; status.Code(err) != codes.Canceled {
			t.Fatalf("cancelled send: %v", err)
		}
	}
	for _, answer := range answers {
		answer()
	}
	w.brokers[1].mu.Lock()
	w.brokers[1].later = nil
	w.brokers[1].mu.Unlock()
	ctx, cancel := asClient(t, "c", 10*time.Second)
	defer cancel()
	r, err := client.SendMessage(ctx, &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{plain()}})
	if err != nil || r.GetStatus().GetCode() != rmqv2.Code_OK {
		t.Errorf("afterwards: %v, %v", r, err)
	}
}
