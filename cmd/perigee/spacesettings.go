package main

import (
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/cfg"
)

// spaceSettings say who is refused when the disk gets full, of processes with a broker in them.
type spaceSettings struct {
	LowUsed       int       `koanf:"space-low-used" help:"percent of the disk; from here on, and with less than --space-low-free left, the broker makes room"`
	LowFree       cfg.Bytes `koanf:"space-low-free" help:"see --space-low-used"`
	ProducersUsed int       `koanf:"space-producers-used" help:"percent of the disk; from here on, and with less than --space-producers-free left, messages are refused"`
	ProducersFree cfg.Bytes `koanf:"space-producers-free" help:"see --space-producers-used"`
	GrowUsed      int       `koanf:"space-grow-used" help:"percent of the disk; from here on, and with less than --space-grow-free left, the commit log gets no further file: consumers go on in those that are there"`
	GrowFree      cfg.Bytes `koanf:"space-grow-free" help:"see --space-grow-used"`
	ConsumersRoom cfg.Bytes `koanf:"space-consumers-room" help:"room in the files of the commit log that is left to consumers when no further file can be made; at most a quarter of a file counts"`
	RetentionRoom cfg.Bytes `koanf:"space-retention-room" help:"room that is left to what makes room when consumers are refused as well; at most an eighth of a file counts"`
}

func defaultSpace() spaceSettings {
	l := space.Defaults()
	return spaceSettings{
		LowUsed: int(l.Low.Used), LowFree: cfg.Bytes(l.Low.Free),
		ProducersUsed: int(l.Producers.Used), ProducersFree: cfg.Bytes(l.Producers.Free),
		GrowUsed: int(l.Grow.Used), GrowFree: cfg.Bytes(l.Grow.Free),
		ConsumersRoom: cfg.Bytes(l.Consumers), RetentionRoom: cfg.Bytes(l.Retention),
	}
}

func (s spaceSettings) limits() space.Limits {
	mark := func(used int, free cfg.Bytes) space.Mark { return space.Mark{Used: float64(used), Free: int64(free)} }
	return space.Limits{
		Low: mark(s.LowUsed, s.LowFree), Producers: mark(s.ProducersUsed, s.ProducersFree), Grow: mark(s.GrowUsed, s.GrowFree),
		Consumers: int64(s.ConsumersRoom), Retention: int64(s.RetentionRoom),
	}
}

func (s spaceSettings) check() error {
	if err := s.limits().Check(); err != nil {
		return usageError("--space-low-*, --space-producers-* and --space-grow-*: %v", err)
	}
	return nil
}

func (s spaceSettings) apply(o *engine.Options) { o.Space = s.limits() }
