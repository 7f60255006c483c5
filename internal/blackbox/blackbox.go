// Package blackbox tests the real program from outside: it starts processes, speaks to them as clients
// do, well and badly, and checks what they answer and what they hold afterwards. Nothing here knows the
// inside; what a bad call must be answered with is what the conformance results of the public protocol
// say. The tests build the program once; TEST_PERIGEE_BIN names one that is there already.
//
// A test has a place: a topic and a group of its own, and a ledger of what was stored and done there.
// When the test ends, its place is emptied, and the server must agree with the ledger exactly.
package blackbox

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// logLines is how many of the last lines of a process's log are kept.
const logLines = 400

// process is a running perigee.
type process struct {
	name  string
	cmd   *exec.Cmd
	ready chan map[string]string // addresses of the ready line, once
	ended chan struct{}          // closed when the process has ended and its output is read
	err   error                  // how it ended; read it after ended

	mu     sync.Mutex // guards what follows
	lines  []string   // the last lines of its log
	faults []string   // lines that no request may cause
}

// launch starts a process and does not wait for it. Settings in the environment do not reach it.
func launch(name, bin string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(bin, args...), ready: make(chan map[string]string, 1), ended: make(chan struct{})}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PERIGEE_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is for the test
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	errs, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	var readers sync.WaitGroup
	readers.Go(func() { p.readOut(out) })
	readers.Go(func() { p.readLog(errs) })
	go func() {
		readers.Wait()
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// start starts a process and waits until it is ready. It returns the addresses of its ready line.
func start(name, bin string, args ...string) (*process, map[string]string, error) {
	p, err := launch(name, bin, args...)
	if err != nil {
		return nil, nil, err
	}
	addrs, err := p.await(20 * time.Second)
	if err != nil {
		_ = p.kill()
		return nil, nil, err
	}
	return p, addrs, nil
}

// await waits for the ready line.
func (p *process) await(patience time.Duration) (map[string]string, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case addrs := <-p.ready:
		return addrs, nil
	case <-p.ended:
		return nil, fmt.Errorf("%s ended before it was ready: %w\n%s", p.name, p.err, p.log())
	case <-timer.C:
		return nil, fmt.Errorf("%s was not ready within %v\n%s", p.name, patience, p.log())
	}
}

// kill ends the process with SIGKILL.
func (p *process) kill() error {
	err := p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.ended
	return err
}

// stop asks the process to end and waits for it. Its exit code must be 0.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		_ = p.kill()
		return fmt.Errorf("%s did not end within 30 s of SIGTERM\n%s", p.name, p.log())
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.log())
	}
	return nil
}

// over waits until the process has ended by itself and returns its exit code.
func (p *process) over(patience time.Duration) (int, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-timer.C:
		return 0, fmt.Errorf("%s still runs after %v", p.name, patience)
	}
}

// log returns the last lines of the log.
func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// complaints returns lines that no request may cause.
func (p *process) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

func (p *process) readOut(r io.Reader) {
	for sc := bufio.NewScanner(r); sc.Scan(); {
		rest, ok := strings.CutPrefix(sc.Text(), "ready ")
		if !ok {
			continue
		}
		addrs := map[string]string{}
		for part := range strings.FieldsSeq(rest) {
			key, value, _ := strings.Cut(part, "=")
			addrs[key] = value
		}
		select {
		case p.ready <- addrs:
		default:
		}
	}
}

func (p *process) readLog(r io.Reader) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := sc.Text()
		p.mu.Lock()
		if p.lines = append(p.lines, line); len(p.lines) > logLines {
			p.lines = p.lines[1:]
		}
		if isFault(line) && len(p.faults) < 20 {
			p.faults = append(p.faults, line)
		}
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, r) // a longer line must not block the process
}

// isFault tells a line that speaks of a bug. No request, however bad, is a reason for an error.
func isFault(line string) bool {
	for _, word := range []string{"panic", "fatal error", "goroutine ", "level=ERROR"} {
		if strings.Contains(line, word) {
			return true
		}
	}
	return false
}
