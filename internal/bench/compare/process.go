package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server under test.
type process struct {
	cmd   *exec.Cmd
	addr  string
	ready time.Duration // from start to its ready line
	idle  int64         // RssAnon before any load, bytes
}

// startAll starts the bare server and Perigee with both flush policies.
func startAll(ctx context.Context, perigee, bare, dir string) (map[string]*process, error) {
	servers := map[string]*process{}
	for _, s := range []struct {
		name string
		args []string
	}{
		{"bare", []string{bare}},
		{"async", []string{perigee, "dev", "--flush", "async", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "async")}},
		{"sync", []string{perigee, "dev", "--flush", "sync", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "sync")}},
	} {
		p, err := start(ctx, filepath.Join(dir, s.name+".log"), s.args...)
		if err != nil {
			return servers, fmt.Errorf("%s: %w", s.name, err)
		}
		servers[s.name] = p
	}
	pause(ctx, time.Second)
	for _, p := range servers {
		p.idle = p.anon()
	}
	return servers, nil
}

// start runs a command and waits for a line that begins with "ready " and holds an address.
func start(ctx context.Context, logFile string, args ...string) (*process, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	began := time.Now()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "ready ")
		if !ok {
			continue
		}
		p.ready = time.Since(began)
		if p.addr = address(rest); p.addr == "" {
			break
		}
		go func() { // keep the pipe empty
			for lines.Scan() {
			}
		}()
		return p, nil
	}
	p.stop()
	text, _ := os.ReadFile(logFile)
	return nil, fmt.Errorf("did not get ready:\n%s", text)
}

// address finds the gRPC address in a ready line: "127.0.0.1:8081" alone or "grpc=127.0.0.1:8081".
func address(line string) string {
	for word := range strings.FieldsSeq(line) {
		if rest, ok := strings.CutPrefix(word, "grpc="); ok {
			return rest
		}
		if strings.HasPrefix(word, "127.") {
			return word
		}
	}
	return ""
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-ended
	}
}

// anon is the anonymous resident memory in bytes.
func (p *process) anon() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
