package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// caller is a client with a connection of its own.
type caller struct {
	l    *load
	id   string
	conn *grpc.ClientConn
	rpc  rmqv2.MessagingServiceClient
	rng  *rand.Rand
}

var callers atomic.Uint64

func (l *load) caller(role string) (*caller, error) {
	conn, err := grpc.NewClient("passthrough:///"+l.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		return nil, err
	}
	n := callers.Add(1)
	return &caller{l: l, id: fmt.Sprintf("%s@%d", role, n), conn: conn, rpc: rmqv2.NewMessagingServiceClient(conn), rng: rand.New(rand.NewPCG(l.seed, n))}, nil
}

func (c *caller) close() { _ = c.conn.Close() }

// call is the context of one call: one that has begun comes to its end.
func (c *caller) call(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx = metadata.AppendToOutgoingContext(context.WithoutCancel(ctx), "x-mq-client-id", c.id, "x-mq-language", "GO", "x-mq-client-version", "5.1.3")
	return context.WithTimeout(ctx, d)
}

// failed counts a call that should have succeeded.
func (c *caller) failed(what string, s *rmqv2.Status, err error) bool {
	if err == nil && s.GetCode() == rmqv2.Code_OK {
		return false
	}
	c.l.failures.Add(1)
	text := fmt.Sprintf("%s: %v %s %v", what, s.GetCode(), s.GetMessage(), err)
	c.l.firstFailure.CompareAndSwap(nil, &text)
	return true
}

func resource(name string) *rmqv2.Resource { return &rmqv2.Resource{Name: name} }

// message makes a message with a body that is not always small.
func (c *caller) message(topic string, t rmqv2.MessageType) *rmqv2.Message {
	size := 1 + c.rng.IntN(800)
	if c.rng.IntN(50) == 0 {
		size = 1 + c.rng.IntN(30_000)
	}
	return &rmqv2.Message{
		Topic: resource(topic), Body: []byte(strings.Repeat("x", size)),
		SystemProperties: &rmqv2.SystemProperties{
			MessageId: fmt.Sprintf("%s-%024X", topic, c.l.seq.Add(1)), MessageType: t, BodyEncoding: rmqv2.Encoding_IDENTITY, Keys: []string{fmt.Sprint("key-", c.rng.IntN(1000))},
		},
	}
}

// send sends messages that are to come at due, and notes the answer.
func (c *caller) send(ctx context.Context, due time.Time, out ...*rmqv2.Message) *rmqv2.SendMessageResponse {
	for _, m := range out {
		c.l.ledger.sending(m.GetSystemProperties().GetMessageId(), time.Now(), due)
	}
	ctx, cancel := c.call(ctx, 10*time.Second)
	defer cancel()
	resp, err := c.rpc.SendMessage(ctx, &rmqv2.SendMessageRequest{Messages: out})
	failed := c.failed("send", resp.GetStatus(), err)
	for _, m := range out {
		switch id := m.GetSystemProperties().GetMessageId(); {
		case err == nil && failed:
			c.l.ledger.refused(id)
		case !failed && m.GetSystemProperties().GetMessageType() != rmqv2.MessageType_TRANSACTION:
			c.l.ledger.sent(id)
		}
	}
	if failed {
		return nil
	}
	return resp
}

// receive makes one receive.
func (c *caller) receive(ctx context.Context, group, topic string) []*rmqv2.Message {
	call, cancel := c.call(ctx, 12*time.Second)
	defer cancel()
	st, err := c.rpc.ReceiveMessage(call, &rmqv2.ReceiveMessageRequest{
		Group: resource(group), MessageQueue: &rmqv2.MessageQueue{Topic: resource(topic)}, BatchSize: 16,
		FilterExpression:  &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"},
		InvisibleDuration: durationpb.New(10 * time.Second), LongPollingTimeout: durationpb.New(5 * time.Second),
	})
	var all []*rmqv2.Message
	var last *rmqv2.Status
	for err == nil {
		var resp *rmqv2.ReceiveMessageResponse
		if resp, err = st.Recv(); err != nil {
			break
		}
		if s := resp.GetStatus(); s != nil {
			last = s
		}
		if m := resp.GetMessage(); m != nil {
			c.l.ledger.came(m.GetSystemProperties().GetMessageId(), time.Now())
			all = append(all, m)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if last.GetCode() != rmqv2.Code_MESSAGE_NOT_FOUND || err != nil {
		c.failed("receive", last, err)
	}
	return all
}

// ack ends messages.
func (c *caller) ack(ctx context.Context, group, topic string, ms []*rmqv2.Message) {
	if len(ms) == 0 {
		return
	}
	req := &rmqv2.AckMessageRequest{Group: resource(group), Topic: resource(topic)}
	for _, m := range ms {
		e := &rmqv2.AckMessageEntry{MessageId: m.GetSystemProperties().GetMessageId(), ReceiptHandle: m.GetSystemProperties().GetReceiptHandle()}
		if name := m.GetSystemProperties().GetLiteTopic(); name != "" {
			e.LiteTopic = &name
		}
		req.Entries = append(req.Entries, e)
	}
	ctx, cancel := c.call(ctx, 10*time.Second)
	defer cancel()
	resp, err := c.rpc.AckMessage(ctx, req)
	now := time.Now()
	for i, m := range ms {
		id := m.GetSystemProperties().GetMessageId()
		switch {
		case err != nil || i >= len(resp.GetEntries()):
			c.failed("ack", resp.GetStatus(), err)
			c.l.ledger.unsure(id)
		case resp.GetEntries()[i].GetStatus().GetCode() == rmqv2.Code_OK:
			c.l.ledger.ended(id, now)
		}
	}
}
