package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
)

// redriveSettings are the settings of dlq redrive.
type redriveSettings struct {
	viewSettings   `koanf:",squash"`
	letterSettings `koanf:",squash"`
	To             string `koanf:"to" help:"topic to move them to; default: where each came from"`
	Rate           int    `koanf:"rate" help:"messages a second at most; 0: as fast as it goes"`
	Max            int    `koanf:"max" help:"messages at most; 0: all"`
}

func newDLQRedrive() *cobra.Command {
	s := &redriveSettings{viewSettings: *defaultView()}
	c := &cobra.Command{
		Use: "redrive (--group GROUP | --topic TOPIC)", Short: "Move dead letters back to where they came from", Args: exactArgs(0, "no argument"),
		Long: `Move dead letters back to where they came from, oldest first.

Each goes back to its topic with its message id, properties and message group, in one
step with the end of the dead letter: whatever is interrupted, it is in one of the
two places and never in both. Run the command again to go on. All groups that read the
topic get the message, as they get a new one; a duplicate window does not swallow it.
A transaction that nobody ended is committed by this, whatever its producer says later.

A letter whose topic was deleted stays, and so does a message that was sent to the
dead-letter topic itself: name a topic for them with --to. There, a message with a
message group goes to the queue of its group within the broker group it is on. A
PRIORITY topic takes each by its priority, a LITE topic each into the lite topic that
it was sent to and none that was sent to no lite topic.`,
		Example: `  perigee dlq redrive --group billing --rate 100
  perigee dlq redrive --group billing --to orders-by-hand --max 1`,
		RunE: s.run,
	}
	return withSettings(c, s)
}

// redriven is what came of a redrive, as JSON.
type redriven struct {
	Redriven int      `json:"redriven"`
	Left     int64    `json:"left"`
	Failed   []string `json:"failed"`
}

// failuresShown bounds the reasons that are kept and shown.
const failuresShown = 20

func (s *redriveSettings) run(c *cobra.Command, _ []string) error {
	if err := s.check(); err != nil {
		return err
	}
	topic, err := s.topic()
	if err != nil {
		return err
	}
	if s.Rate < 0 || s.Max < 0 {
		return usageError("--rate and --max are 0 or more")
	}
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	r := redrive{s: s, c: c, a: adminv1.NewAdminServiceClient(conn), topic: topic}
	brokers, err := r.brokers()
	if err != nil {
		return s.explain(err)
	}
	sum, failed := redriven{Failed: []string{}}, 0
	for _, b := range brokers {
		left, n, err := r.broker(b, &sum)
		failed += n
		if err != nil {
			err = s.explain(err)
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "%d moved so far; run this again to go on\n", sum.Redriven)
			return err
		}
		sum.Left += left
	}
	if err := s.report(c, sum); err != nil {
		return err
	}
	if failed > 0 {
		return exitError{code: exitRefused, err: fmt.Errorf("%d dead letters stay where they are", failed)}
	}
	return nil
}

func (s *redriveSettings) report(c *cobra.Command, sum redriven) error {
	if s.Output == "json" {
		e := json.NewEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(sum)
	}
	for _, f := range sum.Failed {
		_, _ = fmt.Fprintln(c.OutOrStdout(), "stays:", f)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "%d moved, %d left\n", sum.Redriven, sum.Left)
	return err
}

// redrive is one run.
type redrive struct {
	s     *redriveSettings
	c     *cobra.Command
	a     adminv1.AdminServiceClient
	topic string
	told  time.Time
}

// brokers lists the brokers that have letters of the topic.
func (r *redrive) brokers() ([]string, error) {
	ctx, cancel := context.WithTimeout(r.c.Context(), r.s.Timeout)
	defer cancel()
	resp, err := r.a.ListDeadLetters(ctx, &adminv1.ListDeadLettersRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range resp.GetTopics() {
		if t.GetTopic() == r.topic {
			names = append(names, t.GetBroker())
		}
	}
	if len(names) > 0 || len(resp.GetUnknown()) == 0 {
		if err := unknownParts(r.c, resp.GetUnknown()); err != nil || len(names) > 0 {
			return names, err
		}
		return nil, exitError{code: exitRefused, err: fmt.Errorf("there are no dead letters in %s: see perigee dlq list", r.topic)}
	}
	return nil, exitError{code: exitUnreachable, err: fmt.Errorf("no broker with %s answers: %s", r.topic, resp.GetUnknown()[0])}
}

// stepMax is how many letters are asked for at a time, at most a tenth of a second's worth.
const stepMax = 256

// broker moves the letters of one broker. It returns how many are left there and how many stay.
func (r *redrive) broker(name string, sum *redriven) (left int64, failed int, err error) {
	step := stepMax
	if r.s.Rate > 0 {
		step = max(1, min(step, r.s.Rate/10))
	}
	for after, began := int64(0), time.Now(); ; {
		if r.s.Max > 0 {
			step = min(step, r.s.Max-sum.Redriven)
		}
		if step <= 0 {
			return left, failed, nil
		}
		resp, err := r.step(name, step, after)
		if err != nil {
			return left, failed, err
		}
		left = resp.GetLeft()
		sum.Redriven += int(resp.GetRedriven())
		failed += len(resp.GetFailed())
		for _, f := range resp.GetFailed() {
			if len(sum.Failed) < failuresShown {
				sum.Failed = append(sum.Failed, "broker "+name+": "+f)
			}
		}
		if after = resp.GetNext(); after == 0 {
			return left, failed, nil
		}
		r.progress(sum.Redriven, left)
		if r.s.Rate > 0 {
			began = began.Add(time.Duration(resp.GetRedriven()) * time.Second / time.Duration(r.s.Rate))
			if err := pauseUntil(r.c.Context(), began); err != nil {
				return left, failed, err
			}
		}
	}
}

func (r *redrive) step(broker string, n int, after int64) (*adminv1.RedriveDeadLettersResponse, error) {
	ctx, cancel := context.WithTimeout(r.c.Context(), r.s.Timeout)
	defer cancel()
	return r.a.RedriveDeadLetters(ctx, &adminv1.RedriveDeadLettersRequest{Topic: r.topic, Broker: broker, To: r.s.To, Max: int32(n), After: after})
}

// progress says once a second how far it is.
func (r *redrive) progress(done int, left int64) {
	if now := time.Now(); now.Sub(r.told) >= time.Second {
		if !r.told.IsZero() {
			_, _ = fmt.Fprintf(r.c.ErrOrStderr(), "%d moved, %d left\n", done, left)
		}
		r.told = now
	}
}

// pauseUntil waits for a moment.
func pauseUntil(ctx context.Context, at time.Time) error {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return errInterrupted
	}
}
