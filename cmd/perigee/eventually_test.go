package main

import (
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func init() { scriptCommands["eventually"] = eventually }

// eventually runs a command until it succeeds, and prints a text if one is named; standard output is that of the last run.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	says := ""
	if len(args) > 2 && args[0] == "-says" {
		says, args = args[1], args[2:]
	}
	if neg || len(args) == 0 {
		ts.Fatalf("usage: eventually [-says TEXT] PROGRAM ARGS...")
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil && strings.Contains(ts.ReadFile("stdout"), says) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("never: %v", err)
		}
	}
}
