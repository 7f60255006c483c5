package chaostest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/crashtest/load"
)

// The probes' topic. Its message groups stay with their broker group, so nothing hides that one is away.
const probeTopic = "probe"

// probeEvery is the time between two sends of a probe, probeTime how long one may take.
const (
	probeEvery = 50 * time.Millisecond
	probeTime  = 3 * time.Second
)

// probes send to each broker group through each proxy, all the time.
type probes struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	conns  []*grpc.ClientConn

	mu   sync.Mutex
	sent map[string][]time.Time // ends of successful sends by broker group, in their order
}

// newProbes defines the topic and starts the probes.
func newProbes(p *place) (*probes, error) {
	ctx, cancel := context.WithCancel(context.Background())
	b := &probes{cancel: cancel, sent: map[string][]time.Time{}}
	for _, addr := range p.proxy {
		conn, err := load.Service{}.Connect(addr)
		if err != nil {
			return nil, err
		}
		b.conns = append(b.conns, conn)
	}
	keys, err := b.keys(ctx, len(p.groups))
	if err != nil {
		b.end()
		return nil, err
	}
	for group, key := range keys {
		for _, conn := range b.conns {
			b.wg.Go(func() { b.run(ctx, conn, group, key) })
		}
	}
	return b, nil
}

func call(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx = metadata.AppendToOutgoingContext(ctx, "x-mq-client-id", "probe@1", "x-mq-language", "GO", "x-mq-client-version", "5.1.3")
	return context.WithTimeout(ctx, d)
}

// keys finds a message group for each broker group, of which there are n.
func (b *probes) keys(ctx context.Context, n int) (map[string]string, error) {
	keys := map[string]string{}
	err := eventually(20*time.Second, func() error {
		ctx, cancel := call(ctx, 5*time.Second)
		defer cancel()
		_, err := adminv1.NewAdminServiceClient(b.conns[0]).PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{
			Name: probeTopic, Type: controllerv1.TopicType_TOPIC_TYPE_FIFO, Queues: 4,
		}})
		if err != nil {
			return err
		}
		_, err = adminv1.NewAdminServiceClient(b.conns[0]).PutGroup(ctx, &adminv1.PutGroupRequest{Group: &controllerv1.PutGroupRequest{Name: probeTopic}})
		return err
	})
	if err != nil {
		return nil, err
	}
	err = eventually(20*time.Second, func() error {
		ctx, cancel := call(ctx, 10*time.Second)
		defer cancel()
		for i := range 12 {
			if err := send(ctx, b.conns[0], fmt.Sprint("key-", i)); err != nil {
				return err
			}
		}
		rpc := rmqv2.NewMessagingServiceClient(b.conns[0])
		topic := &rmqv2.Resource{Name: probeTopic}
		route, err := rpc.QueryRoute(ctx, &rmqv2.QueryRouteRequest{Topic: topic, Endpoints: &rmqv2.Endpoints{Scheme: rmqv2.AddressScheme_IPv4, Addresses: []*rmqv2.Address{{Host: "127.0.0.1", Port: 8081}}}})
		if err != nil {
			return err
		}
		for _, q := range route.GetMessageQueues() {
			st, err := rpc.PullMessage(ctx, &rmqv2.PullMessageRequest{Group: topic, MessageQueue: q, BatchSize: 32, FilterExpression: &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"}})
			if err != nil {
				return err
			}
			for {
				resp, err := st.Recv()
				if err != nil {
					break
				}
				if m := resp.GetMessage(); m != nil {
					keys[q.GetBroker().GetName()] = m.GetSystemProperties().GetMessageGroup()
				}
			}
		}
		if len(keys) < n {
			return fmt.Errorf("only these broker groups got messages: %v", keys)
		}
		return nil
	})
	return keys, err
}

// send sends one message of a message group.
func send(ctx context.Context, conn *grpc.ClientConn, key string) error {
	id := fmt.Sprintf("01%032X", time.Now().UnixNano())
	resp, err := rmqv2.NewMessagingServiceClient(conn).SendMessage(ctx, &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{{
		Topic: &rmqv2.Resource{Name: probeTopic}, Body: []byte("probe"),
		SystemProperties: &rmqv2.SystemProperties{MessageId: id, MessageType: rmqv2.MessageType_FIFO, MessageGroup: &key},
	}}})
	if err != nil {
		return err
	}
	if c := resp.GetStatus().GetCode(); c != rmqv2.Code_OK {
		return errors.New(c.String() + " " + resp.GetStatus().GetMessage())
	}
	return nil
}

// run sends until ctx ends. A send that hangs does not hold up the next one.
func (b *probes) run(ctx context.Context, conn *grpc.ClientConn, group, key string) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			ctx, cancel := call(ctx, probeTime)
			defer cancel()
			if send(ctx, conn, key) != nil {
				return
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.sent[group] = append(b.sent[group], time.Now())
		})
	}
}

// gap is the longest time without a successful send to a broker group in a span of time.
func (b *probes) gap(group string, from, to time.Time) (longest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := from
	for _, t := range b.sent[group] {
		if t.Before(from) {
			continue
		}
		if t.After(to) {
			break
		}
		longest, last = max(longest, t.Sub(last)), t
	}
	return max(longest, to.Sub(last))
}

// since tells whether a send to a group succeeded after a time.
func (b *probes) since(group string, t time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	sent := b.sent[group]
	return len(sent) > 0 && sent[len(sent)-1].After(t)
}

func (b *probes) end() {
	b.cancel()
	b.wg.Wait()
	for _, c := range b.conns {
		_ = c.Close()
	}
}
