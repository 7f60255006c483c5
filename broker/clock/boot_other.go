//go:build !linux

package clock

import "time"

// started anchors Go's monotonic clock.
var started = time.Now()

// bootMS reads Go's monotonic clock; it may stand still while the machine is suspended.
func bootMS() int64 { return time.Since(started).Milliseconds() }
