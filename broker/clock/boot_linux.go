package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootMS reads CLOCK_BOOTTIME, which goes on while the machine is suspended.
func bootMS() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(started).Milliseconds()
	}
	return ts.Nano() / int64(time.Millisecond)
}

// started anchors the fallback: Go's monotonic clock.
var started = time.Now()
