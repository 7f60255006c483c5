package engine

import (
	"time"

	"github.com/perigee-mq/perigee/store/commitlog"
)

// syncer runs fdatasync beside the writer: at once when a reply waits for it, else a while after the
// first asynchronous write. An idle log is never synced. It has one goroutine.
type syncer struct {
	log      *commitlog.Log
	wake     chan struct{} // the writer's bell
	grown    func()        // tells that more is durable
	interval time.Duration
	now      chan struct{} // a reply waits
	later    chan struct{} // something was written that nobody waits for
	quit     chan struct{}
	ended    chan struct{}
}

func (s *syncer) init(log *commitlog.Log, wake chan struct{}, interval time.Duration, grown func()) {
	s.log, s.wake, s.interval, s.grown = log, wake, interval, grown
	s.now, s.later = make(chan struct{}, 1), make(chan struct{}, 1)
	s.quit, s.ended = make(chan struct{}), make(chan struct{})
}

// soon asks for a sync at once.
func (s *syncer) soon() { ring(s.now) }

// eventually asks for a sync within the interval.
func (s *syncer) eventually() { ring(s.later) }

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *syncer) stop() {
	close(s.quit)
	<-s.ended
}

func (s *syncer) run() {
	defer close(s.ended)
	timer := time.NewTimer(s.interval)
	timer.Stop()
	running := false
	for {
		select {
		case <-s.quit:
			timer.Stop()
			return
		case <-s.later:
			if !running {
				timer.Reset(s.interval)
				running = true
			}
			continue
		case <-timer.C:
		case <-s.now:
		}
		timer.Stop()
		running = false
		// A failure is final for the log; the writer sees it at its next write or look.
		_ = s.log.Sync()
		s.grown()
		ring(s.wake)
	}
}
