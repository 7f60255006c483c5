package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// applySettings are the settings of apply.
type applySettings struct {
	viewSettings `koanf:",squash"`
	File         string `koanf:"file" short:"f" help:"YAML file that declares topics and groups, - for standard input"`
}

// declared is what a file for apply says. Only names are required; what is left out keeps its value,
// or gets the default when the thing is new.
type declared struct {
	Topics []declaredTopic `yaml:"topics"`
	Groups []declaredGroup `yaml:"groups"`
}

type declaredTopic struct {
	Name   string `yaml:"name"`
	Queues int    `yaml:"queues"`
	Type   string `yaml:"type"`
	Flush  string `yaml:"flush"`
}

type declaredGroup struct {
	Name        string  `yaml:"name"`
	Ordered     *bool   `yaml:"ordered"`
	MaxAttempts *int32  `yaml:"maxAttempts"`
	From        string  `yaml:"from"`
	LiteTopic   *string `yaml:"liteTopic"`
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

func readDeclared(stdin io.Reader, path string) (*declared, error) {
	var b []byte
	var err error
	switch path {
	case "":
		return nil, usageError("apply needs -f FILE")
	case "-":
		b, err = io.ReadAll(stdin)
	default:
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, usageError("-f: %w", err)
	}
	d := new(declared)
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(d); err != nil && !errors.Is(err, io.EOF) {
		if wrong, ok := errors.AsType[*yaml.TypeError](err); ok {
			err = errors.New(strings.Join(wrong.Errors, "; "))
		}
		return nil, usageError("%s: %w", path, err)
	}
	return d, nil
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

// run makes the changes and says what each became. It stops at the first refusal: run it again when
// that is mended.
func (s *applySettings) run(ctx context.Context, w io.Writer, plan []change) error {
	done := make([]change, 0, len(plan))
	err := s.admin(ctx, func(ctx context.Context, a adminv1.AdminServiceClient) error {
		for _, ch := range plan {
			created, changed, err := ch.put(ctx, a)
			if err != nil {
				return ch.wrap(s.explain(err))
			}
			ch.Outcome = outcome(created, changed)
			done = append(done, ch)
			if s.Output == "table" {
				fmt.Fprintf(w, "%s %s %s\n", ch.Kind, ch.Name, ch.Outcome)
			}
		}
		return nil
	})
	if s.Output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		err = errors.Join(err, e.Encode(map[string]any{"changes": done}))
	}
	return err
}

func (t declaredTopic) request() (*controllerv1.PutTopicRequest, error) {
	kind, err := topicType(t.Type)
	if err != nil {
		return nil, err
	}
	flush, err := flushPolicy(t.Flush)
	if err != nil {
		return nil, err
	}
	return &controllerv1.PutTopicRequest{Name: t.Name, Type: kind, Queues: int32(t.Queues), Flush: flush, Mode: controllerv1.PutMode_PUT_MODE_UPSERT}, nil
}

func (g declaredGroup) request() (*controllerv1.PutGroupRequest, error) {
	req := &controllerv1.PutGroupRequest{Name: g.Name, Ordered: g.Ordered, MaxAttempts: g.MaxAttempts, LiteTopic: g.LiteTopic, Mode: controllerv1.PutMode_PUT_MODE_UPSERT}
	if g.From != "" {
		var err error
		if req.From, req.FromMs, err = startFrom(g.From); err != nil {
			return nil, err
		}
	}
	return req, nil
}
