package main

import (
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/internal/cfg"
)

// querySettings bound what a broker does to find and trace messages.
type querySettings struct {
	Queries    int       `koanf:"queries" help:"searches and traces of messages that run at once; others wait"`
	TraceBytes cfg.Bytes `koanf:"trace-bytes" help:"log that a trace reads before it answers in part"`
	IndexRate  cfg.Bytes `koanf:"index-rate" help:"log read per second to rebuild files of the index that are missing or damaged"`
}

func defaultQuery() querySettings {
	return querySettings{Queries: 2, TraceBytes: 64 << 20, IndexRate: 64 << 20}
}

func (s querySettings) check() error {
	switch {
	case s.Queries < 1:
		return usageError("--queries %d: use 1 or more", s.Queries)
	case s.TraceBytes < 1<<20:
		return usageError("--trace-bytes %d: use 1MiB or more", s.TraceBytes)
	case s.IndexRate < 1<<20:
		return usageError("--index-rate %d: use 1MiB or more", s.IndexRate)
	}
	return nil
}

// apply puts the settings into the engine's options.
func (s querySettings) apply(o *engine.Options) {
	o.Queries, o.TraceBytes, o.IndexRate = s.Queries, int64(s.TraceBytes), int64(s.IndexRate)
}
