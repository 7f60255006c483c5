package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/grpc"
)

// consumer is a simple consumer in one try.
type consumer struct {
	rmq.SimpleConsumer
	try
	run string
}

// errLost says that the client lost an answer. It waits for the end of the stream
// or the deadline, and a stream that ended before the wait began looks like both:
// which one it takes is chance. The messages come again, so a check starts anew.
var errLost = errors.New("the client lost the answer of a receive")

// broken holds an error of a stream by consumer group: the client reports that as a passed
// deadline too.
var broken sync.Map

// noteBroken is an interceptor that notes errors of ReceiveMessage.
func noteBroken(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, conn, method, opts...)
	if err == nil && strings.HasSuffix(method, "/ReceiveMessage") {
		stream = &notingStream{ClientStream: stream}
	}
	return stream, err
}

type notingStream struct {
	grpc.ClientStream
	group string
}

func (s *notingStream) SendMsg(m any) error {
	if r, ok := m.(*v2.ReceiveMessageRequest); ok {
		s.group = r.GetGroup().GetName()
	}
	return s.ClientStream.SendMsg(m)
}

func (s *notingStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil && err != io.EOF {
		broken.LoadOrStore(s.group, err)
	}
	return err
}

// once is one receive. Nothing there is no error, unlike in this client.
func (c *consumer) once(invisible time.Duration) ([]*rmq.MessageView, error) {
	all, err := c.Receive(context.Background(), batch, invisible)
	if status, ok := rmq.AsErrRpcStatus(err); ok && status.Code == int32(v2.Code_MESSAGE_NOT_FOUND) {
		return nil, nil
	}
	if err == nil {
		return all, nil
	}
	if stream, ok := broken.LoadAndDelete(topic(c.check) + "-" + c.run); ok {
		return nil, fmt.Errorf("receive: %w", stream.(error))
	}
	if strings.Contains(err.Error(), "DEADLINE_EXCEEDED") {
		return nil, errLost
	}
	return nil, fmt.Errorf("receive: %w", err)
}

// poll is one receive, of which messages of other tries are acknowledged and left out.
func (c *consumer) poll(invisible time.Duration) ([]*rmq.MessageView, error) {
	all, err := c.once(invisible)
	if err != nil {
		return nil, err
	}
	var ours []*rmq.MessageView
	for _, mv := range all {
		if mv.GetProperties()["try"] == c.id {
			ours = append(ours, mv)
		} else if err := c.Ack(context.Background(), mv); err != nil {
			return nil, err
		}
	}
	return ours, nil
}

// take polls until it has n messages, at most until the deadline.
func (c *consumer) take(n int, invisible time.Duration, deadline time.Time) ([]*rmq.MessageView, error) {
	var got []*rmq.MessageView
	for len(got) < n {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d of %d messages came in time", len(got), n)
		}
		mvs, err := c.poll(invisible)
		if err != nil {
			return nil, err
		}
		got = append(got, mvs...)
	}
	if len(got) > n {
		return nil, fmt.Errorf("%d messages came, want %d", len(got), n)
	}
	return got, nil
}

// quiet polls for a time in which nothing must come.
func (c *consumer) quiet(d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		mvs, err := c.poll(invisible)
		if err != nil && !errors.Is(err, errLost) { // what was lost was most likely empty
			return err
		}
		if len(mvs) > 0 {
			return fmt.Errorf("message %q came again, attempt %d", mvs[0].GetProperties()["i"], mvs[0].GetDeliveryAttempt())
		}
	}
	return nil
}
