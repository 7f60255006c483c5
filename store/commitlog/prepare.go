package commitlog

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// preparePause is how long the preparer waits after a failure.
const preparePause = time.Second

// preparer makes the segment after the current one in its goroutine, so that rolling costs nothing. The
// segment is durable, name and length, before anything is written to it.
type preparer struct {
	o      Options
	gate   *gate
	want   chan record.Pos
	ready  chan *segment.Segment
	failed chan struct{}           // holds a token after an attempt that failed
	why    atomic.Pointer[failure] // of the last attempt, nil if it went well
	done   atomic.Bool             // a segment waits in ready
	quit   chan struct{}
	ended  chan struct{}
}

// startPreparer returns a preparer that makes the segment at base first, unless there is one that a former process has
// made.
func startPreparer(o Options, base record.Pos, g *gate, made []*segment.Segment) *preparer {
	p := &preparer{
		o: o, gate: g, want: make(chan record.Pos, 1), ready: make(chan *segment.Segment, 1), failed: make(chan struct{}, 1),
		quit: make(chan struct{}), ended: make(chan struct{}),
	}
	if len(made) > 0 {
		p.done.Store(true)
		p.ready <- made[0]
	} else {
		p.want <- base
	}
	go p.run()
	return p
}

func (p *preparer) run() {
	defer close(p.ended)
	for {
		select {
		case <-p.quit:
			return
		case base := <-p.want:
			if s := p.create(base); s != nil {
				p.done.Store(true)
				p.ready <- s
			}
		}
	}
}

// gate says whether further files are to be made.
type gate struct {
	hold   atomic.Bool // none
	grant  atomic.Bool // but one
	making lock        // held while one is being made
}

// errHeld says why no file is made while the log is held.
var errHeld = mqerr.New(mqerr.DiskFull, "the disk is at its last watermark, or what it has left is for retention")

// create tries until it has the segment; nil if it was told to stop.
func (p *preparer) create(base record.Pos) *segment.Segment {
	for {
		began := time.Now()
		s, err := p.attempt(base)
		if err == nil {
			p.why.Store(nil)
			if f := p.o.Events.SegmentPrepared; f != nil {
				f(base, time.Since(began))
			}
			return s
		}
		p.fail(base, err)
		timer := time.NewTimer(preparePause)
		select {
		case <-timer.C:
		case <-p.quit:
			timer.Stop()
			return nil
		}
	}
}

func (p *preparer) attempt(base record.Pos) (*segment.Segment, error) {
	p.gate.making.Lock()
	defer p.gate.making.Unlock()
	granted := false
	if p.gate.hold.Load() {
		if granted = p.gate.grant.CompareAndSwap(true, false); !granted {
			return nil, errHeld
		}
	}
	s, err := segment.Create(p.o.FS, p.o.Dir, base, p.o.SegmentBytes)
	if err != nil && granted {
		p.gate.grant.Store(true)
	}
	return s, err
}

// fail lets go whoever waits. Of several failures in a row the first is logged.
func (p *preparer) fail(base record.Pos, err error) {
	if p.why.Swap(&failure{err}) == nil {
		p.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "the next file of the commit log cannot be made, it is tried again each second; free space on the disk",
			slog.Int64("base", int64(base)), slog.String("error", err.Error()))
	}
	if f := p.o.Events.PrepareFailed; f != nil {
		f(err)
	}
	select {
	case p.failed <- struct{}{}:
	default:
	}
}

// stuck is why the segment that was asked for cannot be made now, nil if it is there or being made.
func (p *preparer) stuck() error {
	if f := p.why.Load(); f != nil {
		return f.err
	}
	return nil
}

// take waits for the segment that was asked for. An error says that it cannot be made now: nobody waits
// for a disk to get room.
func (p *preparer) take() (*segment.Segment, error) {
	for {
		select {
		case s := <-p.ready:
			p.done.Store(false)
			return s, nil
		default:
		}
		if err := p.stuck(); err != nil {
			return nil, err
		}
		select {
		case s := <-p.ready:
			p.done.Store(false)
			return s, nil
		case <-p.failed:
		}
	}
}

// stop ends the preparer and returns the segment that nobody has taken, nil if there is none.
func (p *preparer) stop() *segment.Segment {
	close(p.quit)
	<-p.ended
	select {
	case s := <-p.ready:
		return s
	default:
		return nil
	}
}
