// Command soak is `make soak`: it runs perigee dev for a long time under a load of everything, at a bounded
// rate, and fails when something is lost, comes after its ack, or goes up that should not.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

type settings struct {
	perigee string
	time    time.Duration
	every   time.Duration
	pace    time.Duration
	dir     string
	seed    uint64
}

func main() {
	var s settings
	flag.StringVar(&s.perigee, "perigee", "bin/perigee", "the perigee binary")
	flag.DurationVar(&s.time, "time", time.Hour, "how long to run, but for the end, in which everything is read")
	flag.DurationVar(&s.every, "every", 0, "time between measurements; default: 5 s, less in a short run")
	flag.DurationVar(&s.pace, "pace", 20*time.Millisecond, "mean time between two calls of a sender; there are seven")
	flag.StringVar(&s.dir, "dir", "", "data directory; default: a temporary one, removed at the end")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "seed of the clients' choices")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := soak(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "soak: FAILED:", err)
		os.Exit(1)
	}
}

// short is a time that grows with the run, within bounds.
func short(run time.Duration, part int, least, most time.Duration) time.Duration {
	return min(max(run/time.Duration(part), least), most)
}

func soak(ctx context.Context, s settings) (err error) {
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "perigee-soak-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(s.dir) }()
	}
	if s.every == 0 {
		s.every = short(s.time, 100, time.Second, 5*time.Second)
	}
	p, addr, err := start(s)
	if err != nil {
		return err
	}
	defer p.kill()
	l := &load{addr: addr.grpc, seed: s.seed, pace: s.pace, delayMax: short(s.time, 4, 20*time.Second, 4*time.Minute), ledger: newLedger(time.Minute)}
	fmt.Printf("soak: seed %d, %v\n", s.seed, s.time)
	if err := l.define(ctx); err != nil {
		return err
	}
	watched := &server{pid: p.cmd.Process.Pid, dir: s.dir, http: addr.http}
	samples, err := l.run(ctx, s, watched)
	faults := append(l.ledger.wrong(), judge(samples, rules)...)
	stored, acked, again := l.ledger.counts()
	fmt.Printf("soak: %d messages stored, %d done, %d deliveries again, %d clients, %d calls failed\n", stored, acked, again, l.sessions.Load(), l.failures.Load())
	if n := l.failures.Load(); n > 0 {
		faults = append(faults, fmt.Sprintf("%d calls failed, the first: %s", n, *l.firstFailure.Load()))
	}
	faults = append(faults, p.complaints()...)
	if err == nil {
		err = p.stop()
	}
	for _, f := range faults {
		fmt.Println("soak: fault:", f)
	}
	if len(faults) > 0 {
		err = errors.Join(err, fmt.Errorf("%d faults", len(faults)))
	}
	return err
}

// run makes the load for its time, measures, and then waits until everything is done.
func (l *load) run(ctx context.Context, s settings, watched *server) ([]sample, error) {
	began := time.Now()
	sending, stopSending := context.WithTimeout(ctx, s.time)
	defer stopSending()
	reading, stopReading := context.WithCancel(ctx)
	var senders, readers sync.WaitGroup
	l.consume(reading, &readers)
	l.produce(sending, &senders)
	defer readers.Wait()
	defer stopReading()
	defer senders.Wait()
	defer stopSending()
	var samples []sample
	t := newTable(os.Stdout)
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for sending.Err() == nil {
		select {
		case <-tick.C:
		case <-sending.Done():
			continue
		}
		m, err := watched.measure(ctx, time.Since(began), l.ledger)
		if err != nil {
			return samples, err
		}
		samples = append(samples, m)
		l.ledger.sweep(time.Now(), 2*time.Minute)
		t.line(m, l.ledger, s.time)
	}
	if ctx.Err() != nil {
		return samples, errors.New("interrupted")
	}
	senders.Wait()
	fmt.Printf("soak: %d messages are left to do\n", l.ledger.left())
	for end := time.Now().Add(l.delayMax + 2*time.Minute); l.ledger.left() > 0 && len(l.ledger.wrong()) == 0; pause(ctx, time.Second) {
		if l.ledger.sweep(time.Now(), 2*time.Minute); time.Now().After(end) || ctx.Err() != nil {
			return samples, fmt.Errorf("%d messages are not done", l.ledger.left())
		}
	}
	return samples, nil
}

// process is the server.
type process struct {
	cmd   *exec.Cmd
	ended chan error

	mu   sync.Mutex
	last []string // of the log: what was told as an error
}

type addresses struct{ grpc, http string }

// start starts a server whose files are small and go soon.
func start(s settings) (*process, addresses, error) {
	keep := short(s.time, 6, 30*time.Second, 3*time.Minute)
	c := exec.Command(s.perigee, "dev", "--data-dir", filepath.Join(s.dir, "data"), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--auto-create=false",
		"--segment-bytes", "4MiB", "--checkpoint-bytes", "8MiB", "--retention", keep.String(), "--lite-expiry", "15m", "--txn-verdicts-for", keep.String())
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is for us
	p := &process{cmd: c, ended: make(chan error, 1)}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, addresses{}, err
	}
	errs, err := c.StderrPipe()
	if err != nil {
		return nil, addresses{}, err
	}
	if err := c.Start(); err != nil {
		return nil, addresses{}, err
	}
	var logs sync.WaitGroup
	logs.Go(func() { p.read(errs) })
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		logs.Wait()
		p.ended <- c.Wait()
	}()
	var a addresses
	if _, e := fmt.Sscanf(line, "ready grpc=%s http=%s", &a.grpc, &a.http); err != nil || e != nil {
		p.kill()
		return nil, a, fmt.Errorf("the server says %q: %w", line, errors.Join(err, e))
	}
	return p, a, nil
}

// read keeps the lines of the log that no load may cause.
func (p *process) read(r io.Reader) {
	for sc := bufio.NewScanner(r); sc.Scan(); {
		if line := sc.Text(); strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") || strings.Contains(line, "fatal error") {
			p.mu.Lock()
			if len(p.last) < 20 {
				p.last = append(p.last, "the server's log: "+line)
			}
			p.mu.Unlock()
		}
	}
}

func (p *process) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *process) kill() { _ = p.cmd.Process.Kill() }

// stop asks the server to stop, which it must do well.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-p.ended:
		return err
	case <-time.After(time.Minute):
		return errors.New("the server does not stop")
	}
}
