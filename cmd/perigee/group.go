package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

func newGroup() *cobra.Command {
	c := &cobra.Command{Use: "group", Short: "Manage consumer groups"}
	c.AddCommand(newGroupPut("create"), newGroupPut("update"), newGroupList(), newGroupDescribe(), newGroupDelete(), newGroupReset(), newGroupOffsets())
	return c
}

// groupSettings are the settings of group create and update.
type groupSettings struct {
	clientSettings    `koanf:",squash"`
	outputSettings    `koanf:",squash"`
	Ordered           bool   `koanf:"ordered" help:"hand out messages of one message group one after the other"`
	MaxAttempts       int    `koanf:"max-attempts" help:"deliveries of a message; when the last one fails it goes to the dead letters"`
	Retry             string `koanf:"retry" help:"delays before a failed message comes again: default, list:1s,5s,1m (the last one stays), or exponential:INITIAL,MAX,FACTOR as in exponential:1s,2h,2"`
	From              string `koanf:"from" help:"where a new group begins: first, last, or a time (RFC 3339)"`
	MaxInFlight       int    `koanf:"max-in-flight" help:"messages that each broker leases to the group at most; 0: as the broker is set"`
	MaxInFlightClient int    `koanf:"max-in-flight-client" help:"messages that each broker leases to one client of the group at most; 0: as the broker is set"`
	LiteTopic         string `koanf:"lite-topic" help:"parent topic of a lite group"`
}

func newGroupPut(verb string) *cobra.Command {
	s := &groupSettings{clientSettings: defaultClient(), outputSettings: outputSettings{"table"}}
	mode := controllerv1.PutMode_PUT_MODE_UPDATE
	short := "Change a group: what is not named stays"
	if verb == "create" {
		s.MaxAttempts, s.From = 17, "first"
		mode = controllerv1.PutMode_PUT_MODE_UNSPECIFIED
		short = "Create a group"
	}
	c := &cobra.Command{Use: verb + " NAME", Short: short, Args: exactArgs(1, "a group name"), RunE: func(c *cobra.Command, args []string) error {
		given := func(flag string) bool { return verb == "create" || c.Flags().Changed(flag) }
		req, err := s.request(args[0], mode, given)
		if err != nil {
			return err
		}
		return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
			resp, err := a.PutGroup(ctx, &adminv1.PutGroupRequest{Group: req})
			if err != nil {
				return err
			}
			if s.Output == "json" {
				return printJSON(c.OutOrStdout(), resp)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "group %s %s: %s\n", args[0], outcome(resp.GetCreated(), resp.GetChanged()), groupLine(resp.GetGroup()))
			return err
		})
	}}
	return withSettings(c, s)
}

func (s *groupSettings) request(name string, mode controllerv1.PutMode, given func(string) bool) (*controllerv1.PutGroupRequest, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	req := &controllerv1.PutGroupRequest{Name: name, Mode: mode}
	if given("ordered") {
		req.Ordered = &s.Ordered
	}
	if given("max-attempts") {
		n := int32(s.MaxAttempts)
		req.MaxAttempts = &n
	}
	if given("retry") && s.Retry != "" {
		if err := setRetry("--retry", s.Retry, req); err != nil {
			return nil, err
		}
	}
	if given("max-in-flight") {
		req.MaxInFlight = new(int64(s.MaxInFlight))
	}
	if given("max-in-flight-client") {
		req.MaxInFlightClient = new(int64(s.MaxInFlightClient))
	}
	if given("lite-topic") {
		req.LiteTopic = &s.LiteTopic
	}
	if given("from") {
		var err error
		if req.From, req.FromMs, err = startFrom(s.From); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// startFrom reads where a group begins.
func startFrom(text string) (controllerv1.StartFrom, int64, error) {
	switch text {
	case "", "first":
		return controllerv1.StartFrom_START_FROM_FIRST, 0, nil
	case "last":
		return controllerv1.StartFrom_START_FROM_LAST, 0, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, 0, usageError("--from %q: use first, last, or a time like 2026-01-31T12:00:00Z", text)
	}
	return controllerv1.StartFrom_START_FROM_TIME, t.UnixMilli(), nil
}

func fromName(g *controllerv1.Group) string {
	switch g.GetFrom() {
	case controllerv1.StartFrom_START_FROM_LAST:
		return "last"
	case controllerv1.StartFrom_START_FROM_TIME:
		ms := g.GetFromMs()
		return moment(&ms)
	}
	return "first"
}

func orderName(g *controllerv1.Group) string {
	if g.GetOrdered() {
		return "ordered"
	}
	return "unordered"
}

func groupLine(g *controllerv1.Group) string {
	line := fmt.Sprintf("%s, max attempts %d, from %s", orderName(g), g.GetMaxAttempts(), fromName(g))
	if retry := retryName(g); retry != "default" {
		line += ", retry " + retry
	}
	if n := g.GetMaxInFlight(); n > 0 {
		line += fmt.Sprintf(", at most %d in flight on a broker", n)
	}
	if n := g.GetMaxInFlightClient(); n > 0 {
		line += fmt.Sprintf(", at most %d of a client", n)
	}
	if g.GetLiteTopic() != "" {
		line += ", lite topic " + g.GetLiteTopic()
	}
	return line
}

func newGroupList() *cobra.Command {
	s := defaultView()
	c := &cobra.Command{Use: "list", Short: "List consumer groups", Args: exactArgs(0, "no argument"), RunE: func(c *cobra.Command, _ []string) error {
		if err := s.check(); err != nil {
			return err
		}
		return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
			resp, err := a.ListGroups(ctx, &adminv1.ListGroupsRequest{})
			if err != nil {
				return err
			}
			if s.Output == "json" {
				return printJSON(c.OutOrStdout(), resp)
			}
			t := newTable(c.OutOrStdout(), "NAME", "ORDER", "MAX ATTEMPTS", "FROM", "LITE TOPIC")
			for _, g := range resp.GetGroups() {
				t.AppendRow([]any{g.GetName(), orderName(g), g.GetMaxAttempts(), fromName(g), g.GetLiteTopic()})
			}
			t.Render()
			return nil
		})
	}}
	return withSettings(c, s)
}

// describeGroupSettings are the settings of group describe.
type describeGroupSettings struct {
	viewSettings `koanf:",squash"`
	Topic        string `koanf:"topic" help:"only this topic"`
	Queues       bool   `koanf:"by-queue" help:"show each queue"`
}

func newGroupDescribe() *cobra.Command {
	s := &describeGroupSettings{viewSettings: *defaultView()}
	c := &cobra.Command{Use: "describe NAME", Short: "Show a group with its progress, exactly", Args: exactArgs(1, "a group name"), RunE: func(c *cobra.Command, args []string) error {
		if err := s.check(); err != nil {
			return err
		}
		return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
			resp, err := a.DescribeGroup(ctx, &adminv1.DescribeGroupRequest{Name: args[0], Topic: s.Topic})
			if err != nil {
				return err
			}
			if s.Output == "json" {
				return printJSON(c.OutOrStdout(), resp)
			}
			fmt.Fprintf(c.OutOrStdout(), "group %s (id %d): %s\n", args[0], resp.GetGroup().GetId(), groupLine(resp.GetGroup()))
			s.print(c, resp.GetTopics())
			return unknownParts(c, resp.GetUnknown())
		})
	}}
	return withSettings(c, s)
}

func (s *describeGroupSettings) print(c *cobra.Command, topics []*adminv1.GroupTopic) {
	t := newTable(c.OutOrStdout(), "TOPIC", "READY", "IN FLIGHT", "WAITING", "OLDEST READY", "PAST MAX ATTEMPTS", "DELETED UNREAD")
	for _, g := range topics {
		t.AppendRow([]any{g.GetTopic(), g.GetReady(), g.GetInFlight(), g.GetWaiting(), moment(g.OldestMs), g.GetOverMaxAttempts(), g.GetLost()})
	}
	t.Render()
	told := map[string]bool{}
	for _, g := range topics {
		for _, b := range g.GetBounds() {
			if !told[b.GetBroker()] {
				told[b.GetBroker()] = true
				fmt.Fprintf(c.OutOrStdout(), "in flight on broker %s: %s, %s of one client\n", b.GetBroker(), atMost(b.GetGroup()), atMost(b.GetClient()))
			}
		}
	}
	if !s.Queues {
		return
	}
	q := newTable(c.OutOrStdout(), "TOPIC", "BROKER", "QUEUE", "MIN", "MAX", "FLOOR", "NEXT", "READY", "IN FLIGHT", "WAITING")
	for _, g := range topics {
		for _, r := range g.GetQueues() {
			q.AppendRow([]any{g.GetTopic(), r.GetBroker(), r.GetQueue(), r.GetMin(), r.GetMax(), r.GetFloor(), r.GetNext(), r.GetReady(), r.GetInFlight(), r.GetWaiting()})
		}
	}
	q.Render()
}

// atMost names a bound.
func atMost(n int64) string {
	if n == 0 {
		return "no bound"
	}
	return fmt.Sprintf("at most %d", n)
}

func newGroupDelete() *cobra.Command {
	s := defaultView()
	c := &cobra.Command{Use: "delete NAME", Short: "Delete a consumer group with its progress, for good", Args: exactArgs(1, "a group name"), RunE: func(c *cobra.Command, args []string) error {
		if err := s.check(); err != nil {
			return err
		}
		return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
			resp, err := a.DeleteGroup(ctx, &adminv1.DeleteGroupRequest{Name: args[0]})
			if err != nil {
				return err
			}
			if s.Output == "json" {
				return printJSON(c.OutOrStdout(), resp)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "group %s deleted\n", args[0])
			return err
		})
	}}
	return withSettings(c, s)
}
