package main

import (
	"fmt"
	"io"
	"time"
)

// columns of the table that is printed.
var columns = []struct {
	title, name string
	unit        float64
}{
	{"anon MiB", anonMiB, 1},
	{"heap MiB", heap, 1 << 20},
	{"gorout", goroutines, 1},
	{"fds", fds, 1},
	{"log MiB", logMiB, 1},
	{"views MiB", viewsMiB, 1},
	{"files", files, 1},
	{"extents", extents, 1},
	{"index k", indexed, 1000},
	{"dups k", remembered, 1000},
	{"lag", lag, 1},
	{"leased", inFlight, 1},
	{"timers", timers, 1},
	{"halves", halves, 1},
	{"topics", topics, 1},
	{"lites", liteTopics, 1},
	{"clients", knownHere, 1},
}

// table prints a line now and then.
type table struct {
	w     io.Writer
	lines int
	next  time.Duration
}

func newTable(w io.Writer) *table { return &table{w: w} }

// line prints a sample: forty of a run, with the titles above each ten.
func (t *table) line(s sample, l *ledger, run time.Duration) {
	if s.at < t.next {
		return
	}
	t.next += run / 40
	if t.lines%10 == 0 {
		fmt.Fprintf(t.w, "%7s %9s", "time", "done")
		for _, c := range columns {
			fmt.Fprintf(t.w, " %9s", c.title)
		}
		fmt.Fprintln(t.w)
	}
	t.lines++
	_, acked, _ := l.counts()
	fmt.Fprintf(t.w, "%7s %9d", s.at.Round(time.Second), acked)
	for _, c := range columns {
		if v, ok := s.values[c.name]; ok {
			fmt.Fprintf(t.w, " %9.0f", v/c.unit)
		} else {
			fmt.Fprintf(t.w, " %9s", "-")
		}
	}
	fmt.Fprintln(t.w)
}
