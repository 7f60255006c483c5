//go:build !linux

package boottime

import "time"

// started anchors Go's monotonic clock.
var started = time.Now()

// Now is the time since the process was started; it may stand still while the machine is suspended.
func Now() time.Duration { return time.Since(started) }
