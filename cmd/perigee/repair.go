package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/perigee-mq/perigee/store/inspect"
	"github.com/perigee-mq/perigee/store/record"
)

// repairSettings are the settings of debug repair.
type repairSettings struct {
	outputSettings `koanf:",squash"`
	DataDir        string `koanf:"data-dir" help:"a data directory"`
	Apply          bool   `koanf:"apply" help:"do it: later starts go on without what is lost"`
}

// repairProgress is how often a repair that takes long says how far it is.
const repairProgress = 3 * time.Second

func newDebugRepair() *cobra.Command {
	s := &repairSettings{outputSettings: outputSettings{"table"}}
	c := &cobra.Command{
		Use: "repair --data-dir DIR", Short: "Show what damage to the log would cost, and go on without it",
		Long: "Reads the whole log and shows what cannot be read: damaged records and missing files, with what is known of what was in\n" +
			"them. It changes nothing. With --apply it notes the holes, so that starts go on without them, and keeps what is left of the\n" +
			"damaged bytes beside the log. Look for a copy of the files first: what is given up here is gone for every consumer group.",
		Args: exactArgs(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			if s.DataDir == "" {
				return usageError("debug repair needs --data-dir")
			}
			return inspected(s.DataDir, func(d *inspect.Dir) error { return s.run(c, d) })
		},
	}
	return withSettings(c, s)
}

func (s *repairSettings) run(c *cobra.Command, d *inspect.Dir) error {
	said := time.Now()
	p, err := d.Repair(func(pos record.Pos) {
		if now := time.Now(); now.Sub(said) > repairProgress {
			said = now
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "read up to position %d\n", pos)
		}
	})
	if err != nil {
		return err
	}
	if s.Output == "json" {
		e := json.NewEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		err = e.Encode(p)
	} else {
		err = p.Write(c.OutOrStdout())
	}
	switch {
	case err != nil:
		return err
	case !p.New():
		_, err = fmt.Fprintln(c.ErrOrStderr(), "no damage that is not noted: nothing to do")
		return err
	case !s.Apply:
		return exitError{code: exitFailed, err: errors.New("nothing was changed; with --apply this is given up for good")}
	}
	if err := d.Apply(p); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.ErrOrStderr(), "noted; the damaged bytes are kept in files named damaged-* in %s/log\n", p.Path)
	return err
}
