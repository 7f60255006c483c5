package crashtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a perigee that can be killed and started again with the same arguments.
type process struct {
	name string
	bin  string
	log  string // file that takes all its logs
	data string // directory of its broker, if it has one
	args []string

	cmd   *exec.Cmd
	ready chan bool     // told once it serves
	ended chan struct{} // closed when it has ended
	err   error         // how, once it has

	mu     sync.Mutex           // guards what follows
	watch  map[string]chan bool // closed when a line of the log has this text
	faults []string             // lines that no kill may cause
	gone   int                  // steps of retention
}

func newProcess(name, bin, log string, args ...string) *process {
	return &process{name: name, bin: bin, log: log, args: args, watch: map[string]chan bool{}}
}

// launch starts the process and does not wait for it. Settings in the environment do not reach it.
func (p *process) launch() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.bin, p.args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PERIGEE_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
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
	ready, ended := make(chan bool, 1), make(chan struct{})
	p.cmd, p.ready, p.ended = cmd, ready, ended
	var readers sync.WaitGroup
	readers.Go(func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if strings.HasPrefix(sc.Text(), "ready") {
				ready <- true
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

// patience is how long a process may take to start.
const patience = 30 * time.Second

// serving waits until the process serves.
func (p *process) serving() error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ready:
		return nil
	case <-p.ended:
		return fmt.Errorf("%s ended at its start: %w", p.name, p.err)
	case <-timer.C:
		return fmt.Errorf("%s does not serve after %v", p.name, patience)
	}
}

// kill ends the process with SIGKILL. It must have been there until then.
func (p *process) kill() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended by itself: %w", p.name, p.err)
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.ended
	return nil
}

// forget removes the files of all views of a broker that is down: they can be made from the log.
func (p *process) forget() error {
	for _, view := range []string{"checkpoint", "queue", "index", "dedup"} {
		if err := os.RemoveAll(filepath.Join(p.data, view)); err != nil {
			return err
		}
	}
	return nil
}

// end kills the process if it is there.
func (p *process) end() {
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		<-p.ended
	}
}

// read copies the log to its file, and tells watchers.
func (p *process) read(r io.Reader, to io.Writer) {
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
		if strings.Contains(line, "retention: old messages were deleted") {
			p.gone++
		}
		if isFault(line) && len(p.faults) < 10 {
			p.faults = append(p.faults, p.name+": "+line)
		}
		p.mu.Unlock()
	}
	_, _ = io.Copy(to, r) // a longer line must not block the process
}

// isFault tells a line that speaks of a bug.
func isFault(line string) bool {
	for _, word := range []string{"panic", "fatal error", "goroutine ", "level=ERROR"} {
		if strings.Contains(line, word) {
			return true
		}
	}
	return false
}

// when returns a channel that is closed at the next line of the log with a text.
func (p *process) when(text string) chan bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch[text] == nil {
		p.watch[text] = make(chan bool)
	}
	return p.watch[text]
}

// complaints returns lines that no kill may cause.
func (p *process) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// await waits for something at most so long, and tells whether it came.
func await(c <-chan bool, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
