package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

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
			return s.admin(c.Context(), func(ctx context.Context, a adminv1.AdminServiceClient) error { return d.apply(ctx, c.OutOrStdout(), a) })
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
		return nil, usageError("%s: %w", path, err)
	}
	return d, nil
}

// apply puts everything in the order of the file and says what each became. It stops at the first
// refusal: run it again when that is mended.
func (d *declared) apply(ctx context.Context, w io.Writer, a adminv1.AdminServiceClient) error {
	for _, t := range d.Topics {
		req, err := t.request()
		if err != nil {
			return err
		}
		resp, err := a.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: req})
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "topic %s %s\n", t.Name, outcome(resp.GetCreated(), resp.GetChanged()))
	}
	for _, g := range d.Groups {
		req, err := g.request()
		if err != nil {
			return err
		}
		resp, err := a.PutGroup(ctx, &adminv1.PutGroupRequest{Group: req})
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "group %s %s\n", g.Name, outcome(resp.GetCreated(), resp.GetChanged()))
	}
	return nil
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
