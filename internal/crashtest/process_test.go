package crashtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// build makes the binary once per run of the tests; TEST_PERIGEE_BIN names one that is there.
var build = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("TEST_PERIGEE_BIN"); bin != "" {
		return bin, nil
	}
	dir, err := os.MkdirTemp("", "perigee-crash-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "perigee")
	cmd := exec.Command("go", "build", "-o", bin, "github.com/perigee-mq/perigee/cmd/perigee")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building perigee: %w\n%s", err, out)
	}
	return bin, nil
})

// server is a perigee process that can be killed and started again on its directory.
type server struct {
	t    *testing.T
	bin  string
	dir  string
	addr string
	cmd  *exec.Cmd
	exit chan error

	mu    sync.Mutex
	lines []string             // the last lines of its log
	watch map[string]chan bool // told when a log line with that text comes
}

func newServer(t *testing.T, dir, addr string) *server {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, bin: bin, dir: dir, addr: addr, watch: map[string]chan bool{}}
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill()
		}
		if t.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Logf("last lines of the server's log:\n%s", strings.Join(s.lines, "\n"))
		}
	})
	return s
}

// launch starts the process and does not wait for it.
func (s *server) launch() (ready chan bool) {
	s.cmd = exec.Command(s.bin, "dev", "--data-dir", s.dir, "--grpc-addr", s.addr, "--http-addr", "127.0.0.1:0",
		"--segment-bytes", "1MiB", "--checkpoint-interval", "1s", "--flush", "sync", "--log-level", "debug")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	errs, err := s.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ready = make(chan bool, 1)
	var readers sync.WaitGroup
	readers.Go(func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if strings.HasPrefix(sc.Text(), "ready ") {
				ready <- true
			}
		}
	})
	readers.Go(func() { s.read(errs) })
	exit := make(chan error, 1)
	s.exit = exit
	cmd := s.cmd
	go func() { readers.Wait(); exit <- cmd.Wait() }()
	return ready
}

// start launches the process and waits until it serves.
func (s *server) start() {
	s.t.Helper()
	select {
	case <-s.launch():
	case err := <-s.exit:
		s.exit <- err
		s.t.Fatalf("perigee ended at its start: %v", err)
	case <-time.After(30 * time.Second):
		s.t.Fatal("perigee was not ready within 30 s")
	}
}

// kill ends the process with SIGKILL and waits for its end.
func (s *server) kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	if err := <-s.exit; err == nil {
		s.t.Error("a process that was killed ended with status 0")
	}
	s.cmd = nil
}

// read keeps the last lines of the log and tells watchers.
func (s *server) read(r io.Reader) {
	for sc := bufio.NewScanner(r); sc.Scan(); {
		s.mu.Lock()
		s.lines = append(s.lines, sc.Text())
		if len(s.lines) > 40 {
			s.lines = s.lines[1:]
		}
		for text, c := range s.watch {
			if strings.Contains(sc.Text(), text) {
				delete(s.watch, text)
				close(c)
			}
		}
		s.mu.Unlock()
	}
}

// when returns a channel that is closed at the next log line with that text.
func (s *server) when(text string) chan bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan bool)
	s.watch[text] = c
	return c
}
