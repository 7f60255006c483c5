package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
)

// traceSettings are the settings of message trace.
type traceSettings struct {
	viewSettings  `koanf:",squash"`
	whichSettings `koanf:",squash"`
}

func newMessageTrace() *cobra.Command {
	s := &traceSettings{viewSettings: *defaultView(), whichSettings: defaultWhich()}
	c := &cobra.Command{
		Use: "trace TOPIC (--id ID | --queue Q --offset N)", Short: "Show what happened to a message, from the log alone",
		Long: "Show what happened to a message: stored, due, leased to whom and until when, acked, nacked, dead. It is read from the broker's log, from the\n" +
			"message to the log's end, so an old message takes a while. --timeout is for each part of it. A lease that ran out has no event of its own: the\n" +
			"next one says so by its attempt.",
		Args: exactArgs(1, "a topic name"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.check(); err != nil {
				return err
			}
			req, err := s.request(args[0])
			if err != nil {
				return err
			}
			return s.run(c, req)
		},
	}
	return withSettings(c, s)
}

// run finds the messages and shows the life of each.
func (s *traceSettings) run(c *cobra.Command, req *adminv1.FindMessagesRequest) error {
	var found *adminv1.FindMessagesResponse
	err := s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) (err error) {
		found, err = a.FindMessages(ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	if err := foundAny(found); err != nil {
		return err
	}
	for i, m := range found.GetMessages() {
		life, err := s.life(c, req.GetTopic(), m)
		if err == nil && s.Output == "json" {
			err = printJSON(c.OutOrStdout(), life)
		} else if s.Output != "json" {
			if i > 0 {
				fmt.Fprintln(c.OutOrStdout())
			}
			printLife(c, m, life) // also what came before a failure
		}
		if err != nil {
			return err
		}
	}
	return unknownParts(c, found.GetUnknown())
}

// progressEvery is how often a long trace says how far it is.
const progressEvery = 5 * time.Second

// life asks until the log was read to its end.
func (s *traceSettings) life(c *cobra.Command, topic string, m *adminv1.StoredMessage) (*adminv1.TraceMessageResponse, error) {
	all := &adminv1.TraceMessageResponse{}
	req := &adminv1.TraceMessageRequest{Topic: topic, Broker: m.GetBroker(), Position: m.GetPosition()}
	told := time.Now()
	for {
		err := s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
			resp, err := a.TraceMessage(ctx, req)
			if err != nil {
				return err
			}
			if resp.GetMessage() != nil {
				all.Message = resp.GetMessage()
			}
			all.Events = append(all.GetEvents(), resp.GetEvents()...)
			all.More, all.Next, all.End = resp.GetMore(), resp.GetNext(), resp.GetEnd()
			req.State = resp.GetState()
			return nil
		})
		if err != nil || !all.GetMore() {
			return all, err
		}
		if time.Since(told) > progressEvery {
			told = time.Now()
			fmt.Fprintf(c.ErrOrStderr(), "%d events so far, %d MiB of the log to read\n", len(all.GetEvents()), (all.GetEnd()-all.GetNext())>>20)
		}
	}
}

func printLife(c *cobra.Command, m *adminv1.StoredMessage, life *adminv1.TraceMessageResponse) {
	fmt.Fprintf(c.OutOrStdout(), "message %s on broker %s\n", m.GetId(), m.GetBroker())
	t := newTable(c.OutOrStdout(), "TIME", "EVENT", "GROUP", "CLIENT", "ATTEMPT", "UNTIL", "DETAIL")
	for _, e := range life.GetEvents() {
		attempt := ""
		if e.GetAttempt() > 0 {
			attempt = fmt.Sprint(e.GetAttempt())
		}
		t.AppendRow([]any{exactMoment(e.GetTimeMs()), e.GetWhat(), e.GetGroup(), e.GetClient(), attempt, exactMoment(e.GetUntilMs()), e.GetText()})
	}
	t.Render()
	if life.GetMore() {
		fmt.Fprintf(c.OutOrStdout(), "the log was read up to position %d of %d: there may be more\n", life.GetNext(), life.GetEnd())
	}
}
