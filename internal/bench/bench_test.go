package bench

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noting answers sends and notes the message ids.
type noting struct {
	rmqv2.UnimplementedMessagingServiceServer
	mu  sync.Mutex
	ids map[string]int
}

func (n *noting) SendMessage(_ context.Context, r *rmqv2.SendMessageRequest) (*rmqv2.SendMessageResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range r.GetMessages() {
		n.ids[m.GetSystemProperties().GetMessageId()]++
	}
	return &rmqv2.SendMessageResponse{Status: &rmqv2.Status{Code: rmqv2.Code_OK, Message: "OK"}}, nil
}

// TestNoIDTwice: every message of every load of a process has an id of its own; one that came again would not be
// stored, and what is measured would be something else.
func TestNoIDTwice(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n, g := &noting{ids: map[string]int{}}, grpc.NewServer()
	rmqv2.RegisterMessagingServiceServer(g, n)
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(ln) })
	defer serving.Wait()
	defer g.Stop()
	total := int64(0)
	for _, batch := range []int{1, 32, 1, 32} {
		r, err := Run(t.Context(), Options{Kind: Send, Server: ln.Addr().String(), Topic: "t", Batch: batch, Callers: 8, Count: 640, Size: 24})
		require.NoError(t, err)
		require.Zero(t, r.Failed, r.FirstError)
		total += r.Sent
	}
	require.GreaterOrEqual(t, total, int64(4*640))
	require.Len(t, n.ids, int(total))
}
