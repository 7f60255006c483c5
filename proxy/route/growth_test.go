package route

import (
	"slices"
	"testing"
	"time"
)

// TestDelaysOfGrowth: as many as deliveries need, up to the longest.
func TestDelaysOfGrowth(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		g        Growth
		attempts int32
		want     []time.Duration
	}{
		{Growth{s, 10 * s, 2}, 17, []time.Duration{s, 2 * s, 4 * s, 8 * s, 10 * s}},
		{Growth{s, 10 * s, 2}, 4, []time.Duration{s, 2 * s, 4 * s}},
		{Growth{s, 10 * s, 2}, 1, []time.Duration{s}},
		{Growth{s, s, 1}, 17, []time.Duration{s}},
		{Growth{s, 2 * s, 1}, 3, []time.Duration{s, s}},
	} {
		if got := c.g.Delays(c.attempts); !slices.Equal(got, c.want) {
			t.Errorf("%+v for %d attempts: %v, want %v", c.g, c.attempts, got, c.want)
		}
	}
	if got := (Growth{s, time.Hour, 1}).Delays(10_000); len(got) != delaysMax {
		t.Errorf("%d delays", len(got))
	}
}
