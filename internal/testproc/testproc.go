// Package testproc runs the program under test as processes that a test can kill, freeze and start again, and watches
// what they log.
package testproc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a perigee that can be killed and started again with the same arguments. Its methods but When, Count and
// Complaints belong to one goroutine.
type Process struct {
	// Name is for people. Log is the file that takes all its logs. Args are those of all starts from now on.
	Name string
	Log  string
	Args []string
	// Env is added to the environment of the test, of which settings of Perigee are taken out.
	Env []string

	run   []string // program and arguments before Args
	cmd   *exec.Cmd
	ready chan struct{} // closed once it serves
	ended chan struct{} // closed when it has ended
	err   error         // how, once it has

	mu     sync.Mutex           // guards what follows
	watch  map[string]chan bool // closed when a line of the log has this text
	counts map[string]int       // lines that have a text
	faults []string             // lines that no kill may cause
}

// New returns a process that is not running. run is the program with what comes before args; texts are those whose lines are
// counted.
func New(name, log string, run, args []string, texts ...string) *Process {
	p := &Process{Name: name, Log: log, Args: args, run: run, watch: map[string]chan bool{}, counts: map[string]int{}}
	for _, t := range texts {
		p.counts[t] = 0
	}
	return p
}

// Launch starts the process and does not wait for it. Settings in the environment do not reach it.
func (p *Process) Launch() error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.run[0], slices.Concat(p.run[1:], p.Args)...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PERIGEE_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, p.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is for the test
	out, err := cmd.StdoutPipe()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	errs, err := cmd.StderrPipe()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	p.cmd, p.ready, p.ended = cmd, ready, ended
	var readers sync.WaitGroup
	readers.Go(func() {
		var once sync.Once
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if strings.HasPrefix(sc.Text(), "ready") {
				once.Do(func() { close(ready) })
			}
		}
	})
	readers.Go(func() { p.read(errs, log) })
	go func() {
		readers.Wait()
		p.err = errors.Join(cmd.Wait(), log.Close())
		close(ended)
	}()
	return nil
}

// Patience is how long a process may take to start.
const Patience = 30 * time.Second

// Serving waits until the process serves.
func (p *Process) Serving() error {
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case <-p.ready:
		return nil
	case <-p.ended:
		return fmt.Errorf("%s ended at its start: %w", p.Name, p.err)
	case <-timer.C:
		return fmt.Errorf("%s does not serve after %v", p.Name, Patience)
	}
}

// Kill ends the process with SIGKILL. It must have been there until then.
func (p *Process) Kill() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended by itself: %w", p.Name, p.err)
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.ended
	return nil
}

// End kills the process if it is there.
func (p *Process) End() {
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		<-p.ended
	}
}

// read copies the log to its file, and tells watchers.
func (p *Process) read(r io.Reader, to io.Writer) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := sc.Text()
		_, _ = fmt.Fprintln(to, line)
		p.mu.Lock()
		for text, c := range p.watch {
			if strings.Contains(line, text) {
				delete(p.watch, text)
				close(c)
			}
		}
		for text := range p.counts {
			if strings.Contains(line, text) {
				p.counts[text]++
			}
		}
		if isFault(line) && len(p.faults) < 10 {
			p.faults = append(p.faults, p.Name+": "+line)
		}
		p.mu.Unlock()
	}
	_, _ = io.Copy(to, r) // a longer line must not block the process
}

// Running tells whether the process is there.
func (p *Process) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Ready tells whether the process has said that it serves.
func (p *Process) Ready() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the process if it is there.
func (p *Process) Signal(s os.Signal) {
	if p.Running() {
		_ = p.cmd.Process.Signal(s)
	}
}

// Pid is the process id of the last start.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Stop ends the process by SIGTERM and waits until it has ended, at most so long.
func (p *Process) Stop(d time.Duration) error {
	p.Signal(syscall.SIGTERM)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("%s was told to end: %w", p.Name, p.err)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("%s has not ended %v after SIGTERM", p.Name, d)
	}
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// isFault tells a line that speaks of a bug.
func isFault(line string) bool {
	for _, word := range []string{"panic", "fatal error", "goroutine ", "level=ERROR"} {
		if strings.Contains(line, word) {
			return true
		}
	}
	return false
}

// When returns a channel that is closed at the next line of the log with a text.
func (p *Process) When(text string) chan bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch[text] == nil {
		p.watch[text] = make(chan bool)
	}
	return p.watch[text]
}

// Complaints returns lines that no kill may cause.
func (p *Process) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// Count tells how many lines of the log had a text, one of those that New was told.
func (p *Process) Count(text string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[text]
}

// Await waits for something at most so long, and tells whether it came.
func Await(c <-chan bool, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
