package server

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/edge"
)

// serve puts the site behind the real client port.
func (s *site) serve(t *testing.T) rmqv2.MessagingServiceClient {
	t.Helper()
	e, err := edge.New(edge.Options{Service: edge.Service{
		ReceiveMessage: s.ReceiveMessage, AckMessage: s.AckMessage, ChangeInvisibleDuration: s.ChangeInvisibleDuration,
		Telemetry: s.Telemetry, Heartbeat: s.Heartbeat, NotifyClientTermination: s.NotifyClientTermination,
	}})
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- e.Serve(ln) }()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(16<<20))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		s.o.Polls.Drain()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		e.Drain(ctx)
		require.NoError(t, <-served)
	})
	return rmqv2.NewMessagingServiceClient(conn)
}

func asClient(t *testing.T, id string, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), headerClientID, id), d)
}

// readAll returns the messages of a stream until it ends.
func readAll(t *testing.T, stream grpc.ServerStreamingClient[rmqv2.ReceiveMessageResponse]) (all []*rmqv2.Message) {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if m := r.GetMessage(); m != nil {
			all = append(all, m)
		}
	}
}

// TestSlowReaderOnTheWire has a caller that never reads its stream, which hangs up or is cut off.
// What the transport did not take goes to the next one while the first is still connected.
func TestSlowReaderOnTheWire(t *testing.T) {
	for _, hangUp := range []bool{true, false} {
		s := newSite()
		s.receives.cutOff = 300 * time.Millisecond
		if hangUp {
			s.receives.cutOff = time.Hour
		}
		c := s.serve(t)
		big := strings.Repeat("x", 1<<20)
		s.brokers[1].store(big, big, big, big)

		rude, cancel := asClient(t, "rude", time.Minute)
		defer cancel()
		stuck, err := c.ReceiveMessage(rude, receiveRequest())
		require.NoError(t, err)
		require.Eventually(t, func() bool { return s.receives.unsent.Load() > 0 }, 5*time.Second, time.Millisecond)
		if hangUp {
			cancel()
		}
		require.Eventually(t, func() bool { return s.receives.unsent.Load() == 0 }, 5*time.Second, time.Millisecond, "not cut off")

		s.receives.cutOff = time.Hour
		polite, cancel2 := asClient(t, "polite", 10*time.Second)
		defer cancel2()
		stream, err := c.ReceiveMessage(polite, receiveRequest())
		require.NoError(t, err)
		again := readAll(t, stream)
		require.GreaterOrEqual(t, len(again), 2)
		require.Equal(t, int32(1), again[len(again)-1].GetSystemProperties().GetDeliveryAttempt())
		require.Equal(t, 4, s.brokers[1].count(memLeased))
		for err == nil {
			_, err = stuck.Recv()
		}
		require.Equal(t, codes.Canceled, status.Code(err))
	}
}

// TestReceiveOnTheWire makes the whole round: wait, receive, change, acknowledge.
func TestReceiveOnTheWire(t *testing.T) {
	s := newSite()
	c := s.serve(t)
	ctx, cancel := asClient(t, "c", 10*time.Second)
	defer cancel()
	stream, err := c.ReceiveMessage(ctx, receiveRequest())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.o.Polls.Stats().Waiting == 1 }, 5*time.Second, time.Millisecond)
	s.brokers[1].store("x")
	m := readAll(t, stream)
	require.Len(t, m, 1)
	changed, err := c.ChangeInvisibleDuration(ctx, &rmqv2.ChangeInvisibleDurationRequest{Topic: res("one"), Group: res("g"), ReceiptHandle: handleText(m[0])})
	require.NoError(t, err)
	require.Equal(t, rmqv2.Code_OK, changed.GetStatus().GetCode())
	acked, err := c.AckMessage(ctx, ackRequest("one", "g", changed.GetReceiptHandle()))
	require.NoError(t, err)
	require.Equal(t, rmqv2.Code_OK, acked.GetStatus().GetCode())
}

// TestTelemetryHeadersOnTheWire come before the client says anything: Rust waits for them.
func TestTelemetryHeadersOnTheWire(t *testing.T) {
	c := newSite().serve(t)
	ctx, cancel := asClient(t, "c", 10*time.Second)
	defer cancel()
	stream, err := c.Telemetry(ctx)
	require.NoError(t, err)
	_, err = stream.Header()
	require.NoError(t, err)
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	require.Equal(t, io.EOF, err)
}
