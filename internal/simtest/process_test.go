package simtest

import (
	"context"
	"log/slog"

	"github.com/perigee-mq/perigee/internal/simtest/simnet"
)

// process is one process of the cluster on a machine of its own. The goroutine of the schedule owns it.
type process struct {
	s    *sim
	name string
	host *simnet.Host
	ip   string
	// begin makes what runs, with the sockets that it may use.
	begin func(p *process) (run func(context.Context) error, err error)
	// left makes the disk what the next process finds, after the sockets of this one are gone.
	left func(power bool)
	// alone: the process before must have ended before the next one starts.
	alone bool

	stack  *simnet.Stack
	next   *running           // while begin is called: the run that it begins
	cancel context.CancelFunc // nil: it does not run
	run    *running
	frozen bool
}

// running is one run of a process.
type running struct {
	done   chan struct{} // closed: it has ended, err is set
	dead   chan struct{} // closed: it was killed
	err    error
	killed bool // what it says does not matter any more
}

func (s *sim) process(name, ip string) *process {
	p := &process{s: s, name: name, ip: ip, host: s.net.Host(ip)}
	s.all = append(s.all, p)
	return p
}

func (p *process) up() bool { return p.cancel != nil }

// start starts the process if it does not run.
func (p *process) start() {
	if p.up() {
		return
	}
	if r := p.run; p.alone && r != nil {
		p.s.free(func() { <-r.done })
	}
	p.stack = p.host.Boot()
	r := &running{done: make(chan struct{}), dead: make(chan struct{})}
	p.next = r
	run, err := p.begin(p)
	if err != nil {
		p.s.fail("%s cannot start: %v", p.name, err)
		p.stack.Kill()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.run = cancel, r
	p.s.runs.Go(func() {
		err := run(ctx)
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		r.err = err
		if err != nil && !r.killed {
			p.s.failLocked("%s has ended: %v", p.name, err)
		}
		close(r.done)
	})
}

// kill ends the process without a word, with the power of its machine or not.
func (p *process) kill(power bool) {
	if !p.up() {
		return
	}
	p.s.mu.Lock()
	p.run.killed = true
	p.s.mu.Unlock()
	close(p.run.dead)
	if power {
		p.stack.Lose()
	} else {
		p.stack.Kill()
	}
	if p.left != nil {
		p.left(power)
	}
	p.cancel()
	p.cancel, p.frozen = nil, false
}

// stop ends the process as SIGTERM does, and waits for it.
func (p *process) stop() {
	if !p.up() {
		return
	}
	p.cancel()
	r := p.run
	p.s.free(func() { <-r.done })
	p.stack.Kill()
	p.cancel, p.frozen = nil, false
}

// freeze stops the process and lets it go on.
func (p *process) freeze(yes bool) {
	p.frozen = yes && p.up()
	if p.frozen {
		p.host.Freeze()
	} else {
		p.host.Thaw()
	}
}

// log is where the process writes what an operator should read: into the trace.
func (p *process) log() *slog.Logger {
	return slog.New(&journal{s: p.s, name: p.name, run: p.next})
}

// journal is a slog.Handler that writes into the trace of a simulation.
type journal struct {
	s     *sim
	name  string
	run   *running
	attrs []slog.Attr
}

func (j *journal) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (j *journal) Handle(_ context.Context, r slog.Record) error {
	select {
	case <-j.run.dead: // nobody reads that
		return nil
	default:
	}
	text := r.Message
	for _, a := range j.attrs {
		text += " " + a.String()
	}
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	j.s.note("%s: %s %s", j.name, r.Level, text)
	return nil
}

func (j *journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journal{j.s, j.name, j.run, append(append([]slog.Attr(nil), j.attrs...), attrs...)}
}

func (j *journal) WithGroup(string) slog.Handler { return j }
