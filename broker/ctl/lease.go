package ctl

import (
	"sync"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/boottime"
	"github.com/perigee-mq/perigee/internal/lease"
)

// Lease is what this process holds of the controller's promise that nobody else is the master. It is safe for
// concurrent use. Answers that are no records may rest on it: ask before and after the work. Times are those of
// the boot-time clock.
type Lease struct {
	// Now is the clock; nil: that of this machine.
	Now func() time.Duration

	mu     sync.Mutex // guards the rest
	epoch  uint64
	holder lease.Holder
}

func (l *Lease) clock() time.Duration {
	if l.Now != nil {
		return l.Now()
	}
	return boottime.Now()
}

// Lead begins the epoch that this process leads, 0 if none: what it held is over.
func (l *Lease) Lead(epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch != l.epoch {
		l.epoch = epoch
		l.holder.Drop()
	}
}

// Epoch is the epoch that this process leads, 0 if none.
func (l *Lease) Epoch() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// Valid reports whether this process is surely the only master now.
func (l *Lease) Valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder.Valid(l.clock())
}

// Left is how long the lease lasts, negative if it has ended; false if there was none in this epoch.
func (l *Lease) Left() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, ok := l.holder.Until()
	return until - l.clock(), ok
}

// ask notes that a heartbeat goes out now, and returns its number and the epoch to state in it.
func (l *Lease) ask() (number, epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder.Ask(l.clock()), l.epoch
}

func (l *Lease) granted(g *controllerv1.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.GetEpoch() == l.epoch && l.epoch != 0 {
		l.holder.Granted(g.GetNumber(), time.Duration(g.GetLengthMs())*time.Millisecond)
	}
}
