package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
)

// resetSettings are the settings of group reset.
type resetSettings struct {
	viewSettings `koanf:",squash"`
	ToBegin      bool   `koanf:"to-begin" help:"to the first stored message"`
	ToEnd        bool   `koanf:"to-end" help:"behind the last message"`
	ToTime       string `koanf:"to-time" help:"to the first message stored at or after this time (RFC 3339)"`
	Skip         int    `koanf:"skip" help:"this many messages behind the oldest one that is not done, in each queue; -1: none of that"`
	DryRun       bool   `koanf:"dry-run" help:"only show what would happen"`
}

func newGroupReset() *cobra.Command {
	s := &resetSettings{viewSettings: *defaultView(), Skip: -1}
	c := &cobra.Command{
		Use: "reset GROUP TOPIC", Short: "Move a group to another position of a topic, at once", Args: exactArgs(2, "a group name and a topic name"),
		Long: `Move a group to another position in all queues of a topic, at once and on all brokers.

Below the new position every message is done for the group, whether it was
delivered, waits to be delivered again, or was never delivered. At or above it
every message comes again from its first attempt on, done before or not.

What is in flight ends: consumers that hold messages keep working on them, but
what they say about them no longer counts. Their acknowledgement of a message at
or above the new position is refused, and somebody gets that message again; below
it there is nothing left to acknowledge. Stop the consumers first if no message
may be worked on twice.

A position that a pull consumer of the group has stored is moved as well.
Messages that were moved to the dead-letter topic stay there.`,
		Example: `  perigee group reset billing orders --to-time 2026-01-31T12:00:00Z --dry-run
  perigee group reset billing orders --skip 1`,
		RunE: func(c *cobra.Command, args []string) error {
			req, err := s.request(args)
			if err != nil {
				return err
			}
			return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
				resp, err := a.ResetGroup(ctx, req)
				if err != nil {
					return err
				}
				if s.Output == "json" {
					err = printJSON(c.OutOrStdout(), resp)
				} else {
					err = s.print(c, resp)
				}
				if err == nil && len(resp.GetUnknown()) > 0 {
					err = exitError{code: exitUnreachable, err: fmt.Errorf("%d brokers did not answer: whether the group was moved there is not known, ask again", len(resp.GetUnknown()))}
				}
				return err
			})
		},
	}
	return withSettings(c, s)
}

func (s *resetSettings) request(args []string) (*adminv1.ResetGroupRequest, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	req, n := &adminv1.ResetGroupRequest{Group: args[0], Topic: args[1], DryRun: s.DryRun}, 0
	if s.ToBegin {
		req.To = &adminv1.ResetGroupRequest_Begin{Begin: true}
		n++
	}
	if s.ToEnd {
		req.To = &adminv1.ResetGroupRequest_End{End: true}
		n++
	}
	if s.ToTime != "" {
		t, err := time.Parse(time.RFC3339, s.ToTime)
		if err != nil {
			return nil, usageError("--to-time %q: write a time like 2026-01-31T12:00:00Z", s.ToTime)
		}
		ms := t.UnixMilli()
		if t.After(time.UnixMilli(ms)) {
			ms++ // store times are whole milliseconds: the first one that is not earlier
		}
		req.To = &adminv1.ResetGroupRequest_TimeMs{TimeMs: ms}
		n++
	}
	if s.Skip != -1 {
		if s.Skip < 0 {
			return nil, usageError("--skip %d: skip 0 or more messages", s.Skip)
		}
		req.To = &adminv1.ResetGroupRequest_Skip{Skip: int64(s.Skip)}
		n++
	}
	if n != 1 {
		return nil, usageError("say where to go with one of --to-begin, --to-end, --to-time and --skip")
	}
	return req, nil
}

func (s *resetSettings) print(c *cobra.Command, resp *adminv1.ResetGroupResponse) error {
	t := newTable(c.OutOrStdout(), "BROKER", "QUEUE", "FROM", "TO", "LEASES ENDED", "COME AGAIN", "DROPPED")
	var leases, again, dropped int64
	for _, q := range resp.GetQueues() {
		t.AppendRow([]any{q.GetBroker(), q.GetQueue(), q.GetFrom(), q.GetTo(), q.GetInFlight(), q.GetAgain(), q.GetDropped()})
		leases, again, dropped = leases+q.GetInFlight(), again+q.GetAgain(), dropped+q.GetDropped()
	}
	t.Render()
	done := "group moved"
	if s.DryRun {
		done = "dry run, nothing was changed"
	}
	_, _ = fmt.Fprintf(c.OutOrStdout(), "%s: leases ended %d, done messages that come again %d, messages done that were not %d\n", done, leases, again, dropped)
	return unknownParts(c, resp.GetUnknown())
}

// offsetsSettings are the settings of group offsets.
type offsetsSettings struct {
	viewSettings `koanf:",squash"`
	Topic        string `koanf:"topic" help:"only this topic"`
}

func newGroupOffsets() *cobra.Command {
	s := &offsetsSettings{viewSettings: *defaultView()}
	c := &cobra.Command{
		Use: "offsets NAME", Short: "Show where a group stands, queue by queue", Args: exactArgs(1, "a group name"),
		Long: `Show where a group stands, queue by queue.

The position is what a pull consumer of the group has stored, the offset of the
next message to read. A group that receives has none stored: for it the position
is the offset below which everything is done. Without --topic only queues are
shown in which the group has a position.`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.check(); err != nil {
				return err
			}
			return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
				resp, err := a.GroupOffsets(ctx, &adminv1.GroupOffsetsRequest{Group: args[0], Topic: s.Topic})
				if err != nil {
					return err
				}
				if s.Output == "json" {
					return printJSON(c.OutOrStdout(), resp)
				}
				t := newTable(c.OutOrStdout(), "TOPIC", "BROKER", "QUEUE", "MIN", "MAX", "POSITION", "BEHIND")
				for _, q := range resp.GetOffsets() {
					at, behind := "-", "-"
					if q.Position != nil {
						at, behind = fmt.Sprint(q.GetPosition()), fmt.Sprint(q.GetMax()-q.GetPosition())
					}
					t.AppendRow([]any{q.GetTopic(), q.GetBroker(), q.GetQueue(), q.GetMin(), q.GetMax(), at, behind})
				}
				t.Render()
				return unknownParts(c, resp.GetUnknown())
			})
		},
	}
	return withSettings(c, s)
}
