package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/inspect"
	"github.com/perigee-mq/perigee/store/record"
)

func newDebug() *cobra.Command {
	c := &cobra.Command{Use: "debug", Short: "Read the directory of a stopped broker"}
	c.AddCommand(newDebugLog(), newDebugQueue(), newDebugCheck(), newDebugRepair())
	return c
}

// inspected opens a directory for f.
func inspected(path string, f func(*inspect.Dir) error) error {
	d, err := inspect.Open(vfs.OS, path)
	if err != nil {
		return exitError{code: exitRefused, err: err}
	}
	defer func() { _ = d.Close() }()
	return f(d)
}

// ended says how the log ended, as an error if it is damaged.
func ended(w io.Writer, t inspect.Tail) error {
	if t.Damage != nil {
		return exitError{code: exitFailed, err: fmt.Errorf("damage at %d: %w", t.At, t.Damage)}
	}
	if t.Torn != nil {
		_, _ = fmt.Fprintf(w, "a crash left bytes behind %d that are no record; the next start cuts them (%v)\n", t.End, t.Torn)
	}
	return nil
}

// debugLogSettings are the settings of debug log.
type debugLogSettings struct {
	outputSettings `koanf:",squash"`
	From           int    `koanf:"from-position" help:"first log position to show"`
	To             int    `koanf:"to-position" help:"first log position to leave out, 0 for the end"`
	Type           string `koanf:"record" help:"only records of this type, for instance MSG or POP_CK"`
	Topic          uint32 `koanf:"topic-id" help:"only records of the topic with this id"`
	Limit          int    `koanf:"limit" help:"how many records to show, 0 for all"`
}

func newDebugLog() *cobra.Command {
	s := &debugLogSettings{outputSettings: outputSettings{"table"}}
	c := &cobra.Command{Use: "log DIR", Short: "Dump the commit log, a line for each record", Args: exactArgs(1, "a data directory"), RunE: func(c *cobra.Command, args []string) error {
		if err := s.check(); err != nil {
			return err
		}
		f := inspect.Filter{From: record.Pos(s.From), To: record.Pos(s.To), Topic: record.TopicID(s.Topic), Limit: s.Limit}
		var err error
		if f.Type, err = recordType(s.Type); err != nil {
			return err
		}
		return inspected(args[0], func(d *inspect.Dir) error {
			t, err := d.Log(c.OutOrStdout(), f, s.Output == "json")
			if err != nil {
				return err
			}
			return ended(c.ErrOrStderr(), t)
		})
	}}
	return withSettings(c, s)
}

// recordType reads the name of a record type, 0 for "".
func recordType(name string) (record.Type, error) {
	if name == "" {
		return 0, nil
	}
	var names []string
	for t := record.TypePad; t <= record.TypeTrim; t++ {
		if strings.EqualFold(t.String(), name) {
			return t, nil
		}
		names = append(names, t.String())
	}
	return 0, usageError("--record %q: use one of %s", name, strings.Join(names, ", "))
}

// debugQueueSettings are the settings of debug queue.
type debugQueueSettings struct {
	outputSettings `koanf:",squash"`
	Topic          uint32 `koanf:"topic-id" help:"the topic's id, 0 for all"`
	Queue          int    `koanf:"queue-id" help:"the queue's id, -1 for all"`
}

func newDebugQueue() *cobra.Command {
	s := &debugQueueSettings{outputSettings: outputSettings{"table"}, Queue: -1}
	c := &cobra.Command{Use: "queue DIR", Short: "List the messages of queues with their log positions", Args: exactArgs(1, "a data directory"), RunE: func(c *cobra.Command, args []string) error {
		if err := s.check(); err != nil {
			return err
		}
		return inspected(args[0], func(d *inspect.Dir) error {
			t, err := d.Queue(c.OutOrStdout(), record.TopicID(s.Topic), record.QueueID(s.Queue), s.Output == "json")
			if err != nil {
				return err
			}
			return ended(c.ErrOrStderr(), t)
		})
	}}
	return withSettings(c, s)
}

func newDebugCheck() *cobra.Command {
	s := &outputSettings{"table"}
	c := &cobra.Command{Use: "check DIR", Short: "Verify the log, the checkpoints and the consume queues", Args: exactArgs(1, "a data directory"), RunE: func(c *cobra.Command, args []string) error {
		if err := s.check(); err != nil {
			return err
		}
		return inspected(args[0], func(d *inspect.Dir) error {
			r, err := d.Check()
			if err != nil {
				return err
			}
			if err := printReport(c.OutOrStdout(), r, s.Output == "json"); err != nil {
				return err
			}
			if n := len(r.Faults); n > 0 {
				return exitError{code: exitFailed, err: fmt.Errorf("%d faults in %s", n, r.Path)}
			}
			return nil
		})
	}}
	return withSettings(c, s)
}

func printReport(w io.Writer, r *inspect.Report, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	_, err := fmt.Fprintf(w, "%s\nlog: positions %d to %d, %d records, %d messages in %d queues\n", r.Path, r.First, r.End, r.Records, r.Messages, r.Queues)
	if r.Checkpoint >= 0 {
		_, err = fmt.Fprintf(w, "newest checkpoint: position %d\n", r.Checkpoint)
	}
	if r.Torn != "" {
		_, err = fmt.Fprintf(w, "tail: a crash left bytes that are no record; the next start cuts them (%s)\n", r.Torn)
	}
	for _, h := range r.Holes {
		_, err = fmt.Fprintf(w, "hole: %s (%s)\n", h, h.Why)
	}
	for _, f := range r.Faults {
		_, err = fmt.Fprintln(w, "fault:", f)
	}
	if len(r.Faults) == 0 {
		_, err = fmt.Fprintln(w, "no fault found")
	}
	return err
}
