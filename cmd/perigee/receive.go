package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// receiveSettings are the settings of receive.
type receiveSettings struct {
	clientSettings `koanf:",squash"`
	outputSettings `koanf:",squash"`
	Group          string        `koanf:"group" help:"consumer group"`
	Tags           string        `koanf:"filter" help:"only these tags, as in 'a || b'"`
	SQL            string        `koanf:"sql" help:"only messages with these properties, as in 'color = ''red'' AND size > 5'"`
	Count          int           `koanf:"count" help:"stop after so many messages"`
	NoAck          bool          `koanf:"no-ack" help:"do not acknowledge: the messages come again"`
	Dead           bool          `koanf:"dead" help:"move the messages to the group's dead letters instead of acknowledging them"`
	Invisible      time.Duration `koanf:"invisible" help:"time until an unacknowledged message comes again"`
	Wait           time.Duration `koanf:"wait" help:"how long to wait for a message, in steps of 5s; --follow waits forever"`
	Follow         bool          `koanf:"follow" help:"go on until interrupted"`
}

func newReceive() *cobra.Command {
	s := &receiveSettings{clientSettings: defaultClient(), outputSettings: outputSettings{"table"}, Count: 1, Invisible: 30 * time.Second, Wait: 10 * time.Second}
	c := &cobra.Command{
		Use: "receive TOPIC --group G", Short: "Receive messages, print and acknowledge them",
		Long: "Receives messages, prints each, and then acknowledges it. What was printed is acknowledged also when the command is interrupted.\n" +
			"With -o json each line of the output is one message; a body that is no UTF-8 text is in body_base64.",
		Example: "  perigee receive orders --group billing --count 10\n  perigee receive orders --group billing --follow",
		Args:    exactArgs(1, "a topic name"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.check(); err != nil {
				return err
			}
			stop := untilSignal(c)
			defer stop()
			context.AfterFunc(c.Context(), stop) // a second signal ends it at once
			return s.run(c.Context(), c.OutOrStdout(), args[0])
		},
	}
	return withSettings(c, s)
}

func (s *receiveSettings) check() error {
	switch {
	case s.Group == "":
		return usageError("receive needs --group: progress belongs to a consumer group")
	case s.Tags != "" && s.SQL != "":
		return usageError("--filter and --sql: use one of them; in --sql the tag is TAGS")
	case s.NoAck && s.Dead:
		return usageError("--no-ack and --dead: use one of them")
	case s.Count < 1:
		return usageError("--count %d: use 1 or more, or --follow", s.Count)
	case s.Invisible <= 0:
		return usageError("--invisible %s: use more than 0", s.Invisible)
	case s.Wait < 0:
		return usageError("--wait %s: use 0 or more", s.Wait)
	}
	return s.outputSettings.check()
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
		case ctx.Err() != nil && s.Follow && len(messages) == 0:
			return nil
		case err != nil:
			return err
		case len(messages) == 0 && !s.Follow && time.Since(quietSince) >= s.Wait:
			return exitError{code: exitFailed, err: fmt.Errorf("no message for group %s on %s within %s (%d received)", s.Group, topic, since(quietSince), got)}
		case len(messages) > 0:
			quietSince = time.Now()
		}
		for _, m := range messages {
			if err := s.show(w, m); err != nil {
				return err
			}
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
	if s.SQL != "" {
		filter = &rmqv2.FilterExpression{Type: rmqv2.FilterType_SQL, Expression: s.SQL}
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
	if s.Dead {
		return s.bury(ctx, cl, topic, messages)
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

// bury moves messages to the group's dead letters. Like an ack it is done also when the command is
// interrupted.
func (s *receiveSettings) bury(ctx context.Context, cl *client, topic string, messages []*rmqv2.Message) error {
	ctx, cancel := context.WithTimeout(cl.header(context.WithoutCancel(ctx)), s.Timeout)
	defer cancel()
	for _, m := range messages {
		sys := m.GetSystemProperties()
		resp, err := cl.rpc.ForwardMessageToDeadLetterQueue(ctx, &rmqv2.ForwardMessageToDeadLetterQueueRequest{
			Group: &rmqv2.Resource{Name: s.Group}, Topic: &rmqv2.Resource{Name: topic}, MessageId: sys.GetMessageId(),
			ReceiptHandle: sys.GetReceiptHandle(), DeliveryAttempt: sys.GetDeliveryAttempt(),
		})
		if err != nil {
			return s.explain(err)
		}
		if err := good(resp.GetStatus()); err != nil {
			return err
		}
	}
	return nil
}
