package cfg

import (
	"errors"
	"fmt"

	"gopkg.in/yaml.v3"
)

// page reads a YAML file of settings. It keeps each value as the file has it, without YAML's own types
// (007 stays 007, a time stays a text), and the line of each key.
type page struct {
	lines map[string]int
}

// Unmarshal returns what the file sets: for each key a string, a []string, or a map for what is nested
// and therefore wrong.
func (p *page) Unmarshal(b []byte) (map[string]any, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, err
	}
	out := map[string]any{}
	if len(doc.Content) == 0 || isNull(doc.Content[0]) {
		return out, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: write one `key: value` in each line", root.Line)
	}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if first, twice := p.lines[key.Value]; twice {
			return nil, fmt.Errorf("line %d: %s is set twice, first in line %d", key.Line, key.Value, first)
		}
		p.lines[key.Value] = key.Line
		if isNull(target(value)) {
			continue
		}
		v, err := plain(value)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", value.Line, key.Value, err)
		}
		out[key.Value] = v
	}
	return out, nil
}

// Marshal is not needed.
func (p *page) Marshal(map[string]any) ([]byte, error) { return nil, errors.ErrUnsupported }

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// plain is the text of a value, or the texts of a list.
func plain(n *yaml.Node) (any, error) {
	n = target(n)
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Value, nil
	case yaml.SequenceNode:
		list := make([]string, 0, len(n.Content))
		for _, e := range n.Content {
			if e = target(e); e.Kind != yaml.ScalarNode {
				return nil, errors.New("a list of lists is no setting")
			}
			list = append(list, e.Value)
		}
		return list, nil
	}
	return nil, errors.New("settings are not nested: write the whole key in one line, as in `grpc-addr: 127.0.0.1:8081`")
}

// target is what an alias stands for; it may hold itself, so it is followed no deeper.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
