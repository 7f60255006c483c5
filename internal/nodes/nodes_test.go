package nodes

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a controller that does what a test wants.
type node struct {
	controllerv1.UnimplementedControllerServiceServer
	addr  string
	g     *grpc.Server
	calls atomic.Int64
	put   func() error
	watch func() error
}

func (n *node) PutTopic(context.Context, *controllerv1.PutTopicRequest) (*controllerv1.PutTopicResponse, error) {
	n.calls.Add(1)
	if n.put != nil {
		if err := n.put(); err != nil {
			return nil, rpc.ToStatus(err)
		}
	}
	return &controllerv1.PutTopicResponse{Created: true}, nil
}

func (n *node) DeleteTopic(context.Context, *controllerv1.DeleteTopicRequest) (*controllerv1.DeleteTopicResponse, error) {
	n.calls.Add(1)
	return nil, rpc.ToStatus(n.put())
}

func (n *node) Watch(_ *controllerv1.WatchRequest, s grpc.ServerStreamingServer[controllerv1.WatchUpdate]) error {
	n.calls.Add(1)
	if n.watch != nil {
		return rpc.ToStatus(n.watch())
	}
	return s.Send(&controllerv1.WatchUpdate{})
}

func start(t *testing.T) *node {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{addr: ln.Addr().String(), g: grpc.NewServer()}
	controllerv1.RegisterControllerServiceServer(n.g, n)
	done := make(chan error, 1)
	go func() { done <- n.g.Serve(ln) }()
	t.Cleanup(func() { n.g.Stop(); <-done })
	return n
}

// to returns a connection that begins with the first node.
func to(t *testing.T, nodes ...*node) (*Conn, controllerv1.ControllerServiceClient) {
	t.Helper()
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.addr)
	}
	c, err := New(addrs)
	if err != nil {
		t.Fatal(err)
	}
	c.at = 0
	t.Cleanup(func() { _ = c.Close() })
	return c, controllerv1.NewControllerServiceClient(c)
}

func put(t *testing.T, client controllerv1.ControllerServiceClient, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := client.PutTopic(ctx, &controllerv1.PutTopicRequest{Name: "t"})
	return rpc.FromStatus(err)
}

const patient = 20 * time.Second

func TestTheNextOneAnswers(t *testing.T) {
	a, b := start(t), start(t)
	c, client := to(t, a, b)
	if err := put(t, client, patient); err != nil || a.calls.Load() != 1 {
		t.Fatalf("%v, %d calls", err, a.calls.Load())
	}
	a.g.Stop()
	for range 2 {
		if err := put(t, client, patient); err != nil {
			t.Fatal(err)
		}
	}
	if c.Addr() != b.addr || b.calls.Load() != 2 {
		t.Errorf("%s is in use, %d calls", c.Addr(), b.calls.Load())
	}
	b.g.Stop()
	_ = put(t, client, 200*time.Millisecond) // may go to the connection that breaks
	if err := put(t, client, 200*time.Millisecond); !mqerr.Is(err, mqerr.Unavailable) {
		t.Errorf("nobody: %v", err)
	}
}

// Nothing was done by a node that says it does not lead: the call goes to whom it names, listed or not.
func TestTheLeaderThatIsNamed(t *testing.T) {
	a, b, unlisted := start(t), start(t), start(t)
	c, client := to(t, a, b)
	elsewhere := rpc.ElsewhereError{Err: mqerr.New(mqerr.NotLeader, "elsewhere"), Leader: unlisted.addr}
	a.put = func() error { return elsewhere }
	a.watch = a.put
	if err := put(t, client, patient); err != nil || unlisted.calls.Load() != 1 || b.calls.Load() != 0 {
		t.Errorf("%v, %d and %d calls", err, unlisted.calls.Load(), b.calls.Load())
	}
	c.leave(unlisted.addr, a.addr)
	s, err := client.Watch(t.Context(), &controllerv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !mqerr.Is(rpc.FromStatus(err), mqerr.NotLeader) {
		t.Errorf("%v", err)
	}
	if c.Addr() != unlisted.addr {
		t.Errorf("%s is in use", c.Addr())
	}
}

// A refusal is an answer, and a call whose outcome is unknown is made again only if that is harmless.
func TestWhatIsMadeAgain(t *testing.T) {
	a, b := start(t), start(t)
	c, client := to(t, a, b)
	a.put = func() error { return mqerr.New(mqerr.Exists, "there") }
	if err := put(t, client, patient); !mqerr.Is(err, mqerr.Exists) || b.calls.Load() != 0 {
		t.Errorf("%v", err)
	}
	dies := func() error { return status.Error(codes.Unavailable, "the connection broke") }
	a.put = dies
	if err := put(t, client, patient); err != nil || b.calls.Load() != 1 {
		t.Errorf("a topic: %v, %d calls", err, b.calls.Load())
	}
	c.leave(b.addr, a.addr)
	_, err := client.DeleteTopic(t.Context(), &controllerv1.DeleteTopicRequest{Name: "t"})
	if !mqerr.Is(rpc.FromStatus(err), mqerr.UnknownOutcome) || b.calls.Load() != 1 {
		t.Errorf("a deletion: %v, %d calls", err, b.calls.Load())
	}
	b.put = func() error { return mqerr.New(mqerr.NotLeader, "nobody leads") }
	if err := put(t, client, 300*time.Millisecond); err == nil {
		t.Error("two nodes that do not lead have carried it out")
	}
}

// What nodes name is remembered within bounds.
func TestNamedNodesAreBounded(t *testing.T) {
	c, err := New([]string{"127.0.0.1:1", "127.0.0.1:1", " 127.0.0.1:2"})
	if err != nil || c.listed != 2 {
		t.Fatalf("%v, %d", err, c.listed)
	}
	for i := range 5 * hintsMax {
		c.leave(c.Addr(), fmt.Sprintf("127.0.0.1:%d", 100+i))
	}
	if len(c.addrs) != 2+hintsMax || c.Addr() != fmt.Sprintf("127.0.0.1:%d", 99+5*hintsMax) {
		t.Errorf("%v", c.addrs)
	}
	if _, err := New(nil); !mqerr.Is(err, mqerr.Invalid) {
		t.Error(err)
	}
	if _, err := New([]string{"nothing"}); !mqerr.Is(err, mqerr.Invalid) {
		t.Error(err)
	}
	_ = c.Close()
	if _, _, err := c.reach(t.Context()); !mqerr.Is(err, mqerr.Draining) {
		t.Error(err)
	}
}
