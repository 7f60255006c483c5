package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// growSettings are the settings of topic grow.
type growSettings struct {
	clientSettings `koanf:",squash"`
	outputSettings `koanf:",squash"`
	Queues         int  `koanf:"queues" help:"queues in all, over all broker groups"`
	Abort          bool `koanf:"abort" help:"give up a growth that is under way: the topic stays as it was"`
}

const growLong = `Give a topic of type FIFO or MIXED more queues.

A message group lives in the queue that the hash of its name chooses from all, so the list of queues may
only change when nothing of any message group is left to do. From its first step on this command makes the
brokers refuse messages with a message group (producers are told TOO_MANY_REQUESTS and try again; other
messages of a MIXED topic are taken as ever). Then it waits until all that were sent before are done by every
consumer group that has ever read the topic, delayed ones and open transactions included, and adds the queues.

If that takes longer than --timeout the growth is given up and the topic stays as it was. If this command or
a server dies, do the same again, or use --abort; what nobody waits for any more the controller gives up by
itself. A group that nobody uses any more holds growth up: delete it, or move it on with perigee group reset.

A group that begins to read at the first message later, or is moved back before the growth, meets the old
and the new messages of one message group in different queues, so their order is not kept for it.`

// growPoll is the pause between two steps, growStep how long one may take, growSlack how much longer than
// this command the controller waits.
const (
	growPoll  = 500 * time.Millisecond
	growStep  = 15 * time.Second
	growSlack = 15 * time.Second
)

func newTopicGrow() *cobra.Command {
	s := &growSettings{clientSettings: defaultClient(), outputSettings: outputSettings{"table"}}
	s.Timeout = 5 * time.Minute
	c := &cobra.Command{
		Use: "grow NAME", Short: "Give a topic with message groups more queues, once nothing of them is left to do", Long: growLong,
		Args: exactArgs(1, "a topic name"), RunE: func(c *cobra.Command, args []string) error {
			if err := s.check(); err != nil {
				return err
			}
			if !s.Abort {
				if err := checkQueues("--queues", s.Queues); err != nil {
					return err
				}
				if s.Timeout > 23*time.Hour {
					return usageError("--timeout %s: at most 23h, since messages are refused meanwhile", s.Timeout)
				}
			}
			var resp *adminv1.GrowTopicResponse
			if err := s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) (err error) {
				resp, err = s.grow(ctx, a, args[0], c.ErrOrStderr())
				return err
			}); err != nil {
				return err
			}
			if s.Output == "json" {
				return printJSON(c.OutOrStdout(), resp)
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "topic %s %s: %s\n", args[0], s.outcome(resp), topicLine(resp.GetTopic()))
			return err
		},
	}
	return withSettings(c, s)
}

func (s *growSettings) outcome(r *adminv1.GrowTopicResponse) string {
	switch {
	case s.Abort && r.GetChanged():
		return "does not grow any more"
	case s.Abort:
		return "was not growing"
	}
	return outcome(false, r.GetChanged())
}

// grow takes step after step until the topic has its queues, or gives up.
func (s *growSettings) grow(ctx context.Context, a adminv1.AdminServiceClient, name string, out io.Writer) (*adminv1.GrowTopicResponse, error) {
	if s.Abort {
		return a.GrowTopic(ctx, &adminv1.GrowTopicRequest{Name: name, Abort: true})
	}
	end, told, until := time.Now().Add(s.Timeout), "", int64(0)
	for {
		one, cancel := context.WithTimeout(ctx, growStep)
		resp, err := a.GrowTopic(one, &adminv1.GrowTopicRequest{Name: name, Queues: int32(s.Queues), ForMs: (time.Until(end) + growSlack).Milliseconds()})
		cancel()
		if err == nil && resp.GetDone() {
			resp.Changed = resp.GetChanged() || until != 0 // an answer may have been lost
			return resp, nil
		}
		if err != nil && !passing(err) {
			return nil, err
		}
		why := "no answer: " + status.Convert(err).Message()
		if err == nil {
			until, why = resp.GetTopic().GetGrowing().GetUntilMs(), waitsFor(resp)
		}
		if why != told {
			told = why
			fmt.Fprintf(out, "topic %s waits for %s\n", name, why)
		}
		select {
		case <-time.After(growPoll):
			if time.Until(end) > 2*growPoll {
				continue
			}
		case <-ctx.Done():
		}
		return s.giveUp(ctx, a, name, until, why)
	}
}

// passing reports whether the next step may do better.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Canceled:
		return true
	}
	return false
}

// giveUp ends what this command has begun, unless somebody else waits longer for it, or has brought it to its
// end just now.
func (s *growSettings) giveUp(ctx context.Context, a adminv1.AdminServiceClient, name string, until int64, why string) (*adminv1.GrowTopicResponse, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), growStep)
	defer cancel()
	resp, err := a.GrowTopic(ctx, &adminv1.GrowTopicRequest{Name: name, Abort: true, UntilMs: until})
	have := queuesOf(resp.GetTopic())
	switch {
	case err != nil:
		err = fmt.Errorf("topic %s waits for %s, and it could not be given up, which happens by itself soon: %s", name, why, status.Convert(err).Message())
	case !resp.GetDone():
		err = fmt.Errorf("topic %s waits for %s; somebody else goes on waiting", name, why)
	case have >= s.Queues:
		return resp, nil
	default:
		err = fmt.Errorf("topic %s keeps its %d queues: after %s it still waited for %s", name, have, s.Timeout, why)
	}
	return nil, exitError{code: exitRefused, err: err}
}

// waitsFor says what is left, the first few parts of it.
func waitsFor(r *adminv1.GrowTopicResponse) string {
	var parts []string
	for _, l := range r.GetLeft() {
		n := fmt.Sprintf("%d messages", l.GetMessages())
		if l.GetMessages() == 1 {
			n = "1 message"
		}
		switch l.GetWhat() {
		case "group":
			parts = append(parts, fmt.Sprintf("%s that group %s has not done on broker %s", n, l.GetGroup(), l.GetBroker()))
		case "delayed":
			parts = append(parts, fmt.Sprintf("%s on broker %s whose time has not come", n, l.GetBroker()))
		case "transactions":
			parts = append(parts, fmt.Sprintf("%s of open transactions on broker %s", n, l.GetBroker()))
		default:
			parts = append(parts, fmt.Sprintf("%s on the way to the disk of broker %s", n, l.GetBroker()))
		}
	}
	parts = append(parts, r.GetUnknown()...)
	const shown = 5
	if n := len(parts); n > shown {
		parts = append(parts[:shown], fmt.Sprintf("%d others", n-shown))
	}
	return strings.Join(parts, ", ")
}

// describeMore prints what only some topics have.
func describeMore(w io.Writer, r *adminv1.DescribeTopicResponse) {
	if g := r.GetTopic().GetGrowing(); g != nil {
		until := g.GetUntilMs()
		fmt.Fprintf(w, "growing to %d queues until %s: messages with a message group are refused\n", g.GetQueues(), moment(&until))
	}
	if r.GetTopic().GetType() == controllerv1.TopicType_TOPIC_TYPE_LITE {
		fmt.Fprintf(w, "lite topics: %d\n", r.GetLiteTopics())
	}
}

// liteListSettings are the settings of topic lite.
type liteListSettings struct {
	clientSettings `koanf:",squash"`
	outputSettings `koanf:",squash"`
	After          string `koanf:"after" help:"show only lite topics whose names come after this one"`
	Max            int    `koanf:"max" help:"lite topics to show, 1 to 1024"`
}

func newTopicLite() *cobra.Command {
	s := &liteListSettings{clientSettings: defaultClient(), outputSettings: outputSettings{"table"}, Max: 100}
	c := &cobra.Command{Use: "lite NAME", Short: "List the lite topics of a topic by name", Args: exactArgs(1, "a topic name"), RunE: func(c *cobra.Command, args []string) error {
		if err := s.check(); err != nil {
			return err
		}
		if s.Max < 1 || s.Max > 1024 {
			return usageError("--max %d: use 1 to 1024", s.Max)
		}
		return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
			resp, err := a.ListLiteTopics(ctx, &adminv1.ListLiteTopicsRequest{Topic: args[0], After: s.After, Max: int32(s.Max)})
			if err != nil {
				return err
			}
			if s.Output == "json" {
				return printJSON(c.OutOrStdout(), resp)
			}
			t := newTable(c.OutOrStdout(), "NAME", "BROKER", "MIN", "MAX", "SUBSCRIBERS", "ACTIVE")
			for _, l := range resp.GetTopics() {
				t.AppendRow([]any{l.GetName(), l.GetBroker(), l.GetMin(), l.GetMax(), l.GetSubscribers(), moment(&l.ActiveMs)})
			}
			t.Render()
			if resp.GetMore() {
				fmt.Fprintf(c.OutOrStdout(), "there are others: --after %q\n", resp.GetTopics()[len(resp.GetTopics())-1].GetName())
			}
			return unknownParts(c, resp.GetUnknown())
		})
	}}
	return withSettings(c, s)
}
