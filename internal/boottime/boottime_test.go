package boottime

import "testing"

func TestNeverBack(t *testing.T) {
	last := Now()
	for range 1000 {
		now := Now()
		if now < last || now < 0 {
			t.Fatalf("%v after %v", now, last)
		}
		last = now
	}
}
