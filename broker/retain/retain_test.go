package retain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/store/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log is n segments of 100 bytes, a second each, the newest at 100 s.
func log(n int) State {
	s := State{Now: 100_500, Durable: record.Pos(n * 100), Unread: 1 << 60}
	for i := range n {
		at := 100_000 - int64(n-1-i)*1000
		s.Segments = append(s.Segments, Segment{Base: record.Pos(i * 100), End: record.Pos(i*100 + 100), First: at, Newest: at + 999})
	}
	return s
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits Limits
		n      int
		change func(*State)
		d      record.Pos
		why    Why
		early  bool
	}{
		{name: "one segment", limits: Limits{Age: 1}, n: 1, why: Only},
		{name: "for ever", n: 5, why: Unlimited},
		{name: "for ever, low, off", limits: Limits{Room: Off}, n: 5, change: func(s *State) { s.Low = true }, why: Unlimited},
		{name: "old ones go", limits: Limits{Age: 3 * time.Second}, n: 6, d: 200},
		{name: "the newest stays", limits: Limits{Age: 1}, n: 6, d: 500, change: func(s *State) { s.Now = 1e9 }},
		{name: "just not old", limits: Limits{Age: 3 * time.Second}, n: 4, why: Young, change: func(s *State) { s.Now = 100_999 }},
		{name: "just old", limits: Limits{Age: 3 * time.Second}, n: 4, d: 100, change: func(s *State) { s.Now = 101_000 }},
		{name: "unread goes by time", limits: Limits{Age: 3 * time.Second}, n: 6, d: 200, change: func(s *State) { s.Unread = 0 }},
		{name: "bytes, consumed", limits: Limits{Bytes: 250}, n: 6, d: 400, early: true},
		{name: "bytes, consumed in part", limits: Limits{Bytes: 250}, n: 6, d: 200, early: true, change: func(s *State) { s.Unread = 97_001 }},
		{name: "bytes, read up to a boundary", limits: Limits{Bytes: 250}, n: 6, d: 100, early: true, change: func(s *State) { s.Unread = 97_000 }},
		{name: "bytes, unread", limits: Limits{Bytes: 250}, n: 6, why: Unread, change: func(s *State) { s.Unread = 1 }},
		{name: "bytes, unread, all", limits: Limits{Bytes: 250, Room: All}, n: 6, d: 400, early: true, change: func(s *State) { s.Unread = 1 }},
		{name: "bytes, off", limits: Limits{Bytes: 250, Room: Off}, n: 6, why: Young},
		{name: "bytes are enough", limits: Limits{Bytes: 600}, n: 6, why: Young},
		{name: "low", limits: Limits{}, n: 16, d: 200, early: true, change: func(s *State) { s.Low = true }},
		{name: "low, a small log", limits: Limits{}, n: 2, d: 100, early: true, change: func(s *State) { s.Low = true }},
		{name: "low, unread", limits: Limits{}, n: 16, why: Unread, change: func(s *State) { s.Low, s.Unread = true, 0 }},
		{name: "low, unread but old", limits: Limits{Age: 14 * time.Second}, n: 16, d: 100, change: func(s *State) { s.Low, s.Unread, s.Now = true, 0, 100_500 }},
		{name: "too little for its snapshot", limits: Limits{Age: 3 * time.Second}, n: 6, why: Small, change: func(s *State) { s.Snapshot = 51 }},
		{name: "enough for its snapshot", limits: Limits{Age: 3 * time.Second}, n: 6, d: 200, change: func(s *State) { s.Snapshot = 50 }},
		{name: "low", limits: Limits{Room: All}, n: 6, d: 100, early: true, change: func(s *State) { s.Snapshot, s.Low = 49, true }},
		{name: "low, it gives more than it takes", limits: Limits{Room: All}, n: 6, d: 200, early: true, change: func(s *State) { s.Snapshot, s.Low = 99, true }},
		{name: "low, it would take more than it gives", limits: Limits{Room: All}, n: 6, why: Small, change: func(s *State) { s.Snapshot, s.Low = 500, true }},
		{name: "low, so much is wanted", limits: Limits{}, n: 16, d: 400, early: true, change: func(s *State) { s.Low, s.Want = true, 300 }},
		{name: "low, more is wanted than is consumed", limits: Limits{}, n: 16, d: 100, early: true, change: func(s *State) { s.Low, s.Want, s.Unread = true, 300, 86_001 }},
		{name: "low and tight", limits: Limits{}, n: 16, d: 100, early: true, change: func(s *State) { s.Low, s.Tight = true, true }},
		{name: "tight", limits: Limits{Age: 3 * time.Second}, n: 6, d: 100, change: func(s *State) { s.Tight = true }},
		{name: "tight, it gives more than it takes", limits: Limits{Age: 1}, n: 6, d: 300, change: func(s *State) { s.Tight, s.Low, s.Snapshot, s.Now = true, true, 149, 1e9 }},
		{name: "not durable", limits: Limits{Age: 3 * time.Second}, n: 6, d: 100, change: func(s *State) { s.Durable = 199 }},
		{name: "nothing is durable", limits: Limits{Age: 3 * time.Second}, n: 6, why: Undurable, change: func(s *State) { s.Durable = 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := log(c.n)
			if c.change != nil {
				c.change(&s)
			}
			p := c.limits.Decide(&s)
			require.Equal(t, c.why, p.Why, "%v", p)
			require.Equal(t, c.d, p.D)
			require.Equal(t, c.early, p.Early)
			if c.why == Goes {
				require.Equal(t, s.Segments[int(c.d)/100].First, p.Time)
			}
		})
	}
}

func TestAsks(t *testing.T) {
	s := log(6)
	require.False(t, Limits{Age: 1}.Asks(&s))
	require.True(t, Limits{Bytes: 500}.Asks(&s))
	require.False(t, Limits{Bytes: 500, Room: All}.Asks(&s))
	require.False(t, Limits{Bytes: 600}.Asks(&s))
	s.Low = true
	require.True(t, Limits{}.Asks(&s))
	require.False(t, Limits{Room: Off}.Asks(&s))
}

func TestParseRoom(t *testing.T) {
	for _, r := range []Room{Consumed, All, Off} {
		got, err := ParseRoom(r.String())
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
	_, err := ParseRoom("some")
	require.Error(t, err)
}
