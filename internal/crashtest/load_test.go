package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// load sends, receives, acknowledges and changes through the public protocol while the server comes
// and goes, and keeps the history.
type load struct {
	h     *history
	rpc   rmqv2.MessagingServiceClient
	topic string
	group string
	opts  []grpc.CallOption // of every receive and ack
	seq   atomic.Int64
}

func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, MaxDelay: 100 * time.Millisecond}}))
}

func (l *load) call(ctx context.Context, id string, d time.Duration) (context.Context, context.CancelFunc) {
	ctx = metadata.AppendToOutgoingContext(context.WithoutCancel(ctx), "x-mq-client-id", id, "x-mq-language", "GO", "x-mq-client-version", "5.1.3")
	return context.WithTimeout(ctx, d)
}

// run keeps n senders and n receivers busy until ctx ends. Calls under way then come to their own end:
// a receive that is cancelled may be given back, though its messages were read.
func (l *load) run(ctx context.Context, n int, seed uint64) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { l.send(ctx, rand.New(rand.NewPCG(seed, uint64(i)))) })
		wg.Go(func() { l.receive(ctx, rand.New(rand.NewPCG(seed, uint64(1000+i))), fmt.Sprintf("crash@%d", i)) })
	}
	wg.Wait()
}

func (l *load) send(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		req := &rmqv2.SendMessageRequest{}
		for range 1 + rng.IntN(4) {
			n := l.seq.Add(1)
			id := fmt.Sprintf("01%032X", n)
			body := fmt.Sprintf("%d:%s", n, strings.Repeat("x", rng.IntN(300)))
			l.h.sending(id, body)
			req.Messages = append(req.Messages, &rmqv2.Message{
				Topic: &rmqv2.Resource{Name: l.topic}, Body: []byte(body),
				SystemProperties: &rmqv2.SystemProperties{MessageId: id, MessageType: rmqv2.MessageType_NORMAL, BodyEncoding: rmqv2.Encoding_IDENTITY},
			})
		}
		c, cancel := l.call(ctx, "crash@sender", 5*time.Second)
		resp, err := l.rpc.SendMessage(c, req)
		cancel()
		if err != nil || resp.GetStatus().GetCode() != rmqv2.Code_OK {
			wait(ctx, 10*time.Millisecond)
			continue
		}
		for i, e := range resp.GetEntries() {
			if e.GetStatus().GetCode() == rmqv2.Code_OK {
				l.h.answered(req.GetMessages()[i].GetSystemProperties().GetMessageId(), e.GetOffset())
			}
		}
	}
}

// invisible is the lease of the load's receives: the shortest that the protocol takes.
const invisible = 10 * time.Second

func (l *load) receive(ctx context.Context, rng *rand.Rand, id string) {
	for ctx.Err() == nil {
		got, err := l.poll(ctx, id, l.group, invisible, l.h)
		if err != nil {
			wait(ctx, 10*time.Millisecond)
			continue
		}
		var ack []*rmqv2.Message
		for _, m := range got {
			switch p := rng.IntN(100); {
			case p < 85:
				ack = append(ack, m)
			case p < 90:
				l.change(ctx, id, m, time.Duration(rng.IntN(15))*time.Second)
			}
		}
		l.ack(ctx, id, ack)
	}
}

// poll makes one receive; what it returns is in the history if h is not nil.
func (l *load) poll(ctx context.Context, id, group string, lease time.Duration, h *history) ([]*rmqv2.Message, error) {
	c, cancel := l.call(ctx, id, 9*time.Second)
	defer cancel()
	began := time.Now()
	st, err := l.rpc.ReceiveMessage(c, &rmqv2.ReceiveMessageRequest{
		Group: &rmqv2.Resource{Name: group}, MessageQueue: &rmqv2.MessageQueue{Topic: &rmqv2.Resource{Name: l.topic}},
		FilterExpression: &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"}, BatchSize: 32,
		InvisibleDuration: durationpb.New(lease), LongPollingTimeout: durationpb.New(5 * time.Second),
	}, l.opts...)
	if err != nil {
		return nil, err
	}
	var got []*rmqv2.Message
	for {
		resp, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err // what came before counts: those leases were answered
		}
		if s := resp.GetStatus(); s != nil && s.GetCode() != rmqv2.Code_OK && s.GetCode() != rmqv2.Code_MESSAGE_NOT_FOUND {
			return got, fmt.Errorf("receive: %v", s)
		}
		if m := resp.GetMessage(); m != nil {
			got = append(got, m)
			if h != nil {
				sys := m.GetSystemProperties()
				h.delivered(sys.GetMessageId(), string(m.GetBody()), sys.GetQueueId(), sys.GetQueueOffset(), began, time.Now(), lease)
			}
		}
	}
}

func (l *load) change(ctx context.Context, id string, m *rmqv2.Message, d time.Duration) {
	sys := m.GetSystemProperties()
	l.h.changing(sys.GetMessageId())
	c, cancel := l.call(ctx, id, 5*time.Second)
	defer cancel()
	began := time.Now()
	resp, err := l.rpc.ChangeInvisibleDuration(c, &rmqv2.ChangeInvisibleDurationRequest{
		Group: &rmqv2.Resource{Name: l.group}, Topic: &rmqv2.Resource{Name: l.topic}, ReceiptHandle: sys.GetReceiptHandle(), MessageId: sys.GetMessageId(),
		InvisibleDuration: durationpb.New(d),
	})
	if err == nil && resp.GetStatus().GetCode() == rmqv2.Code_OK {
		l.h.changed(sys.GetMessageId(), began, d)
	}
}

func (l *load) ack(ctx context.Context, id string, ms []*rmqv2.Message) {
	if len(ms) == 0 {
		return
	}
	req := &rmqv2.AckMessageRequest{Group: &rmqv2.Resource{Name: l.group}, Topic: &rmqv2.Resource{Name: l.topic}}
	var ids []string
	for _, m := range ms {
		sys := m.GetSystemProperties()
		ids = append(ids, sys.GetMessageId())
		req.Entries = append(req.Entries, &rmqv2.AckMessageEntry{MessageId: sys.GetMessageId(), ReceiptHandle: sys.GetReceiptHandle()})
	}
	l.h.acking(ids)
	c, cancel := l.call(ctx, id, 5*time.Second)
	defer cancel()
	resp, err := l.rpc.AckMessage(c, req, l.opts...)
	if err != nil {
		return
	}
	for i, e := range resp.GetEntries() {
		if e.GetStatus().GetCode() == rmqv2.Code_OK {
			l.h.done(ids[i])
		}
	}
}

// wait pauses a caller whose server is away.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
