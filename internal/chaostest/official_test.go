package chaostest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// official is the program of an official client (interop/), which sends and receives as an application does and prints what it sees.
type official struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{} // closed when it has ended
	err   error         // how, once it has

	mu     sync.Mutex // guards what follows
	events []event
	odd    []string // lines that are no events
}

// event is a line that a program printed.
type event struct {
	at    time.Time
	what  string
	words []string
}

// parseEvent reads a line: milliseconds, what, words.
func parseEvent(line string) (event, bool) {
	words := strings.Split(line, "\t")
	if len(words) < 2 {
		return event{}, false
	}
	ms, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return event{}, false
	}
	return event{time.UnixMilli(ms), words[1], words[2:]}, true
}

// launch starts a program against an address. argv has %s in the place of a directory for its logs.
func launch(name string, argv []string, dir, addr, run string) (*official, error) {
	logs := filepath.Join(dir, name)
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return nil, err
	}
	argv = slices.Clone(argv)
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "%s", logs)
	}
	o := &official{name: name, ended: make(chan struct{})}
	o.cmd = exec.Command(argv[0], append(argv[1:], "--endpoints", addr, "--run", run, "--steady")...)
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	errs, err := os.Create(filepath.Join(dir, name+".stderr"))
	if err != nil {
		return nil, err
	}
	o.cmd.Stderr = errs
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if o.in, err = o.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	events, err := os.Create(filepath.Join(dir, name+".events"))
	if err != nil {
		return nil, err
	}
	if err := o.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(o.ended)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			_, _ = fmt.Fprintln(events, sc.Text())
			o.take(sc.Text())
		}
		o.err = o.cmd.Wait()
		_ = errs.Close()
		_ = events.Close()
	}()
	return o, nil
}

func (o *official) take(line string) {
	e, ok := parseEvent(line)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !ok {
		o.odd = append(o.odd, line)
		return
	}
	o.events = append(o.events, e)
}

// said tells whether the program has printed an event.
func (o *official) said(what string) error {
	select {
	case <-o.ended:
		return fmt.Errorf("the %s client has ended: %w", o.name, o.err)
	default:
	}
	if !slices.ContainsFunc(o.seen(), func(e event) bool { return e.what == what }) {
		return fmt.Errorf("the %s client does not say %q", o.name, what)
	}
	return nil
}

// seen is all that the program has printed.
func (o *official) seen() []event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.events)
}

// gap is the longest time without a successful send in a span of time.
func (o *official) gap(from, to time.Time) (longest time.Duration) {
	last := from
	for _, e := range o.seen() {
		if e.what == "sent" && e.at.After(from) && e.at.Before(to) {
			longest, last = max(longest, e.at.Sub(last)), e.at
		}
	}
	return max(longest, to.Sub(last))
}

// since tells whether a send succeeded after a time.
func (o *official) since(t time.Time) bool {
	return slices.ContainsFunc(o.seen(), func(e event) bool { return e.what == "sent" && e.at.After(t) })
}

// drain lets the program send nothing more.
func (o *official) drain() error {
	_, err := io.WriteString(o.in, "drain\n")
	return err
}

// end tells the program to end, and kills it if it takes long.
func (o *official) end() {
	_ = o.in.Close()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-o.ended:
	case <-timer.C:
		_ = syscall.Kill(-o.cmd.Process.Pid, syscall.SIGKILL)
		<-o.ended
	}
}
