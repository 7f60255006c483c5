package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
)

func newTopic() *cobra.Command {
	c := &cobra.Command{Use: "topic", Short: "Manage topics"}
	c.AddCommand(newTopicPut("create"), newTopicPut("update"), newTopicGrow(), newTopicList(), newTopicDescribe(), newTopicLite(), newTopicDelete())
	return c
}

// topicSettings are the settings of topic create and update.
type topicSettings struct {
	clientSettings `koanf:",squash"`
	outputSettings `koanf:",squash"`
	Queues         int    `koanf:"queues" help:"queues in all, over all broker groups"`
	Type           string `koanf:"type" help:"what it takes: NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, LITE or MIXED"`
	Flush          string `koanf:"flush" help:"when a message counts as stored: default (the broker's policy), sync or async"`
	limits         limitFlags
}

func newTopicPut(verb string) *cobra.Command {
	s := &topicSettings{clientSettings: defaultClient(), outputSettings: outputSettings{"table"}}
	mode := controllerv1.PutMode_PUT_MODE_UPDATE
	short := "Change a topic: what is not named stays"
	if verb == "create" {
		s.Queues, s.Type, s.Flush = 8, "NORMAL", "default"
		mode = controllerv1.PutMode_PUT_MODE_UNSPECIFIED
		short = "Create a topic"
	}
	c := &cobra.Command{Use: verb + " NAME", Short: short, Args: exactArgs(1, "a topic name"), RunE: func(c *cobra.Command, args []string) error {
		req, err := s.request(args[0], mode, c.Flags().Changed)
		if err != nil {
			return err
		}
		return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
			resp, err := a.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: req})
			if err != nil {
				return err
			}
			if s.Output == "json" {
				return printJSON(c.OutOrStdout(), resp)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "topic %s %s: %s\n", args[0], outcome(resp.GetCreated(), resp.GetChanged()), topicLine(resp.GetTopic()))
			return err
		})
	}}
	s.limits.add(c.Flags())
	return withSettings(c, s)
}

func (s *topicSettings) request(name string, mode controllerv1.PutMode, given func(string) bool) (*controllerv1.PutTopicRequest, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	t, err := topicType(s.Type)
	if err != nil {
		return nil, err
	}
	f, err := flushPolicy(s.Flush)
	if err != nil {
		return nil, err
	}
	if given("queues") {
		if err := checkQueues("--queues", s.Queues); err != nil {
			return nil, err
		}
	}
	return &controllerv1.PutTopicRequest{Name: name, Type: t, Queues: int32(s.Queues), Flush: f, Mode: mode, Limits: s.limits.stated}, nil
}

func checkQueues(what string, n int) error {
	if n < 1 || n > state.QueuesMax {
		return usageError("%s %d: use 1 to %d", what, n, state.QueuesMax)
	}
	return nil
}

// topicType reads the name of a topic type; "" leaves the choice to the server.
func topicType(name string) (controllerv1.TopicType, error) {
	if name == "" {
		return controllerv1.TopicType_TOPIC_TYPE_UNSPECIFIED, nil
	}
	n, ok := controllerv1.TopicType_value["TOPIC_TYPE_"+strings.ToUpper(name)]
	if !ok || n == 0 {
		return 0, usageError("topic type %q: use NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, LITE or MIXED", name)
	}
	return controllerv1.TopicType(n), nil
}

func flushPolicy(name string) (controllerv1.FlushPolicy, error) {
	switch name {
	case "", "default":
		return controllerv1.FlushPolicy_FLUSH_POLICY_UNSPECIFIED, nil
	case "sync":
		return controllerv1.FlushPolicy_FLUSH_POLICY_SYNC, nil
	case "async":
		return controllerv1.FlushPolicy_FLUSH_POLICY_ASYNC, nil
	}
	return 0, usageError("flush policy %q: use default, sync or async", name)
}

func outcome(created, changed bool) string {
	switch {
	case created:
		return "created"
	case changed:
		return "changed"
	}
	return "unchanged"
}

func queuesOf(t *controllerv1.Topic) int {
	n := 0
	for _, p := range t.GetPlacements() {
		n += int(p.GetQueues())
	}
	return n
}

func typeName(t *controllerv1.Topic) string {
	return strings.TrimPrefix(t.GetType().String(), "TOPIC_TYPE_")
}

func flushName(t *controllerv1.Topic) string {
	if t.GetFlush() == controllerv1.FlushPolicy_FLUSH_POLICY_UNSPECIFIED {
		return "default"
	}
	return strings.ToLower(strings.TrimPrefix(t.GetFlush().String(), "FLUSH_POLICY_"))
}

func topicLine(t *controllerv1.Topic) string {
	return fmt.Sprintf("%s, %d queues in %d broker groups, flush %s", typeName(t), queuesOf(t), len(t.GetPlacements()), flushName(t)) + limitsLine(t.GetLimits())
}

// viewSettings are the settings of commands that show something.
type viewSettings struct {
	clientSettings `koanf:",squash"`
	outputSettings `koanf:",squash"`
}

func defaultView() *viewSettings {
	return &viewSettings{clientSettings: defaultClient(), outputSettings: outputSettings{"table"}}
}

func newTopicList() *cobra.Command {
	s := defaultView()
	c := &cobra.Command{Use: "list", Short: "List topics", Args: exactArgs(0, "no argument"), RunE: func(c *cobra.Command, _ []string) error {
		if err := s.check(); err != nil {
			return err
		}
		return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
			resp, err := a.ListTopics(ctx, &adminv1.ListTopicsRequest{})
			if err != nil {
				return err
			}
			if s.Output == "json" {
				return printJSON(c.OutOrStdout(), resp)
			}
			t := newTable(c.OutOrStdout(), "NAME", "TYPE", "QUEUES", "FLUSH")
			for _, d := range resp.GetTopics() {
				t.AppendRow([]any{d.GetName(), typeName(d), queuesOf(d), flushName(d)})
			}
			t.Render()
			return nil
		})
	}}
	return withSettings(c, s)
}

func newTopicDescribe() *cobra.Command {
	s := defaultView()
	c := &cobra.Command{Use: "describe NAME", Short: "Show a topic with its queues", Args: exactArgs(1, "a topic name"), RunE: func(c *cobra.Command, args []string) error {
		if err := s.check(); err != nil {
			return err
		}
		return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
			resp, err := a.DescribeTopic(ctx, &adminv1.DescribeTopicRequest{Name: args[0]})
			if err != nil {
				return err
			}
			if s.Output == "json" {
				return printJSON(c.OutOrStdout(), resp)
			}
			fmt.Fprintf(c.OutOrStdout(), "topic %s (id %d): %s\n", args[0], resp.GetTopic().GetId(), topicLine(resp.GetTopic()))
			describeMore(c.OutOrStdout(), resp)
			t := newTable(c.OutOrStdout(), "BROKER", "QUEUE", "MIN", "MAX", "NEWEST")
			for _, q := range resp.GetQueues() {
				t.AppendRow([]any{q.GetBroker(), q.GetQueue(), q.GetMin(), q.GetMax(), moment(q.LastMs)})
			}
			t.Render()
			return unknownParts(c, resp.GetUnknown())
		})
	}}
	return withSettings(c, s)
}

// unknownParts tells which brokers did not answer: their figures are unknown, not 0.
func unknownParts(c *cobra.Command, unknown []string) error {
	for _, u := range unknown {
		fmt.Fprintln(c.OutOrStdout(), "unknown:", u)
	}
	return nil
}

func newTopicDelete() *cobra.Command {
	s := defaultView()
	c := &cobra.Command{Use: "delete NAME", Short: "Delete a topic with all its messages, for good", Args: exactArgs(1, "a topic name"), RunE: func(c *cobra.Command, args []string) error {
		if err := s.check(); err != nil {
			return err
		}
		return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
			resp, err := a.DeleteTopic(ctx, &adminv1.DeleteTopicRequest{Name: args[0]})
			if err != nil {
				return err
			}
			if s.Output == "json" {
				return printJSON(c.OutOrStdout(), resp)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "topic %s deleted\n", args[0])
			return err
		})
	}}
	return withSettings(c, s)
}
