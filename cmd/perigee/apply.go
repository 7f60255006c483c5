package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
)

// applySettings are the settings of apply.
type applySettings struct {
	viewSettings `koanf:",squash"`
	File         string `koanf:"file" short:"f" help:"YAML file that declares topics and groups, - for standard input"`
}

func newApply() *cobra.Command {
	s := &applySettings{viewSettings: *defaultView()}
	c := &cobra.Command{
		Use: "apply -f FILE", Short: "Make topics and groups as a file declares them, and say what changed",
		Args: exactArgs(0, "no argument but -f FILE"),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			d, err := readDeclared(c.InOrStdin(), s.File)
			if err != nil {
				return err
			}
			p, err := d.plan()
			if err != nil {
				return err
			}
			return s.run(c.Context(), c.OutOrStdout(), p)
		},
	}
	return withSettings(c, s)
}

// change is one thing that a file declares.
type change struct {
	Kind    string `json:"kind"` // topic or group
	Name    string `json:"name"`
	Outcome string `json:"outcome"` // created, changed or unchanged; set by put
	put     func(context.Context, adminv1.AdminServiceClient) (created, changed bool, err error)
}

// wrap names the thing that an error is about.
func (d change) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", d.Kind, d.Name, err)
}

// plan is what a file declares, in its order. Mistakes are found before anything is changed.
func (d *declared) plan() ([]change, error) {
	var out []change
	for i, t := range d.Topics {
		ch := change{Kind: "topic", Name: t.Name}
		if t.Name == "" {
			return nil, usageError("topics: entry %d has no name", i+1)
		}
		req, err := t.request()
		if err != nil {
			return nil, ch.wrap(err)
		}
		ch.put = func(ctx context.Context, a adminv1.AdminServiceClient) (bool, bool, error) {
			resp, err := a.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: req})
			return resp.GetCreated(), resp.GetChanged(), err
		}
		out = append(out, ch)
	}
	for i, g := range d.Groups {
		ch := change{Kind: "group", Name: g.Name}
		if g.Name == "" {
			return nil, usageError("groups: entry %d has no name", i+1)
		}
		req, err := g.request()
		if err != nil {
			return nil, ch.wrap(err)
		}
		ch.put = func(ctx context.Context, a adminv1.AdminServiceClient) (bool, bool, error) {
			resp, err := a.PutGroup(ctx, &adminv1.PutGroupRequest{Group: req})
			return resp.GetCreated(), resp.GetChanged(), err
		}
		out = append(out, ch)
	}
	seen := map[[2]string]bool{}
	for _, ch := range out {
		key := [2]string{ch.Kind, ch.Name}
		if seen[key] {
			return nil, usageError("%s %s is declared twice", ch.Kind, ch.Name)
		}
		seen[key] = true
	}
	return out, nil
}

// run makes the changes, each with its own deadline, and says what each became. It stops at the first
// refusal: run it again when that is mended.
func (s *applySettings) run(ctx context.Context, w io.Writer, plan []change) error {
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	done := make([]change, 0, len(plan))
	for _, ch := range plan {
		if err = s.one(ctx, adminv1.NewAdminServiceClient(conn), &ch); err != nil {
			break
		}
		done = append(done, ch)
		if s.Output == "table" {
			fmt.Fprintf(w, "%s %s %s\n", ch.Kind, ch.Name, ch.Outcome)
		}
	}
	if s.Output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		err = errors.Join(err, e.Encode(map[string]any{"changes": done}))
	}
	return err
}

// one makes one change.
func (s *applySettings) one(ctx context.Context, a adminv1.AdminServiceClient, ch *change) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	created, changed, err := ch.put(ctx, a)
	if err != nil {
		return ch.wrap(s.explain(err))
	}
	ch.Outcome = outcome(created, changed)
	return nil
}
