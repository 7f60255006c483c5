package main

import (
	"time"

	"github.com/perigee-mq/perigee/internal/cfg"
)

// dedupSettings are the settings of the duplicate window.
type dedupSettings struct {
	DuplicateWindow time.Duration `koanf:"duplicate-window" help:"how long a message that a client sends again is answered with its first result instead of being stored; 0 for not at all; a topic may have its own"`
	DuplicateMemory cfg.Bytes     `koanf:"duplicate-memory" help:"most memory for --duplicate-window, 11 to 22 bytes a message; beyond it the window is shorter, see perigee_duplicate_window"`
}

func defaultDedup() dedupSettings {
	return dedupSettings{DuplicateWindow: 10 * time.Minute, DuplicateMemory: 64 << 20}
}

func (s dedupSettings) check() error {
	switch {
	case s.DuplicateWindow < 0:
		return usageError("--duplicate-window %v: use 0 or more", s.DuplicateWindow)
	case s.DuplicateMemory < 1<<16:
		return usageError("--duplicate-memory %d: use 64KiB or more", int64(s.DuplicateMemory))
	}
	return nil
}

// window is how the store is told: below 0 is not at all.
func (s dedupSettings) window() time.Duration {
	if s.DuplicateWindow == 0 {
		return -1
	}
	return s.DuplicateWindow
}
