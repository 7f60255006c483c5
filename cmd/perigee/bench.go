package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/perigee-mq/perigee/internal/bench"
)

// benchSettings are the settings of bench.
type benchSettings struct {
	clientSettings `koanf:",squash"`
	outputSettings `koanf:",squash"`
	Topic          string        `koanf:"topic" help:"topic to use; it must exist, or be created on first use"`
	Group          string        `koanf:"group" help:"consumer group of receives"`
	Callers        int           `koanf:"callers" help:"calls at a time"`
	Connections    int           `koanf:"connections" help:"connections to spread the callers over"`
	Size           int           `koanf:"size" help:"bytes of a message body"`
	Batch          int           `koanf:"batch" help:"messages per call; 0: 1 when sending, 32 when receiving"`
	Count          int           `koanf:"count" help:"stop after so many messages, 0 for no bound"`
	Duration       time.Duration `koanf:"duration" help:"stop after this time"`
	Quiet          bool          `koanf:"quiet" help:"print no progress"`
}

func newBench() *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure a running service with real gRPC calls"}
	c.AddCommand(
		newLoad(bench.Send, "Send messages"),
		newLoad(bench.Receive, "Receive and acknowledge what is there"),
		newLoad(bench.Mix, "Send with half of the callers, receive with the others"),
	)
	return c
}

func newLoad(kind bench.Kind, short string) *cobra.Command {
	s := &benchSettings{
		clientSettings: defaultClient(), outputSettings: outputSettings{"table"},
		Topic: "perigee-bench", Group: "perigee-bench", Callers: 64, Connections: 4, Size: 1024, Duration: 10 * time.Second,
	}
	s.Timeout = 3 * time.Second
	c := &cobra.Command{Use: string(kind), Short: short, Args: exactArgs(0, "no argument"), RunE: func(c *cobra.Command, _ []string) error {
		if err := s.check(); err != nil {
			return err
		}
		if s.Callers < 1 || s.Connections < 1 || s.Size < 1 || s.Batch < 0 || s.Count < 0 || s.Duration <= 0 || s.Timeout <= 0 {
			return usageError("--callers, --connections, --size, --duration and --timeout must be more than 0, --batch and --count not less")
		}
		defer untilSignal(c)() // what was measured so far is told
		o := bench.Options{
			Kind: kind, Server: s.Server, Topic: s.Topic, Group: s.Group, Callers: s.Callers, Conns: s.Connections, Size: s.Size, Batch: s.Batch,
			Count: int64(s.Count), Time: s.Duration, Timeout: s.Timeout,
		}
		if !s.Quiet {
			o.Progress = c.ErrOrStderr()
		}
		r, err := bench.Run(c.Context(), o)
		if err != nil {
			return err
		}
		if s.Output == "json" {
			err = json.NewEncoder(c.OutOrStdout()).Encode(figuresOf(r))
		} else {
			err = printResult(c.OutOrStdout(), kind, r)
		}
		if err == nil && r.Calls == 0 && r.Failed > 0 {
			return s.nothingDone(r)
		}
		return err
	}}
	return withSettings(c, s)
}

// nothingDone says why no call succeeded.
func (s *benchSettings) nothingDone(r bench.Result) error {
	code := exitRefused
	conn, err := net.DialTimeout("tcp", s.Server, s.Timeout)
	if err != nil {
		code = exitUnreachable
	} else {
		_ = conn.Close()
	}
	return exitError{code: code, err: fmt.Errorf("no call succeeded: %s", r.FirstError)}
}

// figures are a result as JSON.
type figures struct {
	Sent       int64  `json:"sent"`
	Received   int64  `json:"received"`
	Acked      int64  `json:"acked"`
	Calls      int64  `json:"calls"`
	Failed     int64  `json:"failed_calls"`
	FirstError string `json:"first_error,omitempty"`
	TookMS     int64  `json:"took_ms"`
	P50        int64  `json:"p50_us"`
	P99        int64  `json:"p99_us"`
	Max        int64  `json:"max_us"`
}

func figuresOf(r bench.Result) figures {
	return figures{
		Sent: r.Sent, Received: r.Received, Acked: r.Acked, Calls: r.Calls, Failed: r.Failed, FirstError: r.FirstError,
		TookMS: r.Took.Milliseconds(), P50: r.P50.Microseconds(), P99: r.P99.Microseconds(), Max: r.Max.Microseconds(),
	}
}

func printResult(w io.Writer, kind bench.Kind, r bench.Result) error {
	rate := func(n int64) float64 { return float64(n) / r.Took.Seconds() }
	fmt.Fprintf(w, "%s: %s\n", kind, r.Took.Round(time.Millisecond))
	fmt.Fprintf(w, "sent %d (%.0f/s), received %d (%.0f/s), acknowledged %d, failed calls %d\n",
		r.Sent, rate(r.Sent), r.Received, rate(r.Received), r.Acked, r.Failed)
	if r.FirstError != "" {
		fmt.Fprintf(w, "first failure: %s\n", r.FirstError)
	}
	_, err := fmt.Fprintf(w, "latency p50 %s, p99 %s, max %s\n", r.P50, r.P99, r.Max)
	return err
}
