package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/cfg"
)

// declared is what a file for apply says. Only names are required; what is left out keeps its value,
// or gets the default when the thing is new.
type declared struct {
	Topics []declaredTopic `yaml:"topics"`
	Groups []declaredGroup `yaml:"groups"`
}

type declaredTopic struct {
	Name   string `yaml:"name"`
	Queues *int   `yaml:"queues"`
	Type   string `yaml:"type"`
	Flush  string `yaml:"flush"`

	declaredLimits `yaml:",inline"`
}

type declaredGroup struct {
	Name              string  `yaml:"name"`
	Ordered           *bool   `yaml:"ordered"`
	MaxAttempts       *int32  `yaml:"maxAttempts"`
	From              string  `yaml:"from"`
	MaxInFlight       *int64  `yaml:"maxInFlight"`
	MaxInFlightClient *int64  `yaml:"maxInFlightClient"`
	LiteTopic         *string `yaml:"liteTopic"`
	Retry             string  `yaml:"retry"`
}

// readDeclared reads all YAML documents of a file.
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
	all := new(declared)
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	for {
		var d declared
		err := dec.Decode(&d)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, usageError("%s: %s", path, yamlText(err))
		}
		all.Topics, all.Groups = append(all.Topics, d.Topics...), append(all.Groups, d.Groups...)
	}
}

// What the YAML decoder says of Go types, and what it means to somebody who wrote a file.
var (
	unknownKey = regexp.MustCompile(`field (.+) not found in type \S+`)
	wrongType  = regexp.MustCompile(`cannot unmarshal !!(\w+)( ` + "`" + `.*` + "`" + `)? into (\S+)`)
)

// yamlText is an error of the YAML decoder without names of Go types.
func yamlText(err error) string {
	wrong, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return strings.TrimPrefix(err.Error(), "yaml: ")
	}
	lines := make([]string, 0, len(wrong.Errors))
	for _, line := range wrong.Errors {
		if m := unknownKey.FindStringSubmatch(line); m != nil {
			text := "unknown key " + m[1]
			if near := cfg.Nearest(m[1], declaredKeys()); near != "" {
				text += ": did you mean " + near + "?"
			}
			line = strings.Replace(line, m[0], text, 1)
		}
		if m := wrongType.FindStringSubmatch(line); m != nil {
			line = strings.Replace(line, m[0], "a "+m[1]+m[2]+" where "+wanted(m[3])+" belongs", 1)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// wanted names a Go type for somebody who wrote a file.
func wanted(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasPrefix(goType, "int"):
		return "a whole number"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "a text"
	}
	return "a map of keys"
}

// declaredKeys are all keys of a file for apply.
func declaredKeys() []string {
	var keys []string
	for _, v := range []any{declared{}, declaredTopic{}, declaredLimits{}, declaredGroup{}} {
		for t, i := reflect.TypeOf(v), 0; i < t.NumField(); i++ {
			if key := t.Field(i).Tag.Get("yaml"); !strings.HasPrefix(key, ",") {
				keys = append(keys, key)
			}
		}
	}
	return keys
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
	req := &controllerv1.PutTopicRequest{Name: t.Name, Type: kind, Flush: flush, Mode: controllerv1.PutMode_PUT_MODE_UPSERT}
	if req.Limits, err = t.declaredLimits.request(); err != nil {
		return nil, err
	}
	if t.Queues != nil {
		if err := checkQueues("queues", *t.Queues); err != nil {
			return nil, err
		}
		req.Queues = int32(*t.Queues)
	}
	return req, nil
}

func (g declaredGroup) request() (*controllerv1.PutGroupRequest, error) {
	req := &controllerv1.PutGroupRequest{
		Name: g.Name, Ordered: g.Ordered, MaxAttempts: g.MaxAttempts, LiteTopic: g.LiteTopic, Mode: controllerv1.PutMode_PUT_MODE_UPSERT,
		MaxInFlight: g.MaxInFlight, MaxInFlightClient: g.MaxInFlightClient,
	}
	if g.Retry != "" {
		if err := setRetry("retry", g.Retry, req); err != nil {
			return nil, err
		}
	}
	if g.From != "" {
		var err error
		if req.From, req.FromMs, err = startFrom(g.From); err != nil {
			return nil, err
		}
	}
	return req, nil
}
