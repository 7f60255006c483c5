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
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/perigee-mq/perigee/internal/mqerr"
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
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
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

// untilSignal makes a command's context end with the first SIGINT or SIGTERM, for those that have to
// finish something then; a second one ends the process at once. Others end at once, as processes do.
func untilSignal(c *cobra.Command) (stop func()) {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	c.SetContext(ctx)
	return stop
}

// exitError is an error with an exit code.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return e.err.Error() }
func (e exitError) Unwrap() error { return e.err }

// errInterrupted says that the caller ended the command.
var errInterrupted = exitError{code: exitFailed, err: errors.New("interrupted")}

// cancelled tells whether an error says only that somebody gave up.
func cancelled(err error) bool {
	if all, ok := errors.AsType[manyErrors](err); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !cancelled(err) })
	}
	return errors.Is(err, context.Canceled) || mqerr.Is(err, mqerr.Cancelled)
}

// manyErrors is what errors.Join makes.
type manyErrors interface {
	error
	Unwrap() []error
}

// usageError says that the command line is wrong.
func usageError(format string, args ...any) error {
	return exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}
