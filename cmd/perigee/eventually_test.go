package main

import (
	"regexp"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func init() { scriptCommands["eventually"] = eventually }

// eventually runs a command until it succeeds, and prints a text or what a pattern matches if one is named; standard output is
// that of the last run.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	says := regexp.MustCompile("")
	if len(args) > 2 && args[0] == "-says" {
		says, args = regexp.MustCompile(regexp.QuoteMeta(args[1])), args[2:]
	} else if len(args) > 2 && args[0] == "-matches" {
		says, args = regexp.MustCompile(args[1]), args[2:]
	}
	if neg || len(args) == 0 {
		ts.Fatalf("usage: eventually [-says TEXT | -matches PATTERN] PROGRAM ARGS...")
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil && says.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("never: %v", err)
		}
	}
}
