// Package doctor looks for the likely faults of an installation. It is a pure core: a Picture of what was
// collected goes in, a finding for each check comes out. It reads no clock, file or network; cmd/perigee
// collects.
//
// A check that lacks what it looks at says "not known", never that all is well.
package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// State is the outcome of a check.
type State string

// Outcomes, the best first.
const (
	OK      State = "OK"
	Unknown State = "NOT KNOWN"
	Warn    State = "WARN"
	Fail    State = "FAIL"
)

var order = []State{OK, Unknown, Warn, Fail}

// Finding is what a check has found.
type Finding struct {
	Check  string   `json:"check"`
	Looked string   `json:"looked_at"`
	State  State    `json:"state"`
	Found  []string `json:"found,omitempty"`
	// Do is what helps, in the order of Found.
	Do []string `json:"do,omitempty"`
}

// check is one thing that is looked at.
type check struct {
	name, looks string
	judge       func(p *Picture, f *Finding)
}

// note makes the finding at least as bad as state.
func (f *Finding) note(state State, found, do string) {
	if slices.Index(order, state) > slices.Index(order, f.State) {
		f.State = state
	}
	f.Found = append(f.Found, found)
	if do != "" && !slices.Contains(f.Do, do) {
		f.Do = append(f.Do, do)
	}
}

func (f *Finding) fail(do, found string, args ...any) { f.note(Fail, fmt.Sprintf(found, args...), do) }

func (f *Finding) warn(do, found string, args ...any) { f.note(Warn, fmt.Sprintf(found, args...), do) }

// unknown says why a check could not be made.
func (f *Finding) unknown(do, found string, args ...any) {
	f.note(Unknown, fmt.Sprintf(found, args...), do)
}

// Examine makes every check that the picture is about: those of a service, or those of a directory.
func Examine(p *Picture) []Finding {
	var all []check
	if p.Server != nil {
		all = append(all, serverChecks...)
	}
	if p.Server != nil || len(p.Processes) > 0 {
		all = append(all, processChecks...)
	}
	if p.Dir != nil {
		all = append(all, dirChecks...)
	}
	out := make([]Finding, 0, len(all))
	for _, c := range all {
		f := Finding{Check: c.name, Looked: c.looks, State: OK}
		c.judge(p, &f)
		out = append(out, f)
	}
	return out
}

// Sick tells whether a finding is a reason for exit status 1: a fault, or something that will be one.
func Sick(all []Finding) bool {
	return slices.ContainsFunc(all, func(f Finding) bool { return f.State == Fail || f.State == Warn })
}

// some lists at most a few names.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
