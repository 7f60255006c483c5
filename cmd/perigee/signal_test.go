package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

func TestCancelled(t *testing.T) {
	gone := mqerr.New(mqerr.Cancelled, "gone")
	for _, err := range []error{context.Canceled, gone, fmt.Errorf("registering: %w", context.Canceled), errors.Join(gone, context.Canceled)} {
		require.True(t, cancelled(err), "%v", err)
	}
	for _, err := range []error{io.EOF, errors.Join(context.Canceled, io.EOF), fmt.Errorf("all: %w", errors.Join(io.EOF, gone)), context.DeadlineExceeded} {
		require.False(t, cancelled(err), "%v", err)
	}
}

// command is the program under test with these arguments.
func command(args ...string) *exec.Cmd {
	c := exec.Command("perigee", args...)
	c.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=10") // a second at the end of each process, with -race
	return c
}

// program starts the program under test; it is killed at the end of the test if it still runs.
func program(t *testing.T, c *exec.Cmd) (wait func() error) {
	t.Helper()
	require.NoError(t, c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() { _ = c.Process.Kill() })
	return func() error {
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			return errors.New("it goes on")
		}
	}
}

// TestLogReaderGoesAway: a server whose output nobody reads any more serves on, and cleans up.
func TestLogReaderGoesAway(t *testing.T) {
	tmp := t.TempDir()
	c := command("dev", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--log-level", "debug")
	c.Env = append(c.Env, "TMPDIR="+tmp)
	logs, err := c.StderrPipe()
	require.NoError(t, err)
	out, w, err := os.Pipe()
	require.NoError(t, err)
	c.Stdout = w
	wait := program(t, c)
	require.NoError(t, w.Close())
	require.NoError(t, out.SetReadDeadline(time.Now().Add(patience)))
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.NoError(t, logs.Close())

	_, rest, _ := strings.Cut(line, "grpc=")
	addr, _, _ := strings.Cut(rest, " ")
	said, err := command("send", "orders", "hello", "--server", addr).CombinedOutput() // makes a line of log
	require.NoError(t, err, "%s", said)
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	require.NoError(t, wait())
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestInterruptWhileReading: Ctrl-C ends a command that waits for its input.
func TestInterruptWhileReading(t *testing.T) {
	c := command("send", "orders", "-", "--server", "127.0.0.1:1")
	in, err := c.StdinPipe()
	require.NoError(t, err)
	wait := program(t, c)
	_, err = in.Write(make([]byte, 1<<20)) // more than a pipe holds: it reads
	require.NoError(t, err)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	exit, ok := errors.AsType[*exec.ExitError](wait())
	require.True(t, ok)
	require.Equal(t, syscall.SIGINT, exit.Sys().(syscall.WaitStatus).Signal())
}

// TestFollowEndsWell: an interrupted receive --follow has done what it was asked to, and what it
// printed is acknowledged.
func TestFollowEndsWell(t *testing.T) {
	dev := command("dev", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	dev.Env = append(dev.Env, "TMPDIR="+t.TempDir())
	ready, err := dev.StdoutPipe()
	require.NoError(t, err)
	waitDev := program(t, dev)
	line, err := bufio.NewReader(ready).ReadString('\n')
	require.NoError(t, err)
	_, rest, _ := strings.Cut(line, "grpc=")
	addr, _, _ := strings.Cut(rest, " ")

	follow := command("receive", "orders", "--group", "billing", "--follow", "--server", addr)
	out, err := follow.StdoutPipe()
	require.NoError(t, err)
	waitFollow := program(t, follow)
	lines := bufio.NewScanner(out)
	for i := range 3 {
		body := fmt.Sprintf("message %d", i)
		said, err := command("send", "orders", body, "--server", addr).CombinedOutput()
		require.NoError(t, err, "%s", said)
		require.True(t, lines.Scan())
		require.True(t, lines.Scan())
		require.Equal(t, body, lines.Text())
	}
	require.NoError(t, follow.Process.Signal(os.Interrupt))
	require.NoError(t, waitFollow())
	group, err := command("group", "describe", "billing", "--server", addr).CombinedOutput()
	require.NoError(t, err)
	require.Regexp(t, `orders +0 +0 +0 `, string(group))
	require.NoError(t, dev.Process.Signal(os.Interrupt))
	require.NoError(t, waitDev())
}
