package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootNS reads CLOCK_BOOTTIME, which goes on while the machine is suspended.
func bootNS() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(started).Nanoseconds()
	}
	return ts.Nano()
}

// started anchors the fallback: Go's monotonic clock.
var started = time.Now()
