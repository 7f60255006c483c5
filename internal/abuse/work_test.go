package abuse

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

func receiveRequest(topic, group string, poll time.Duration, batch int32) *rmqv2.ReceiveMessageRequest {
	return &rmqv2.ReceiveMessageRequest{
		Group:            &rmqv2.Resource{Name: group},
		MessageQueue:     &rmqv2.MessageQueue{Topic: &rmqv2.Resource{Name: topic}, Id: -1, Broker: &rmqv2.Broker{Name: "dev"}},
		FilterExpression: &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"},
		BatchSize:        batch, InvisibleDuration: durationpb.New(5 * time.Minute), LongPollingTimeout: durationpb.New(poll),
	}
}

// receive waits for messages and returns them with the code of the answer.
func (c client) receive(ctx context.Context, topic, group string, poll time.Duration) (n int, code rmqv2.Code, err error) {
	st, err := c.ReceiveMessage(ctx, receiveRequest(topic, group, poll, 32))
	if err != nil {
		return 0, 0, err
	}
	for {
		m, err := st.Recv()
		if err != nil {
			return n, code, ignoreEnd(err)
		}
		if m.GetMessage() != nil {
			n++
		}
		if s := m.GetStatus(); s != nil {
			code = s.GetCode()
		}
	}
}

// TestManyWaitingReceives: they cost memory only, and each is answered, by a message or at its time.
func TestManyWaitingReceives(t *testing.T) {
	n, groups := size(2000, 50_000), size(2, 10)
	s := serve(t, 2048)
	good := s.client("good")
	for g := range groups {
		st, err := good.send(fmt.Sprintf("topic-%d", g), []byte("first"))
		require.NoError(t, err)
		require.Equal(t, rmqv2.Code_OK, st.GetCode())
		got, code, err := good.receive(good.ctx, fmt.Sprintf("topic-%d", g), fmt.Sprintf("group-%d", g), 5*time.Second)
		require.NoError(t, err)
		require.Equal(t, rmqv2.Code_OK, code)
		require.Equal(t, 1, got)
	}
	before := s.below("before")
	poll := time.Duration(size(15, 60)) * time.Second
	var clients []client
	for i := range (n + 999) / 1000 {
		clients = append(clients, s.client(fmt.Sprintf("waiting-%d", i)))
	}
	var woken, empty, other atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(clients[i/1000].ctx, poll+60*time.Second)
			defer cancel()
			got, code, err := clients[i/1000].receive(ctx, fmt.Sprintf("topic-%d", i%groups), fmt.Sprintf("group-%d", i%groups), min(poll, 20*time.Second))
			switch {
			case err == nil && got > 0:
				woken.Add(1)
			case err == nil && code == rmqv2.Code_MESSAGE_NOT_FOUND:
				empty.Add(1)
			default:
				if other.Add(1) < 5 {
					t.Logf("a receive ended with %v, %v", code, err)
				}
			}
		})
	}
	until(t, "most wait", func() bool { return s.gauge("perigee_proxy_receives_waiting") >= float64(n)*0.9 })
	t.Logf("%d receives wait: %d bytes each", n, (s.below("waiting")-before)/int64(n))
	used, from := s.cpu(), time.Now()
	time.Sleep(2 * time.Second) // what waiting costs, not a synchronisation
	t.Logf("waiting takes %.1f %% of a processor", 100*float64(s.cpu()-used)/float64(time.Since(from)))
	sent := size(200, 5000)
	for i := range sent {
		st, err := good.send(fmt.Sprintf("topic-%d", i%groups), []byte("x"))
		require.NoError(t, err)
		require.Equal(t, rmqv2.Code_OK, st.GetCode(), "%s", st.GetMessage())
	}
	all.Wait()
	t.Logf("%d were woken, %d ended at their time, %d otherwise", woken.Load(), empty.Load(), other.Load())
	require.Positive(t, woken.Load())
	require.Zero(t, other.Load())
	require.Zero(t, s.gauge("perigee_proxy_receives_waiting"))
	s.below("afterwards")
}

// TestClientsThatDoNotRead: what they were sent is bounded, others go on, and when they are gone others get it.
func TestClientsThatDoNotRead(t *testing.T) {
	n := size(10, 200)
	s := serve(t, 512, "--max-in-flight-client", "64")
	good := s.client("good")
	body := make([]byte, 1<<20)
	got, _, err := good.receive(good.ctx, "large", "readers", 5*time.Second)
	_ = got
	require.NoError(t, err)
	for range n {
		st, err := good.send("large", body)
		require.NoError(t, err)
		require.Equal(t, rmqv2.Code_OK, st.GetCode(), "%s", st.GetMessage())
	}
	ctx, cancel := context.WithCancel(good.ctx)
	for i := range n {
		c := s.client(fmt.Sprintf("lazy-%d", i), grpc.WithInitialWindowSize(65535), grpc.WithInitialConnWindowSize(65535), grpc.WithReadBufferSize(0))
		req := receiveRequest("large", "readers", 20*time.Second, 4)
		req.InvisibleDuration = durationpb.New(12 * time.Second) // what the transport took comes back only then
		_, err := c.ReceiveMessage(metadata.AppendToOutgoingContext(ctx, "x-mq-client-id", fmt.Sprintf("lazy-%d", i)), req)
		require.NoError(t, err) // and never Recv
	}
	until(t, "they have leased something", func() bool { return s.gauge("rocketmq_consumer_inflight_messages", "readers") > 0 })
	s.served(good)
	s.below("while they do not read")
	cancel()
	total := 0
	until(t, "others get what they did not read", func() bool {
		got, _, err := good.receive(good.ctx, "large", "readers", 5*time.Second)
		require.NoError(t, err)
		total += got
		if got > 0 { // this client may hold 64 at most: let it have more
			good = s.client(fmt.Sprintf("good-%d", total))
		}
		return total >= n
	})
	s.below("afterwards")
}

// TestProducersFasterThanTheDisk: more than the broker takes is refused with a pause, and memory stays bounded.
func TestProducersFasterThanTheDisk(t *testing.T) {
	s := serve(t, 256)
	good := s.client("good")
	s.served(good)
	body := make([]byte, 256<<10)
	var stored, refused, failed atomic.Int64
	ctx, cancel := context.WithTimeout(good.ctx, time.Duration(size(2, 30))*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for p := range size(64, 400) {
		if p%16 == 0 {
			good = s.client(fmt.Sprintf("producer-%d", p))
		}
		c := good
		all.Go(func() {
			for ctx.Err() == nil {
				st, err := c.send("flood", body)
				switch {
				case err != nil:
					failed.Add(1)
				case st.GetCode() == rmqv2.Code_OK:
					stored.Add(1)
				case st.GetCode() == rmqv2.Code_TOO_MANY_REQUESTS:
					refused.Add(1)
					time.Sleep(50 * time.Millisecond) // sooner than it was asked to
				default:
					failed.Add(1)
				}
			}
		})
	}
	for ctx.Err() == nil {
		now, err := s.anonymous()
		require.NoError(t, err)
		require.Less(t, now, s.limit*3/2, "anonymous memory while it floods")
		time.Sleep(100 * time.Millisecond)
	}
	all.Wait()
	t.Logf("%d stored, %d refused", stored.Load(), refused.Load())
	require.Positive(t, stored.Load())
	require.Zero(t, failed.Load())
	until(t, "sends are taken again", func() bool {
		st, err := good.send("flood", []byte("x"))
		return err == nil && st.GetCode() == rmqv2.Code_OK
	})
}

// TestManyTopics: they are made, written and described.
func TestManyTopics(t *testing.T) {
	n := size(100, 10_000)
	s := serve(t, 1024)
	good := s.client("good")
	var all sync.WaitGroup
	turns := make(chan struct{}, 32)
	var bad atomic.Int64
	from := time.Now()
	for i := range n {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			if st, err := good.send(fmt.Sprintf("topic-%d", i), []byte("x")); err != nil || st.GetCode() != rmqv2.Code_OK {
				if bad.Add(1) < 5 {
					t.Logf("topic %d: %v, %v", i, st, err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d topics took %v", n, time.Since(from).Round(time.Millisecond))
	require.Zero(t, bad.Load())
	require.GreaterOrEqual(t, s.gauge("rocketmq_topic_number"), float64(n))
	s.served(good)
	s.below("afterwards")
}
