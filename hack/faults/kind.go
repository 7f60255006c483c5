package main

import (
	"fmt"
	"strings"
)

// kinds are the faults by what they come from, in the order of the page.
var kinds = []struct{ name, title string }{
	{"power", "Power cuts"},
	{"kill", "Processes that are killed"},
	{"storage", "Errors of the disk"},
	{"damage", "Damaged and missing files"},
	{"space", "Full disks and retention"},
	{"load", "Too much at once"},
	{"client", "Clients that misbehave"},
	{"network", "Networks and peers that are away"},
	{"clock", "Clocks that step"},
	{"operator", "Mistakes of operators"},
}

// fault is one directive.
type fault struct {
	kind  string
	where string // package folder and name of the test, or path of the script
	what  string
	holds string
}

// parse reads a directive behind "fault:".
func parse(text, where string) (fault, error) {
	kind, rest, _ := strings.Cut(text, " ")
	what, holds, ok := strings.Cut(rest, " => ")
	f := fault{kind: kind, where: where, what: strings.TrimSpace(what), holds: strings.TrimSpace(holds)}
	if !ok || f.what == "" || f.holds == "" {
		return f, fmt.Errorf("%s: %q is not of the form fault:KIND what happens => what holds then", where, text)
	}
	for _, k := range kinds {
		if k.name == kind {
			return f, nil
		}
	}
	return f, fmt.Errorf("%s: there is no kind %q of faults (hack/faults/kind.go has them)", where, kind)
}

const (
	begin = "<!-- written by go run ./hack/faults -->\n"
	end   = "<!-- end of what is written -->\n"
)

// put replaces what stands between the markers of a page.
func put(page, list string) (string, error) {
	head, rest, ok := strings.Cut(page, begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("it lacks the lines %q and %q", begin, end)
	}
	return head + begin + list + end + tail, nil
}

// list is the table of each kind.
func list(all []fault) string {
	var b strings.Builder
	cell := strings.NewReplacer("|", `\|`).Replace
	for _, k := range kinds {
		rows := 0
		for _, f := range all {
			if f.kind != k.name {
				continue
			}
			if rows++; rows == 1 {
				fmt.Fprintf(&b, "\n### %s\n\n| what happens | what holds | test |\n| --- | --- | --- |\n", k.title)
			}
			fmt.Fprintf(&b, "| %s | %s | `%s` |\n", cell(f.what), cell(f.holds), f.where)
		}
	}
	b.WriteString("\n")
	return b.String()
}
