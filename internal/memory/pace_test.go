package memory

import (
	"context"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

// TestGarbageIsBounded: beyond what is live there is a constant and a share of what a collection looks through, and
// what is looked through for each allocated byte is bounded, too.
func TestGarbageIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		h       heap
		percent int
		most    int64 // live, roots and garbage, bytes
	}{
		"nothing is known":   {heap{}, 400, 0},
		"idle":               {heap{live: 5 * mib, scan: 4 * mib, roots: mib}, 400, 30 * mib},
		"a million sends":    {heap{live: 25 * mib, scan: 6 * mib, roots: 2 * mib}, 237, 92 * mib},
		"a million in hand":  {heap{live: 60 * mib, scan: 8 * mib, roots: 2 * mib}, 109, 130 * mib},
		"large tables":       {heap{live: 1 << 30, scan: 10 * mib, roots: 2 * mib}, 10, 1150 * mib},
		"all of it pointers": {heap{live: 1 << 30, scan: 1 << 30, roots: mib}, 204, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.h.percent()
			require.Equal(t, c.percent, p)
			all := c.h.live + c.h.roots
			growth := all * int64(p) / 100
			require.LessOrEqual(t, all+growth, c.most)
			if all >= 16*mib {
				require.LessOrEqual(t, c.h.scan+c.h.roots, growth*52/100, "looked through for what is allocated between two collections")
			}
		})
	}
}

// TestPaceFollows: the percentage follows what is live, and small changes stop nobody.
func TestPaceFollows(t *testing.T) {
	var said []int
	p := &pacer{now: GCPercent, set: func(n int) { said = append(said, n) }}
	for _, live := range []int64{0, 5, 8, 40, 41, 39, 200, 1000, 1010, 5} {
		p.see(heap{live: live * mib, scan: 4 * mib})
	}
	require.Equal(t, []int{140, 28, 10, 400}, said)
}

// TestPaceOfThisProcess: a guard that runs keeps GOGC of this process, by the runtime's own figures, and leaves it
// alone where the environment has one.
func TestPaceOfThisProcess(t *testing.T) {
	was := debug.SetGCPercent(GCPercent)
	defer debug.SetGCPercent(was)
	percent := func() int {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return int(s[0].Value.Uint64())
	}
	t.Setenv("GOGC", "150")
	require.Nil(t, newPacer())
	t.Setenv("GOGC", "")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- New(1<<40, slog.New(slog.DiscardHandler)).Run(ctx) }()
	tables := make([]byte, 256*mib)
	follows := func(least, most int) {
		for deadline := time.Now().Add(20 * time.Second); percent() < least || percent() > most; runtime.Gosched() {
			require.True(t, time.Now().Before(deadline), "GOGC is %d", percent())
			runtime.GC()
		}
	}
	follows(percentMin, 40)
	runtime.KeepAlive(tables)
	tables = nil
	follows(GCPercent, GCPercent)
	cancel()
	require.NoError(t, <-ended)
}
