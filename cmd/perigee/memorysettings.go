package main

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/internal/cfg"
	"github.com/perigee-mq/perigee/internal/memory"
	"github.com/perigee-mq/perigee/internal/obs"
	"github.com/perigee-mq/perigee/proxy/server"
)

// memorySettings bound the memory of a server process.
type memorySettings struct {
	MemoryLimit cfg.Bytes `koanf:"memory-limit" help:"memory that the process may use, besides the kernel's cache of its files; near it new work is refused; default (0B): seven tenths of the machine's, or of its control group's if that has less"`
}

// memoryMin is the least limit.
const memoryMin = 128 << 20

func (s memorySettings) check() error {
	if s.MemoryLimit != 0 && s.MemoryLimit < memoryMin {
		return usageError("--memory-limit %s: use %s or more, or 0 for the default", s.MemoryLimit.String(), cfg.Bytes(memoryMin).String())
	}
	return nil
}

// guard puts the limit in force and shows it in a metric.
func (s memorySettings) guard(m metric.Meter, log *slog.Logger) (*memory.Guard, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	limit := int64(s.MemoryLimit)
	if limit == 0 {
		limit = memory.Default()
	}
	g := memory.New(limit, log)
	g.Apply()
	r := obs.NewInstruments(m)
	bytes := r.Gauge("perigee_memory", "memory of the process: its limit, and what is in use for good (live; absent until it was measured)", "bytes", "kind")
	refused := r.Counter("perigee_memory_refused", "requests that were refused because memory was nearly used up")
	return g, r.Observe(func(_ context.Context, o metric.Observer) error {
		s := g.Stats()
		o.ObserveInt64(bytes, s.Limit, metric.WithAttributes(attribute.String("kind", "limit")))
		if s.Live > 0 {
			o.ObserveInt64(bytes, s.Live, metric.WithAttributes(attribute.String("kind", "live")))
		}
		o.ObserveInt64(refused, s.Refused)
		return nil
	})
}

// Shares of the memory limit that the large holders of memory may have at most.
const (
	pendingShare  = 8  // requests on their way to the log, and messages on their way to slow readers
	inFlightShare = 4  // messages that were handed out and are not done
	messageBytes  = 40 // of one of those
)

// boundEngine bounds what an engine holds in relation to the limit.
func boundEngine(g *memory.Guard, o *engine.Options) {
	o.PendingBytes = min(256<<20, g.Limit()/pendingShare)
	o.InFlightTable = g.Limit() / inFlightShare / messageBytes
	o.Pressed, o.PressedRefused = g.Pressed, g.Refused
}

// boundProxy bounds what a proxy holds in relation to the limit.
func boundProxy(g *memory.Guard, l *server.Limits) {
	l.UnsentBytes = min(256<<20, g.Limit()/pendingShare)
	l.Pressed, l.PressedRefused = g.Pressed, g.Refused
}
