// Package memory keeps a process below a limit: it finds out how much memory there is, tells the Go runtime,
// and says when new work must wait because what is in use for good comes near.
//
// The runtime's own limit (GOMEMLIMIT) makes it collect more often, but what is live cannot be collected:
// beyond it the process only gets slower, until the kernel ends it. So new work is refused before.
package memory

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// Shares of the limit.
const (
	refuseAt = 0.85 // live memory from which new work is refused
	takeAt   = 0.80 // and below which it is taken again
)

// ShareOfMachine is the part of the machine's memory, or of its control group's limit, that is the default limit.
const ShareOfMachine = 0.7

// floor is the least limit that can be set.
const floor = 128 << 20

// Guard watches one process. Its methods are safe for concurrent use.
type Guard struct {
	limit   int64
	log     *slog.Logger
	pressed atomic.Bool
	live    atomic.Int64
	refused atomic.Int64
}

// New returns a guard of a limit in bytes, at least 128 MiB.
func New(limit int64, log *slog.Logger) *Guard {
	return &Guard{limit: max(limit, floor), log: log}
}

// Default is the limit where none is set: a share of what the machine or the control group has, 2 GiB if neither
// tells.
func Default() int64 {
	if all := machine(os.ReadFile); all > 0 {
		return max(floor, int64(float64(all)*ShareOfMachine))
	}
	return 2 << 30
}

// Apply tells the Go runtime, unless GOMEMLIMIT in the environment does, and logs what is in force.
func (g *Guard) Apply() {
	from := "--memory-limit"
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(g.limit)
	} else {
		from = "GOMEMLIMIT for the collector"
	}
	if n := debug.SetMemoryLimit(-1); from != "--memory-limit" && n < math.MaxInt64 {
		g.limit = min(g.limit, n)
	}
	g.log.Info("memory is limited", "limit_bytes", g.limit, "by", from)
}

const (
	// every is how often memory is looked at.
	every = 100 * time.Millisecond
	// collectEvery is how often at most a collection is begun while work is refused: what is live is known as of the last
	// one, and a process that refuses work may not come to the next by itself for minutes.
	collectEvery = 5 * time.Second
)

// Run watches, and sets GOGC by what is live unless the environment does, until ctx ends.
func (g *Guard) Run(ctx context.Context) error {
	samples, collected := newSamples(), time.Now()
	pace, again := newPacer(), (<-chan struct{})(nil)
	if pace != nil {
		pace.watch(ctx)
		again = pace.collected
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if g.pressed.Load() && now.Sub(collected) >= collectEvery {
				runtime.GC()
				collected = time.Now()
			}
			g.see(samples.live())
		case <-again:
			pace.look()
		}
	}
}

// see judges what is live now.
func (g *Guard) see(live int64) {
	g.live.Store(live)
	share := float64(live) / float64(g.limit)
	switch was := g.pressed.Load(); {
	case !was && share >= refuseAt:
		g.pressed.Store(true)
		g.log.Warn("memory is nearly used up: new work is refused until some is free", "live_bytes", live, "limit_bytes", g.limit,
			"hint", "raise --memory-limit, or lower what is held: messages in flight, waiting receives, clients")
	case was && share < takeAt:
		g.pressed.Store(false)
		g.log.Info("memory is free again: new work is taken", "live_bytes", live, "limit_bytes", g.limit)
	}
}

// Pressed tells whether new work must wait.
func (g *Guard) Pressed() bool { return g != nil && g.pressed.Load() }

// Refused counts a request that was refused since Pressed said so.
func (g *Guard) Refused() {
	if g != nil {
		g.refused.Add(1)
	}
}

// Stats are for metrics.
type Stats struct {
	Limit   int64 // bytes
	Live    int64 // bytes in use for good as of the last collection, 0 before the first look
	Refused int64 // requests that were refused since memory was pressed
}

// Stats returns what is known now.
func (g *Guard) Stats() Stats {
	return Stats{Limit: g.limit, Live: g.live.Load(), Refused: g.refused.Load()}
}

// Limit is the limit in bytes.
func (g *Guard) Limit() int64 { return g.limit }

// samples reads the runtime's own figures.
type samples []metrics.Sample

func newSamples() samples {
	s := samples{}
	for _, name := range []string{
		"/gc/heap/live:bytes", "/memory/classes/heap/stacks:bytes", "/memory/classes/os-stacks:bytes", "/memory/classes/metadata/mcache/inuse:bytes",
		"/memory/classes/metadata/mspan/inuse:bytes", "/memory/classes/metadata/other:bytes", "/memory/classes/other:bytes",
	} {
		s = append(s, metrics.Sample{Name: name})
	}
	return s
}

// live is what a collection would not free, in bytes.
func (s samples) live() int64 {
	metrics.Read(s)
	n := uint64(0)
	for i := range s {
		if s[i].Value.Kind() == metrics.KindUint64 {
			n += s[i].Value.Uint64()
		}
	}
	return int64(n)
}
