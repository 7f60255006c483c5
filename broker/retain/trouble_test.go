package retain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTrouble: people hear of trouble when it begins and every ten minutes, and steps come at longer and longer intervals.
func TestTrouble(t *testing.T) {
	const interval = 10 * time.Second
	now, said := int64(1000), []int64{}
	var trouble Trouble
	require.Equal(t, interval, trouble.Pause(interval))
	var pauses []time.Duration
	for now < time.Hour.Milliseconds() {
		var say bool
		if trouble, say = trouble.Failed(now); say {
			said = append(said, now/60_000)
		}
		pauses = append(pauses, trouble.Pause(interval))
		now += trouble.Pause(interval).Milliseconds()
	}
	require.Equal(t, []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 2 * time.Minute, 2 * time.Minute}, pauses[:6])
	require.Equal(t, 2*time.Minute, pauses[len(pauses)-1])
	require.Equal(t, int64(1000), trouble.Since)
	require.Len(t, pauses, trouble.Tries)
	require.Equal(t, []int64{0, 10, 20, 30, 40, 50}, said)
	require.Equal(t, time.Hour, trouble.Pause(time.Hour), "an interval that is longer stays")
}
