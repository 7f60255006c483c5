package clock

import "testing"

// TestLeaseClockStartsAtTheWallClock and never runs ahead of it by a fraction that a reading lost.
func TestLeaseClockStartsAtTheWallClock(t *testing.T) {
	for range 1000 {
		c := New()
		before := c.Wall()
		lease := c.Lease()
		after := c.Wall()
		if lease < before-1 || lease > after {
			t.Fatalf("lease clock says %d, the wall clock %d before and %d after", lease, before, after)
		}
	}
}
