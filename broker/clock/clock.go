// Package clock is where a broker reads time: the wall clock for store and delivery times, and the
// boot-time clock, anchored once to the wall clock, for leases and sessions, so that a step of the
// wall clock frees no lease. Pure cores never import it: they get times as arguments.
package clock

import (
	"time"

	"github.com/perigee-mq/perigee/internal/boottime"
)

// Clock tells time in milliseconds since 1970.
type Clock interface {
	// Wall is the wall clock.
	Wall() int64
	// Lease is the wall clock at the start plus the time since then, suspended time included.
	Lease() int64
}

// New returns the clock of this machine, anchored now.
func New() Clock {
	return &machine{wall: time.Now().UnixNano(), boot: boottime.Now().Nanoseconds()}
}

// machine counts in nanoseconds: the fractions of a millisecond that three readings lose would make
// the lease clock of one process run ahead of that of the next.
type machine struct {
	wall int64 // wall clock at the anchor, ns
	boot int64 // boot-time clock at the anchor, ns
}

func (m *machine) Wall() int64 { return time.Now().UnixMilli() }
func (m *machine) Lease() int64 {
	return (m.wall + boottime.Now().Nanoseconds() - m.boot) / int64(time.Millisecond)
}
