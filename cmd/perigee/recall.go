package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// delaySettings are the settings that make a message wait for its time.
type delaySettings struct {
	Delay time.Duration `koanf:"delay" help:"deliver it so long after it was sent, to the millisecond"`
	Level int           `koanf:"delay-level" help:"deliver it after one of the 18 classic delays: 1 is 1s, then 5s 10s 30s 1m 2m ... 10m 20m 30m 1h, 18 is 2h"`
	At    string        `koanf:"at" help:"deliver it at a time, as in 2026-01-02T15:04:05Z"`
}

// delayLevels are the classic delays; a level counts from 1.
var delayLevels = []time.Duration{
	1 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	1 * time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute, 6 * time.Minute, 7 * time.Minute,
	8 * time.Minute, 9 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
}

func (s *delaySettings) check() error {
	given := 0
	for _, is := range []bool{s.Delay != 0, s.Level != 0, s.At != ""} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return usageError("--delay, --delay-level and --at: use one of them")
	case s.Delay < 0:
		return usageError("--delay %v: use a time that is not negative", s.Delay)
	case s.Level < 0 || s.Level > len(delayLevels):
		return usageError("--delay-level %d: use 1 to %d", s.Level, len(delayLevels))
	}
	if s.At != "" {
		if _, err := time.Parse(time.RFC3339, s.At); err != nil {
			return usageError("--at %q: write a time as in 2026-01-02T15:04:05Z", s.At)
		}
	}
	return nil
}

// due is when a message that is sent now is to be delivered, nil for at once.
func (s *delaySettings) due(now time.Time) *timestamppb.Timestamp {
	switch {
	case s.At != "":
		at, _ := time.Parse(time.RFC3339, s.At)
		return timestamppb.New(at)
	case s.Level > 0:
		return timestamppb.New(now.Add(delayLevels[s.Level-1]))
	case s.Delay > 0:
		return timestamppb.New(now.Add(s.Delay))
	}
	return nil
}

// recallSettings are the settings of recall.
type recallSettings struct {
	clientSettings `koanf:",squash"`
	outputSettings `koanf:",squash"`
}

func newRecall() *cobra.Command {
	s := &recallSettings{clientSettings: defaultClient(), outputSettings: outputSettings{"table"}}
	c := &cobra.Command{
		Use: "recall TOPIC HANDLE", Short: "Take a delayed message back before its time",
		Long: "Takes a message back that waits for its time, by the recall handle that send printed. It is never delivered then.\n" +
			"To recall it again is no error; a message that was delivered already cannot be recalled.",
		Example: "  perigee send reminders 'call back' --delay 1h\n  perigee recall reminders HANDLE",
		Args:    exactArgs(2, "a topic and a recall handle"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.check(); err != nil {
				return err
			}
			id, err := s.recall(c.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if s.Output == "json" {
				return json.NewEncoder(c.OutOrStdout()).Encode(map[string]string{"message_id": id, "topic": args[0]})
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "recalled %s of %s\n", id, args[0])
			return err
		},
	}
	return withSettings(c, s)
}

func (s *recallSettings) recall(ctx context.Context, topic, handle string) (string, error) {
	cl, err := s.client()
	if err != nil {
		return "", err
	}
	defer cl.conn.Close()
	ctx, cancel := context.WithTimeout(cl.header(ctx), s.Timeout)
	defer cancel()
	resp, err := cl.rpc.RecallMessage(ctx, &rmqv2.RecallMessageRequest{Topic: &rmqv2.Resource{Name: topic}, RecallHandle: handle})
	if err != nil {
		return "", s.explain(err)
	}
	return resp.GetMessageId(), good(resp.GetStatus())
}
