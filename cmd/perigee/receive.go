package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// receiveSettings are the settings of receive.
type receiveSettings struct {
	clientSettings `koanf:",squash"`
	Group          string        `koanf:"group" help:"consumer group"`
	Tags           string        `koanf:"filter" help:"only these tags, as in 'a || b'"`
	Count          int           `koanf:"count" help:"stop after so many messages"`
	NoAck          bool          `koanf:"no-ack" help:"do not acknowledge: the messages come again"`
	Invisible      time.Duration `koanf:"invisible" help:"time until an unacknowledged message comes again"`
	Wait           time.Duration `koanf:"wait" help:"how long to wait for a message, unless --follow"`
	Follow         bool          `koanf:"follow" help:"go on until interrupted"`
}

func newReceive() *cobra.Command {
	s := &receiveSettings{clientSettings: defaultClient(), Count: 1, Invisible: 30 * time.Second, Wait: 10 * time.Second}
	c := &cobra.Command{
		Use: "receive TOPIC --group G", Short: "Receive messages, print and acknowledge them",
		Example: "  perigee receive orders --group billing --count 10",
		Args:    exactArgs(1, "a topic name"),
		RunE: func(c *cobra.Command, args []string) error {
			if s.Group == "" {
				return usageError("receive needs --group: progress belongs to a consumer group")
			}
			return s.run(c.Context(), c.OutOrStdout(), args[0])
		},
	}
	return withSettings(c, s)
}

// pollTime is the long polling time of one call. The server accepts 5 s and more.
const pollTime = 5 * time.Second

// receiveMax is the largest batch that a server hands out.
const receiveMax = 32

func (s *receiveSettings) run(ctx context.Context, w io.Writer, topic string) error {
	cl, err := s.client()
	if err != nil {
		return err
	}
	defer cl.conn.Close()
	got, quietSince := 0, time.Now()
	for s.Follow || got < s.Count {
		want := receiveMax
		if !s.Follow {
			want = min(receiveMax, s.Count-got)
		}
		messages, err := s.receive(ctx, cl, topic, want)
		switch {
		case ctx.Err() != nil && s.Follow:
			return nil
		case err != nil:
			return err
		case len(messages) == 0 && !s.Follow && time.Since(quietSince) >= s.Wait:
			return exitError{code: exitFailed, err: fmt.Errorf("no message for group %s on %s within %s (%d received)", s.Group, topic, since(quietSince), got)}
		case len(messages) > 0:
			quietSince = time.Now()
		}
		for _, m := range messages {
			show(w, m)
		}
		if err := s.ack(ctx, cl, topic, messages); err != nil {
			return err
		}
		got += len(messages)
	}
	return nil
}

// receive makes one call and returns what came.
func (s *receiveSettings) receive(ctx context.Context, cl *client, topic string, want int) ([]*rmqv2.Message, error) {
	ctx, cancel := context.WithTimeout(cl.header(ctx), pollTime+s.Timeout)
	defer cancel()
	filter := &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"}
	if s.Tags != "" {
		filter.Expression = s.Tags
	}
	st, err := cl.rpc.ReceiveMessage(ctx, &rmqv2.ReceiveMessageRequest{
		Group: &rmqv2.Resource{Name: s.Group}, MessageQueue: &rmqv2.MessageQueue{Topic: &rmqv2.Resource{Name: topic}},
		FilterExpression: filter, BatchSize: int32(want), InvisibleDuration: durationpb.New(s.Invisible), LongPollingTimeout: durationpb.New(pollTime),
	})
	if err != nil {
		return nil, s.explain(err)
	}
	var out []*rmqv2.Message
	for {
		resp, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, s.explain(err)
		}
		if m := resp.GetMessage(); m != nil {
			out = append(out, m)
		}
		if status := resp.GetStatus(); status != nil && status.GetCode() != rmqv2.Code_MESSAGE_NOT_FOUND {
			if err := good(status); err != nil {
				return nil, err
			}
		}
	}
}

func (s *receiveSettings) ack(ctx context.Context, cl *client, topic string, messages []*rmqv2.Message) error {
	if s.NoAck || len(messages) == 0 {
		return nil
	}
	req := &rmqv2.AckMessageRequest{Group: &rmqv2.Resource{Name: s.Group}, Topic: &rmqv2.Resource{Name: topic}}
	for _, m := range messages {
		sys := m.GetSystemProperties()
		req.Entries = append(req.Entries, &rmqv2.AckMessageEntry{MessageId: sys.GetMessageId(), ReceiptHandle: sys.GetReceiptHandle()})
	}
	// What was printed is acknowledged, also when the command is interrupted meanwhile.
	ctx, cancel := context.WithTimeout(cl.header(context.WithoutCancel(ctx)), s.Timeout)
	defer cancel()
	resp, err := cl.rpc.AckMessage(ctx, req)
	if err != nil {
		return s.explain(err)
	}
	return good(resp.GetStatus())
}

// show prints one message: a line of what it is, then its body.
func show(w io.Writer, m *rmqv2.Message) {
	sys := m.GetSystemProperties()
	fmt.Fprintf(w, "%s queue %d offset %d attempt %d", sys.GetMessageId(), sys.GetQueueId(), sys.GetQueueOffset(), sys.GetDeliveryAttempt())
	if sys.GetTag() != "" {
		fmt.Fprintf(w, " tag %s", sys.GetTag())
	}
	if len(sys.GetKeys()) > 0 {
		fmt.Fprintf(w, " keys %s", strings.Join(sys.GetKeys(), ","))
	}
	if sys.GetMessageGroup() != "" {
		fmt.Fprintf(w, " group %s", sys.GetMessageGroup())
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetUserProperties())) {
		fmt.Fprintf(w, " %s=%q", name, m.GetUserProperties()[name])
	}
	fmt.Fprintf(w, "\n%s\n", m.GetBody())
}
