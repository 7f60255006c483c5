package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// killed tells whether a process ended by SIGKILL.
func killed(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// start starts perigee on a directory, says how long it took until it served, and stops it.
func start(ctx context.Context, perigee, dir, what string) error {
	c := exec.CommandContext(ctx, perigee, "dev", "--data-dir", dir, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--segment-bytes", "1GiB")
	var log bytes.Buffer
	c.Stderr = &log
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := c.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return errors.Join(fmt.Errorf("%s: it ended before it was ready: %w", what, err), c.Wait(), errors.New(log.String()))
	}
	took := time.Since(began)
	if !strings.HasPrefix(line, "ready ") {
		return fmt.Errorf("%s: it says %q", what, line)
	}
	rss, anon := memory(c.Process.Pid)
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	began = time.Now()
	err = c.Wait()
	fmt.Printf("%s: %.2f s until ready; RSS %d MiB, of them anonymous %d MiB; clean stop %.2f s; user %.2f s system %.2f s together\n",
		what, took.Seconds(), rss>>10, anon>>10, time.Since(began).Seconds(), c.ProcessState.UserTime().Seconds(), c.ProcessState.SystemTime().Seconds())
	return err
}

// memory is the resident memory of a process in KiB, all and anonymous; 0 where that is not known.
func memory(pid int) (rss, anon int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &rss)
		_, _ = fmt.Sscanf(line, "RssAnon: %d kB", &anon)
	}
	return rss, anon
}

// diskBytes is what a directory takes: "all", and "log" for the commit log.
func diskBytes(dir string) (map[string]int64, error) {
	sum := map[string]int64{}
	return sum, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		sum["all"] += info.Size()
		if filepath.Base(filepath.Dir(path)) == "log" {
			sum["log"] += info.Size()
		}
		return nil
	})
}

// printCheckpoints prints which checkpoints there are.
func printCheckpoints(dir string) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, d := range all {
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Printf("checkpoint %s: %d KiB\n", d.Name(), info.Size()>>10)
	}
	return nil
}
