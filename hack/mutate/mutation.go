package main

import (
	"fmt"
	"strings"
)

// mutation is one rule that is switched off.
type mutation struct {
	name     string
	file     string
	old, new string // whole lines
	tests    [][]string
}

// parse reads the blocks of a list.
func parse(text string) ([]mutation, error) {
	var all []mutation
	names := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		if line == "" || line[0] == '#' {
			continue
		}
		if word == "mutation" && rest != "" {
			if names[rest] {
				return nil, fmt.Errorf("line %d: %q is there twice", i+1, rest)
			}
			names[rest] = true
			all = append(all, mutation{name: rest})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("line %d: a block begins with mutation NAME", i+1)
		}
		m := &all[len(all)-1]
		switch {
		case line[0] == '-':
			m.old += line[1:] + "\n"
		case line[0] == '+':
			m.new += line[1:] + "\n"
		case word == "file" && rest != "":
			m.file = rest
		case word == "test" && rest != "":
			m.tests = append(m.tests, strings.Fields(rest))
		default:
			return nil, fmt.Errorf("line %d: %q", i+1, line)
		}
	}
	for _, m := range all {
		if m.file == "" || m.old == "" || len(m.tests) == 0 {
			return nil, fmt.Errorf("%q lacks its file, its lines or its tests", m.name)
		}
	}
	return all, nil
}
