package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/cfg"
)

// sendSettings are the settings of send.
type sendSettings struct {
	clientSettings `koanf:",squash"`
	outputSettings `koanf:",squash"`
	delaySettings  `koanf:",squash"`
	Tag            string    `koanf:"tag" help:"tag of the messages"`
	Key            cfg.Texts `koanf:"key" help:"key of the messages, may be given several times"`
	Group          string    `koanf:"group" help:"message group of the messages: they stay in order"`
	Priority       int       `koanf:"priority" help:"level of the messages on a PRIORITY topic, higher first; -1 for none"`
	Lite           string    `koanf:"lite" help:"lite topic of the messages, on a LITE topic"`
	Property       cfg.Texts `koanf:"property" help:"user property name=value, may be given several times"`
	Count          int       `koanf:"count" help:"how many to send"`
	Rate           int       `koanf:"rate" help:"messages per second, 0 for as fast as possible"`
}

func newSend() *cobra.Command {
	s := &sendSettings{clientSettings: defaultClient(), outputSettings: outputSettings{"table"}, Count: 1, Priority: -1}
	c := &cobra.Command{
		Use: "send TOPIC [BODY|-]", Short: "Send messages",
		Long: "Sends a message, or the same one --count times. Without BODY, or with -, the body is read from standard input, as it is.\n" +
			"With -o json each line of the output is one message.",
		Example: "  perigee send orders 'hello' --tag new --key order-1\n  perigee send orders - < order.json\n  perigee send reminders 'call back' --delay 1h",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usageError("%s takes a topic and a body, got %q\nusage: %s", c.CommandPath(), args, c.UseLine())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.check(); err != nil {
				return err
			}
			body, err := bodyOf(c, args[1:])
			if err != nil {
				return err
			}
			return s.run(c.Context(), c.OutOrStdout(), args[0], body)
		},
	}
	return withSettings(c, s)
}

func (s *sendSettings) check() error {
	switch {
	case s.Count < 1:
		return usageError("--count %d: use 1 or more", s.Count)
	case s.Priority < -1 || s.Priority > math.MaxInt32:
		return usageError("--priority %d: use 0 or more, or -1 for none", s.Priority)
	case s.Rate < 0:
		return usageError("--rate %d: use messages per second, or 0 for as fast as possible", s.Rate)
	}
	if err := s.delaySettings.check(); err != nil {
		return err
	}
	return s.outputSettings.check()
}

// bodyOf is the body that the arguments give, or standard input.
func bodyOf(c *cobra.Command, args []string) ([]byte, error) {
	if len(args) == 1 && args[0] != "-" {
		return []byte(args[0]), nil
	}
	stdin := c.InOrStdin()
	if f, ok := stdin.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			fmt.Fprintln(c.ErrOrStderr(), "reading the body from standard input; end it with Ctrl-D")
		}
	}
	return io.ReadAll(stdin)
}

func (s *sendSettings) run(ctx context.Context, w io.Writer, topic string, body []byte) error {
	props, err := pairs(s.Property)
	if err != nil {
		return err
	}
	cl, err := s.client()
	if err != nil {
		return err
	}
	defer cl.conn.Close()
	limit := rate.NewLimiter(rate.Inf, 1)
	if s.Rate > 0 {
		limit = rate.NewLimiter(rate.Limit(s.Rate), 1)
	}
	for range s.Count {
		if err := limit.Wait(ctx); err != nil {
			return err
		}
		m := s.message(cl, topic, body, props)
		entry, err := s.send(ctx, cl, m)
		if err != nil {
			return err
		}
		if err := s.tell(w, topic, entry); err != nil {
			return err
		}
	}
	return nil
}

// tell prints what became of one message.
func (s *sendSettings) tell(w io.Writer, topic string, entry *rmqv2.SendResultEntry) error {
	if s.Output == "json" {
		line := map[string]any{"message_id": entry.GetMessageId(), "topic": topic, "offset": entry.GetOffset()}
		if h := entry.GetRecallHandle(); h != "" {
			delete(line, "offset") // it has none yet
			line["recall_handle"] = h
		}
		return json.NewEncoder(w).Encode(line)
	}
	if h := entry.GetRecallHandle(); h != "" {
		_, err := fmt.Fprintf(w, "sent %s to %s, to be delivered later, recall handle %s\n", entry.GetMessageId(), topic, h)
		return err
	}
	_, err := fmt.Fprintf(w, "sent %s to %s, offset %d\n", entry.GetMessageId(), topic, entry.GetOffset())
	return err
}

func (s *sendSettings) message(cl *client, topic string, body []byte, props map[string]string) *rmqv2.Message {
	sys := &rmqv2.SystemProperties{
		MessageId: cl.ids.id(), Keys: s.Key, BodyEncoding: rmqv2.Encoding_IDENTITY, MessageType: rmqv2.MessageType_NORMAL, BornTimestamp: timestamppb.Now(),
	}
	if s.Tag != "" {
		sys.Tag = &s.Tag
	}
	if s.Group != "" {
		sys.MessageGroup, sys.MessageType = &s.Group, rmqv2.MessageType_FIFO
	}
	if s.Lite != "" {
		sys.LiteTopic, sys.MessageType = &s.Lite, rmqv2.MessageType_LITE
	}
	if s.Priority >= 0 {
		sys.Priority, sys.MessageType = new(int32(s.Priority)), rmqv2.MessageType_PRIORITY
	}
	if at := s.due(time.Now()); at != nil {
		sys.DeliveryTimestamp, sys.MessageType = at, rmqv2.MessageType_DELAY
	}
	return &rmqv2.Message{Topic: &rmqv2.Resource{Name: topic}, UserProperties: props, SystemProperties: sys, Body: body}
}

func (s *sendSettings) send(ctx context.Context, cl *client, m *rmqv2.Message) (*rmqv2.SendResultEntry, error) {
	ctx, cancel := context.WithTimeout(cl.header(ctx), s.Timeout)
	defer cancel()
	resp, err := cl.rpc.SendMessage(ctx, &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{m}})
	if err != nil {
		return nil, s.explain(err)
	}
	if err := good(resp.GetStatus()); err != nil {
		return nil, err
	}
	if len(resp.GetEntries()) != 1 {
		return nil, fmt.Errorf("%d results for one message", len(resp.GetEntries()))
	}
	return resp.GetEntries()[0], good(resp.GetEntries()[0].GetStatus())
}

// pairs reads name=value texts.
func pairs(texts []string) (map[string]string, error) {
	m := make(map[string]string, len(texts))
	for _, t := range texts {
		name, value, ok := strings.Cut(t, "=")
		if !ok || name == "" {
			return nil, usageError("--property %q: write name=value", t)
		}
		m[name] = value
	}
	return m, nil
}

// since prints how long ago a time was, in whole seconds.
func since(t time.Time) string { return time.Since(t).Truncate(time.Second).String() }
