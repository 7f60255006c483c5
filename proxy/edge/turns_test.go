package edge

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/call"
)

// syncing records the names of calls in the order in which they were handled; each is answered by a
// goroutine of its own, a call named "held" when the test says so.
type syncing struct {
	mu      sync.Mutex
	names   []string
	handled chan string
	release chan struct{}
}

func (h *syncing) handle(t *testing.T) func(call.Unary) {
	reply := statusBytes(t)
	return func(c call.Unary) {
		var q rmqv2.SyncLiteSubscriptionRequest
		if err := proto.Unmarshal(c.Request(), &q); err != nil {
			c.Fail(call.InvalidArgument, err.Error())
			return
		}
		name := q.GetLiteTopicSet()[0]
		go func() {
			h.mu.Lock()
			h.names = append(h.names, name)
			h.mu.Unlock()
			h.handled <- name
			if name == "held" {
				<-h.release
			}
			c.Reply(reply)
		}()
	}
}

// begin sends a call on a connection and does not wait for its answer.
func begin(t *testing.T, conn *grpc.ClientConn, client, name string) grpc.ClientStream {
	t.Helper()
	return beginWith(short(t), t, conn, client, name)
}

func beginWith(ctx context.Context, t *testing.T, conn *grpc.ClientConn, client, name string) grpc.ClientStream {
	t.Helper()
	ctx = metadata.AppendToOutgoingContext(ctx, headerClientID, client)
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{}, inOrder)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendMsg(&rmqv2.SyncLiteSubscriptionRequest{LiteTopicSet: []string{name}}); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return s
}

func answered(t *testing.T, s grpc.ClientStream) {
	t.Helper()
	if err := s.RecvMsg(&rmqv2.SyncLiteSubscriptionResponse{}); err != nil {
		t.Fatal(err)
	}
}

func TestCallsOfAClientKeepTheirOrder(t *testing.T) {
	h := &syncing{handled: make(chan string, 1000), release: make(chan struct{})}
	s, addr := start(t, Options{Service: Service{SyncLiteSubscription: h.handle(t)}})
	conn := dial(t, addr)
	var calls []grpc.ClientStream
	var want []string
	for i := range 300 {
		want = append(want, fmt.Sprint(i))
		calls = append(calls, begin(t, conn, "me", want[i]))
	}
	for _, c := range calls {
		answered(t, c)
	}
	if !slices.Equal(h.names, want) {
		t.Errorf("handled in the order %v", h.names)
	}
	open := func() int {
		s.turns.mu.Lock()
		defer s.turns.mu.Unlock()
		return len(s.turns.last)
	}
	for end := time.Now().Add(5 * time.Second); open() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a turn was kept")
		}
	}
}

// TestCallsOfOthersDoNotWait holds a call of one client: another one's is answered, and what the first
// client sent next comes when the held call ends, also if one in between was given up.
func TestCallsOfOthersDoNotWait(t *testing.T) {
	h := &syncing{handled: make(chan string, 1000), release: make(chan struct{})}
	_, addr := start(t, Options{Service: Service{SyncLiteSubscription: h.handle(t)}})
	conn := dial(t, addr)
	held := begin(t, conn, "me", "held")
	if got := <-h.handled; got != "held" {
		t.Fatalf("%s was handled", got)
	}
	given, giveUp := context.WithCancel(short(t))
	beginWith(given, t, conn, "me", "given up")
	next := begin(t, conn, "me", "next")
	answered(t, begin(t, conn, "you", "other"))
	answered(t, begin(t, dial(t, addr), "me", "other")) // its connection may be new, the old one dead
	giveUp()
	answered(t, begin(t, conn, "you", "other"))
	close(h.release)
	answered(t, held)
	answered(t, next)
	if i, j := slices.Index(h.names, "other"), slices.Index(h.names, "next"); i < 0 || j < i {
		t.Errorf("handled in the order %v", h.names)
	}
}
