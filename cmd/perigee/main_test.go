package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if when := os.Getenv("TEST_FAULT_WHEN"); when != "" { // this is a process of TestFailStop
		dataFS = faultyWhen(when)
		main()
	}
	testscript.Main(tight{m}, map[string]func(){"perigee": main})
}

// tight are tests after which no goroutine may be left.
type tight struct{ *testing.M }

func (m tight) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Println("FAIL:", err)
		return 1
	}
	return code
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
