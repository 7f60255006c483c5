package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the machine was started.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(started)
	}
	return time.Duration(ts.Nano())
}

// started anchors the fallback: Go's monotonic clock.
var started = time.Now()
