// Command perigee is all of Perigee in one binary: the three tiers, a service for one machine, and
// the commands of those who run it. Each subcommand is a short file that wires parts and holds no
// rules.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set at build time.
var version = "dev"

// Exit codes of the command line.
const (
	exitOK          = 0
	exitFailed      = 1 // something went wrong that is none of the others
	exitUsage       = 2 // the command line is wrong
	exitRefused     = 3 // the server said no
	exitUnreachable = 4 // the server cannot be reached
)

func main() { os.Exit(run(os.Args[1:])) }

// run executes one command line and returns its exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var code exitError
	if !errors.As(err, &code) {
		code = exitError{code: exitFailed, err: err}
	}
	fmt.Fprintln(os.Stderr, "perigee:", err)
	return code.code
}

// exitError is an error with an exit code.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return e.err.Error() }
func (e exitError) Unwrap() error { return e.err }

// usageError says that the command line is wrong.
func usageError(format string, args ...any) error {
	return exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}
