package main

import (
	"time"

	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/internal/cfg"
)

// retentionSettings say what is deleted when, of processes with a broker in them.
type retentionSettings struct {
	Retention      time.Duration `koanf:"retention" help:"how long messages are kept, consumed or not; 0: for ever"`
	RetentionBytes cfg.Bytes     `koanf:"retention-bytes" help:"how large the commit log gets before old messages go before their time, as --make-room says; 0: no bound"`
	RetentionLook  time.Duration `koanf:"retention-look" help:"how often it is looked whether something may go, at most; more often if --retention is short"`
	RetentionRate  cfg.Bytes     `koanf:"retention-rate" help:"bytes of deleted files that are given back to the disk in a second"`
	MakeRoom       string        `koanf:"make-room" help:"what goes before its time when the commit log is too large or the disk gets full: consumed, all or off"`
}

func defaultRetention() retentionSettings {
	return retentionSettings{Retention: 72 * time.Hour, RetentionLook: 10 * time.Second, RetentionRate: 256 << 20, MakeRoom: retain.Consumed.String()}
}

func (s retentionSettings) check() error {
	if s.Retention < 0 {
		return usageError("--retention %v: a duration, or 0 for ever", s.Retention)
	}
	if s.RetentionLook < time.Millisecond {
		return usageError("--retention-look %v: a duration, at least 1ms", s.RetentionLook)
	}
	if s.RetentionBytes < 0 || s.RetentionRate < 1 {
		return usageError("--retention-bytes must be 0 or more, --retention-rate 1 or more")
	}
	if _, err := retain.ParseRoom(s.MakeRoom); err != nil {
		return usageError("--make-room: %v", err)
	}
	return nil
}

// apply sets the engine's options; the settings were checked.
func (s retentionSettings) apply(o *engine.Options) {
	room, _ := retain.ParseRoom(s.MakeRoom)
	r := &o.Retention
	r.Limits = retain.Limits{Age: s.Retention, Bytes: int64(s.RetentionBytes), Room: room}
	r.Interval = s.RetentionLook
	if s.Retention > 0 {
		r.Interval = min(r.Interval, max(time.Second, s.Retention/4))
	}
}
