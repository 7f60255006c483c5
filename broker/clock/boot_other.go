//go:build !linux

package clock

import "time"

// started anchors Go's monotonic clock.
var started = time.Now()

// bootNS reads Go's monotonic clock; it may stand still while the machine is suspended.
func bootNS() int64 { return time.Since(started).Nanoseconds() }
