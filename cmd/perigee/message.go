package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
)

func newMessage() *cobra.Command {
	c := &cobra.Command{
		Use: "message", Short: "Find stored messages and see what happened to them",
		Long: "Find stored messages by key, by message id or by their place, and see what happened to them.\n\n" +
			"A message stays findable for as long as the log holds it, acknowledged or not. Nothing has to be switched on for that.",
	}
	c.AddCommand(newMessageGet(), newMessageFind(), newMessageTrace())
	return c
}

// whichSettings name one message, or a few that have the same id.
type whichSettings struct {
	ID     string `koanf:"id" help:"message id"`
	Queue  int    `koanf:"queue" help:"queue id, with --offset"`
	Offset int    `koanf:"offset" help:"offset in the queue"`
	Broker string `koanf:"broker" help:"only on this broker group"`
}

func defaultWhich() whichSettings { return whichSettings{Queue: -1, Offset: -1} }

// request asks for the messages on a topic.
func (s *whichSettings) request(topic string) (*adminv1.FindMessagesRequest, error) {
	req := &adminv1.FindMessagesRequest{Topic: topic, Id: s.ID, Broker: s.Broker}
	place := s.Queue >= 0 || s.Offset >= 0
	switch {
	case place == (s.ID != ""):
		return nil, usageError("name the message by --id ID, or by --queue Q --offset N")
	case place && (s.Queue < 0 || s.Offset < 0):
		return nil, usageError("a place is --queue and --offset, both 0 or more")
	case place:
		req.Place = &adminv1.MessagePlace{Queue: int32(min(s.Queue, 1<<31-1)), Offset: int64(s.Offset)}
	}
	return req, nil
}

// getSettings are the settings of message get.
type getSettings struct {
	viewSettings  `koanf:",squash"`
	whichSettings `koanf:",squash"`
}

func newMessageGet() *cobra.Command {
	s := &getSettings{viewSettings: *defaultView(), whichSettings: defaultWhich()}
	c := &cobra.Command{
		Use: "get TOPIC (--id ID | --queue Q --offset N)", Short: "Show a stored message with all that it carries",
		Long: "Show a stored message with all that it carries, and its body. Several brokers may have a queue of the same number, and several messages\n" +
			"the same id: each is shown, the newest first. With -o json the body is base64.",
		Args: exactArgs(1, "a topic name"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.check(); err != nil {
				return err
			}
			req, err := s.request(args[0])
			if err != nil {
				return err
			}
			req.Bodies = true
			return s.find(c, s.clientSettings, req, s.Output, func(w io.Writer, found []*adminv1.StoredMessage) {
				for i, m := range found {
					if i > 0 {
						fmt.Fprintln(w)
					}
					showStored(w, m)
				}
			})
		},
	}
	return withSettings(c, s)
}

// find asks and prints: what could not be looked at is named, and nothing found is a failure.
func (*whichSettings) find(c *cobra.Command, at clientSettings, req *adminv1.FindMessagesRequest, output string, show func(io.Writer, []*adminv1.StoredMessage)) error {
	return at.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error {
		resp, err := a.FindMessages(ctx, req)
		if err != nil {
			return err
		}
		if output == "json" {
			if err := printJSON(c.OutOrStdout(), resp); err != nil {
				return err
			}
		} else if len(resp.GetMessages()) > 0 {
			show(c.OutOrStdout(), resp.GetMessages())
			_ = unknownParts(c, resp.GetUnknown())
			if resp.GetMore() {
				fmt.Fprintf(c.OutOrStdout(), "there are more: raise --max, or ask with --to %s\n", exactMoment(resp.GetMessages()[len(resp.GetMessages())-1].GetStoreMs()+1))
			}
		}
		return foundAny(resp)
	})
}

// foundAny is the failure of a search that found nothing.
func foundAny(resp *adminv1.FindMessagesResponse) error {
	switch {
	case len(resp.GetMessages()) > 0:
		return nil
	case len(resp.GetUnknown()) > 0:
		return exitError{code: exitUnreachable, err: fmt.Errorf("no message was found, but not everything could be looked at: %s", strings.Join(resp.GetUnknown(), "; "))}
	}
	return exitError{code: exitFailed, err: fmt.Errorf("no message like that is stored")}
}

// exactMoment prints a time in ms since 1970, "-" for 0.
func exactMoment(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// placeOf is where a message stands in its queue.
func placeOf(m *adminv1.StoredMessage) string {
	if m.GetOffset() < 0 {
		return "-"
	}
	return fmt.Sprint(m.GetOffset())
}

// showStored prints all of a message.
func showStored(w io.Writer, m *adminv1.StoredMessage) {
	row := func(name, value string) {
		if value != "" && value != "-" {
			fmt.Fprintf(w, "%-14s %s\n", name, value)
		}
	}
	row("id", m.GetId())
	row("stored", exactMoment(m.GetStoreMs()))
	row("broker", m.GetBroker())
	if m.GetOffset() >= 0 {
		row("queue", fmt.Sprint(m.GetQueue()))
	}
	row("offset", placeOf(m))
	row("position", fmt.Sprint(m.GetPosition()))
	row("type", m.GetType())
	row("state", m.GetState())
	row("deliver at", exactMoment(m.GetDeliverMs()))
	row("tag", m.GetTag())
	row("keys", strings.Join(m.GetKeys(), " "))
	row("message group", m.GetMessageGroup())
	row("lite topic", m.GetLiteTopic())
	row("born", strings.TrimSpace(exactMoment(m.GetBornMs())+" "+m.GetBornHost()))
	for _, name := range slices.Sorted(maps.Keys(m.GetProperties())) {
		row("property", fmt.Sprintf("%s=%q", name, m.GetProperties()[name]))
	}
	row("size", fmt.Sprintf("%d bytes", m.GetSize()))
	if int64(len(m.GetBody())) == m.GetSize() && utf8.Valid(m.GetBody()) {
		fmt.Fprintf(w, "\n%s\n", m.GetBody())
		return
	}
	row("body", preview(m.GetBody(), 1024))
}

// preview is the beginning of a body on one line.
func preview(body []byte, most int) string {
	cut := body[:min(len(body), most)]
	for len(cut) < len(body) && len(cut) > 0 && !utf8.RuneStart(body[len(cut)]) {
		cut = cut[:len(cut)-1] // not within a character
	}
	text := string(cut)
	if !utf8.Valid(cut) {
		text = fmt.Sprintf("%x", cut[:min(len(cut), most/2)])
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(cut) < len(body) {
		text += "..."
	}
	return text
}

// findSettings are the settings of message find.
type findSettings struct {
	viewSettings `koanf:",squash"`
	Key          string `koanf:"key" help:"one of the message's keys"`
	From         string `koanf:"from" help:"stored at this time (RFC 3339) or later"`
	To           string `koanf:"to" help:"stored before this time (RFC 3339)"`
	Max          int    `koanf:"max" help:"how many to show, the newest first"`
	Broker       string `koanf:"broker" help:"only on this broker group"`
}

func newMessageFind() *cobra.Command {
	s := &findSettings{viewSettings: *defaultView(), Max: 32}
	c := &cobra.Command{Use: "find TOPIC --key KEY", Short: "Find stored messages by key", Args: exactArgs(1, "a topic name"), RunE: func(c *cobra.Command, args []string) error {
		if err := s.check(); err != nil {
			return err
		}
		req := &adminv1.FindMessagesRequest{Topic: args[0], Key: s.Key, Broker: s.Broker, Max: int32(s.Max), Bodies: true}
		var err error
		switch {
		case s.Key == "":
			return usageError("find needs --key")
		case s.Max < 1 || s.Max > 1024:
			return usageError("--max %d: use 1 to 1024", s.Max)
		}
		if req.FromMs, err = momentOf("--from", s.From); err != nil {
			return err
		}
		if req.ToMs, err = momentOf("--to", s.To); err != nil {
			return err
		}
		return new(whichSettings).find(c, s.clientSettings, req, s.Output, func(w io.Writer, found []*adminv1.StoredMessage) {
			t := newTable(w, "STORED", "BROKER", "QUEUE", "OFFSET", "TYPE", "STATE", "TAG", "KEYS", "SIZE", "ID", "BODY")
			for _, m := range found {
				t.AppendRow([]any{
					exactMoment(m.GetStoreMs()), m.GetBroker(), m.GetQueue(), placeOf(m), m.GetType(), m.GetState(), m.GetTag(), strings.Join(m.GetKeys(), " "),
					m.GetSize(), m.GetId(), preview(m.GetBody(), 40),
				})
			}
			t.Render()
		})
	}}
	return withSettings(c, s)
}

// momentOf reads a time, 0 for none.
func momentOf(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.UnixMilli() < 1 {
		return 0, usageError("%s %q: use a time like 2026-01-31T12:00:00Z", flag, text)
	}
	return t.UnixMilli(), nil
}
