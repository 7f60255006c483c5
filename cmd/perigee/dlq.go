package main

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
)

func newDLQ() *cobra.Command {
	c := &cobra.Command{
		Use: "dlq", Short: "Show dead letters and move them back",
		Long: `Show dead letters and move them back.

A message that a group has received as often as it may (group create --max-attempts),
or that a consumer gave up, is a dead letter: it stands in the topic %DLQ%GROUP. A
transaction that nobody has ended stands in the topic %TXN%TOPIC. Both are ordinary
topics that can be received from.`,
	}
	c.AddCommand(newDLQList(), newDLQShow(), newDLQRedrive())
	return c
}

func newDLQList() *cobra.Command {
	s := defaultView()
	c := &cobra.Command{Use: "list", Short: "Count the dead letters of all groups", Args: exactArgs(0, "no argument"), RunE: func(c *cobra.Command, _ []string) error {
		if err := s.check(); err != nil {
			return err
		}
		return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
			resp, err := a.ListDeadLetters(ctx, &adminv1.ListDeadLettersRequest{})
			if err != nil {
				return err
			}
			if s.Output == "json" {
				return printJSON(c.OutOrStdout(), resp)
			}
			t := newTable(c.OutOrStdout(), "KIND", "OF", "BROKER", "LEFT", "STORED", "NEWEST")
			for _, r := range resp.GetTopics() {
				kind, of := "group", r.GetGroup()
				if r.GetTransactionsOf() != "" {
					kind, of = "transactions", r.GetTransactionsOf()
				}
				t.AppendRow([]any{kind, of, r.GetBroker(), r.GetLeft(), r.GetStored(), moment(r.NewestMs)})
			}
			t.Render()
			return unknownParts(c, resp.GetUnknown())
		})
	}}
	return withSettings(c, s)
}

// letterSettings say which dead letters are meant.
type letterSettings struct {
	Group string `koanf:"group" help:"dead letters of this consumer group"`
	Topic string `koanf:"topic" help:"transactions of this topic that nobody has ended"`
}

// topic is the topic in which they are.
func (s letterSettings) topic() (string, error) {
	switch {
	case (s.Group == "") == (s.Topic == ""):
		return "", usageError("say which dead letters are meant: --group GROUP, or --topic TOPIC for transactions")
	case s.Group != "":
		return "%DLQ%" + strings.TrimPrefix(s.Group, "%DLQ%"), nil
	}
	return "%TXN%" + strings.TrimPrefix(s.Topic, "%TXN%"), nil
}

// showLettersSettings are the settings of dlq show.
type showLettersSettings struct {
	viewSettings   `koanf:",squash"`
	letterSettings `koanf:",squash"`
	Max            int `koanf:"max" help:"messages at most, up to 1024"`
	Preview        int `koanf:"preview" help:"bytes of each body that are shown, up to 65536"`
}

func newDLQShow() *cobra.Command {
	s := &showLettersSettings{viewSettings: *defaultView(), Max: 20, Preview: 40}
	c := &cobra.Command{
		Use: "show (--group GROUP | --topic TOPIC)", Short: "Show dead letters, oldest first", Args: exactArgs(0, "no argument"),
		Long: `Show dead letters, oldest first: where they come from, why they are here, what they
went through. Letters that were moved back are not shown any more. -o json shows
the properties, too.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			topic, err := s.topic()
			if err != nil {
				return err
			}
			if s.Max < 1 || s.Preview < 1 {
				return usageError("--max and --preview are 1 or more")
			}
			return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
				resp, err := a.ShowDeadLetters(ctx, &adminv1.ShowDeadLettersRequest{Topic: topic, Max: int32(min(s.Max, 1<<30)), PreviewBytes: int32(min(s.Preview, 1<<30))})
				if err != nil {
					return err
				}
				if s.Output == "json" {
					return printJSON(c.OutOrStdout(), resp)
				}
				t := newTable(c.OutOrStdout(), "BROKER", "OFFSET", "MESSAGE ID", "FROM", "REASON", "ATTEMPTS", "FIRST DELIVERY", "LAST DELIVERY", "DEAD SINCE", "SIZE", "BODY")
				for _, l := range resp.GetLetters() {
					attempts, since := "-", l.GetDeadMs()
					if l.Attempts != nil {
						attempts = fmt.Sprint(l.GetAttempts())
					}
					t.AppendRow([]any{
						l.GetBroker(), l.GetOffset(), l.GetMessageId(), l.GetFromTopic(), l.GetReason(), attempts, moment(l.FirstDeliveryMs), moment(l.LastDeliveryMs),
						moment(&since), l.GetBodySize(), beginning(l.GetBodyPreview(), int(l.GetBodySize())),
					})
				}
				t.Render()
				if resp.GetMore() {
					_, _ = fmt.Fprintln(c.OutOrStdout(), "there are more: use a larger --max")
				}
				return unknownParts(c, resp.GetUnknown())
			})
		},
	}
	return withSettings(c, s)
}

// beginning is the beginning of a body on one line.
func beginning(b []byte, size int) string {
	var out strings.Builder
	for rest := b; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && n <= 1 && len(rest) < utf8.UTFMax && len(b) < size: // a letter that was cut
		case r == utf8.RuneError || !unicode.IsPrint(r):
			out.WriteByte('.')
		default:
			out.WriteRune(r)
		}
		rest = rest[n:]
	}
	if len(b) < size {
		out.WriteString("...")
	}
	return out.String()
}
