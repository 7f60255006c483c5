package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/perigee-mq/perigee/internal/doctor"
)

// doctorSettings are the settings of doctor.
type doctorSettings struct {
	clientSettings `koanf:",squash"`
	outputSettings `koanf:",squash"`
	HTTP           []string `koanf:"http" help:"HTTP addresses of all processes (their --http-addr): their /readyz and /metrics are looked at"`
	DataDir        string   `koanf:"data-dir" help:"directory of a broker or of dev on this machine; alone, only this is looked at"`
}

// defaultHTTP is asked when nothing is named; if nobody answers there it is no fault.
const defaultHTTP = "127.0.0.1:8082"

func newDoctor() *cobra.Command {
	s := &doctorSettings{clientSettings: defaultClient(), outputSettings: outputSettings{"table"}, HTTP: []string{}}
	s.Timeout = 5 * time.Second
	c := &cobra.Command{
		Use: "doctor", Short: "Look for the likely faults of an installation and say what to do",
		Long: "Looks at a running service (--server, --http) or at a data directory (--data-dir): for each check what was looked at,\n" +
			"the outcome (OK, WARN, FAIL, NOT KNOWN) and what to do. It changes nothing; in a data directory it writes a small file, to\n" +
			"measure fdatasync, and removes it. The directory of a stopped broker is locked for as long as it is read.\n\n" +
			"Exit status: 0 if nothing is wrong, 1 if there is a WARN or FAIL.",
		Args: exactArgs(0, "no argument"),
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return s.run(c) }
	return withSettings(c, s)
}

func (s *doctorSettings) run(c *cobra.Command) error {
	if err := s.check(); err != nil {
		return err
	}
	p := &doctor.Picture{Now: time.Now()}
	if s.DataDir != "" {
		p.Dir = lookAtDir(s.DataDir)
	}
	if s.DataDir == "" || c.Flags().Changed("server") {
		server, err := s.lookAtServer(c.Context())
		if err != nil {
			return err
		}
		p.Server = server
	}
	p.Processes = s.lookAtProcesses(c.Context(), p.Server != nil)
	all := doctor.Examine(p)
	if err := s.print(c.OutOrStdout(), all); err != nil {
		return err
	}
	if doctor.Sick(all) {
		return exitError{code: exitFailed, err: errors.New("there is something to mend, see above")}
	}
	return nil
}

// lookAtProcesses asks the processes that are named, or the one at the usual address if it is there.
func (s *doctorSettings) lookAtProcesses(ctx context.Context, server bool) []doctor.Process {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	var out []doctor.Process
	for _, address := range s.HTTP {
		out = append(out, lookAtProcess(ctx, address))
	}
	if len(s.HTTP) == 0 && server && s.Server == defaultClient().Server {
		if one := lookAtProcess(ctx, defaultHTTP); one.Error == "" {
			out = append(out, one)
		}
	}
	return out
}

func (s *doctorSettings) print(w io.Writer, all []doctor.Finding) error {
	if s.Output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	var err error
	line := func(format string, args ...any) {
		if _, e := fmt.Fprintf(w, format, args...); err == nil {
			err = e
		}
	}
	count := map[doctor.State]int{}
	for _, f := range all {
		count[f.State]++
		line("%-9s  %s: %s\n", f.State, f.Check, f.Looked)
		for _, found := range f.Found {
			line("           - %s\n", found)
		}
		for _, do := range f.Do {
			line("           > %s\n", do)
		}
	}
	line("%d OK, %d WARN, %d FAIL, %d not known\n", count[doctor.OK], count[doctor.Warn], count[doctor.Fail], count[doctor.Unknown])
	return err
}
