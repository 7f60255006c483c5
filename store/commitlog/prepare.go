package commitlog

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// preparePause is how long the preparer waits after a failure.
const preparePause = time.Second

// preparer makes the segment after the current one in its goroutine, so that rolling costs nothing. The
// segment is durable, name and length, before anything is written to it.
type preparer struct {
	o     Options
	want  chan record.Pos
	ready chan *segment.Segment
	fails chan error // handed to whoever waits for the segment while it cannot be made
	quit  chan struct{}
	ended chan struct{}
	done  atomic.Bool // a segment waits in ready
}

// startPreparer returns a preparer that makes the segment at base first.
func startPreparer(o Options, base record.Pos) *preparer {
	p := &preparer{
		o: o, want: make(chan record.Pos, 1), ready: make(chan *segment.Segment, 1), fails: make(chan error),
		quit: make(chan struct{}), ended: make(chan struct{}),
	}
	p.want <- base
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

// create tries until it has the segment; nil if it was told to stop.
func (p *preparer) create(base record.Pos) *segment.Segment {
	for {
		began := time.Now()
		s, err := segment.Create(p.o.FS, p.o.Dir, base, p.o.SegmentBytes)
		if err == nil {
			if f := p.o.Events.SegmentPrepared; f != nil {
				f(base, time.Since(began))
			}
			return s
		}
		p.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "next segment cannot be prepared, trying again",
			slog.Int64("base", int64(base)), slog.Duration("pause", preparePause), slog.String("error", err.Error()))
		if f := p.o.Events.PrepareFailed; f != nil {
			f(err)
		}
		if !p.pause(err) {
			return nil
		}
	}
}

func (p *preparer) pause(err error) bool {
	timer := time.NewTimer(preparePause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case p.fails <- err:
		return true
	case <-p.quit:
		return false
	}
}

// take waits for the segment that was asked for. An error says that it cannot be made now.
func (p *preparer) take() (*segment.Segment, error) {
	select {
	case s := <-p.ready:
		p.done.Store(false)
		return s, nil
	default:
	}
	select {
	case s := <-p.ready:
		p.done.Store(false)
		return s, nil
	case err := <-p.fails:
		return nil, err
	}
}

func (p *preparer) stop() {
	close(p.quit)
	<-p.ended
	select {
	case s := <-p.ready:
		s.Close()
	default:
	}
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
