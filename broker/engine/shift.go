package engine

import (
	"sync/atomic"

	"github.com/perigee-mq/perigee/broker/clock"
)

// shifted is a clock whose lease time is that of the master before, as near as is known: a lease that it gave must not
// end early because another machine's clock is ahead.
type shifted struct {
	clock.Clock
	ms atomic.Int64
}

func (s *shifted) Lease() int64 { return s.Clock.Lease() + s.ms.Load() }

// Lease is the clock by which leases are judged here, ms since 1970.
func (e *Engine) Lease() int64 { return e.clock.Lease() }
