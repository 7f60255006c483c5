package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	if when := os.Getenv("TEST_FAULT_WHEN"); when != "" { // this is a process of TestFailStop
		dataFS = faultyWhen(when)
		main()
	}
	testscript.Main(m, map[string]func(){"perigee": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", Cmds: scriptCommands, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Values[serversKey{}] = servers{}
			if e.Getenv("GORACE") == "" {
				e.Setenv("GORACE", "atexit_sleep_ms=10") // a second at the end of each process, with -race
			}
			return nil
		},
	})
}
