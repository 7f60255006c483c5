package failover

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shards are brokers that can be asked or not.
type shards struct {
	mu sync.Mutex
	up bool
}

func (s *shards) Broker(brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up {
		return nil, 0, mqerr.New(mqerr.Unavailable, "away")
	}
	return nil, 1, nil
}

func (s *shards) set(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = up
}

// tries makes a call that fails so often with a kind, and tells when the tries were and how it ended.
func tries(m *Masters, c Call, kinds ...mqerr.Kind) (at []time.Duration, err error) {
	begin := time.Now()
	err = m.Do(context.Background(), c, func() error {
		at = append(at, time.Since(begin))
		if n := len(at) - 1; n < len(kinds) {
			return mqerr.New(kinds[n], "try %d", n)
		}
		return nil
	})
	return at, err
}

func forever(k mqerr.Kind) []mqerr.Kind {
	all := make([]mqerr.Kind, 1000)
	for i := range all {
		all[i] = k
	}
	return all
}

// TestKinds: what surely was not written is tried again, what may have been only where that does no harm, and nothing else.
func TestKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &shards{up: true}
		m := New(Options{Brokers: b})
		for _, k := range mqerr.Kinds() {
			for _, repeat := range []bool{false, true} {
				var again bool
				switch k {
				case mqerr.NotLeader, mqerr.Fenced, mqerr.Draining, mqerr.Unavailable, mqerr.NotEnoughReplicas:
					again = true
				case mqerr.UnknownOutcome:
					again = repeat
				}
				at, err := tries(m, Call{Repeat: repeat}, k)
				if again {
					require.NoError(t, err, k)
					require.Len(t, at, 2, k)
				} else {
					require.True(t, mqerr.Is(err, k), "%v: %v", k, err)
					require.Len(t, at, 1, k)
				}
			}
		}
		s, known := m.Stats()
		require.True(t, known)
		require.Zero(t, s.Waiting)
		require.Equal(t, map[string]int64{"not_leader": 2, "fenced": 2, "draining": 2, "unavailable": 2, "not_enough_replicas": 2, "unknown_outcome": 1}, s.Again)
	})
}

// TestDoubt: once a try may have been written, no later refusal says that nothing was.
func TestDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{Brokers: &shards{up: true}, Wait: time.Second})
		for _, last := range []mqerr.Kind{mqerr.Timeout, mqerr.Exhausted, mqerr.DiskFull} {
			_, err := tries(m, Call{Repeat: true}, mqerr.UnknownOutcome, last)
			require.True(t, mqerr.Is(err, mqerr.UnknownOutcome), "%v: %v", last, err)
		}
		_, err := tries(m, Call{Repeat: true}, append([]mqerr.Kind{mqerr.UnknownOutcome}, forever(mqerr.NotLeader)...)...)
		require.True(t, mqerr.Is(err, mqerr.UnknownOutcome), "%v", err)
		_, err = tries(m, Call{Repeat: true}, mqerr.UnknownOutcome, mqerr.HandleInvalid)
		require.True(t, mqerr.Is(err, mqerr.HandleInvalid), "%v", err)
	})
}

// TestWakes: a call that waits for a broker is made as soon as there is one, once.
func TestWakes(t *testing.T) {
	for name, wake := range map[string]func(*Masters){"changed": func(m *Masters) { m.Changed(7) }, "look": (*Masters).Look} {
		synctest.Test(t, func(t *testing.T) {
			b := &shards{}
			m := New(Options{Brokers: b})
			m.Look()
			go func() {
				time.Sleep(1234 * time.Millisecond)
				m.Changed(8)
				b.set(true)
				wake(m)
				wake(m)
			}()
			at, err := tries(m, Call{Shard: 7, Deadline: time.Now().Add(5 * time.Second)}, mqerr.Unavailable)
			require.NoError(t, err)
			require.Equal(t, []time.Duration{0, 1234 * time.Millisecond}, at, name)
		})
	}
}

// TestTime: a call waits no longer than it may, and is answered before its caller has gone.
func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{Brokers: &shards{}, Wait: 10 * time.Second})
		for name, c := range map[string]struct {
			left, wait, want time.Duration
		}{
			"no deadline":        {0, 0, 10 * time.Second},
			"deadline":           {3 * time.Second, 0, 2900 * time.Millisecond},
			"short":              {100 * time.Millisecond, 0, 90 * time.Millisecond},
			"far deadline":       {time.Minute, 0, 10 * time.Second},
			"a bound of its own": {time.Minute, time.Second, time.Second},
			"over":               {-time.Second, 0, 0},
		} {
			begin := time.Now()
			call := Call{Wait: c.wait}
			if c.left != 0 {
				call.Deadline = begin.Add(c.left)
			}
			at, err := tries(m, call, forever(mqerr.Unavailable)...)
			require.True(t, mqerr.Is(err, mqerr.Unavailable), "%s: %v", name, err)
			require.Equal(t, c.want, time.Since(begin), name)
			require.Len(t, at, 1, name)
		}
		s, _ := m.Stats()
		require.EqualValues(t, 6, s.GaveUp)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		err := m.Do(ctx, Call{}, func() error { return mqerr.New(mqerr.NotLeader, "no") })
		require.True(t, mqerr.Is(err, mqerr.NotLeader), "%v", err)
		require.LessOrEqual(t, time.Since(begin), time.Second)
	})
}

// TestPauses: a broker that is there and refuses is asked less and less often.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{Brokers: &shards{up: true}, Wait: 3 * time.Second})
		at, err := tries(m, Call{}, forever(mqerr.Draining)...)
		require.True(t, mqerr.Is(err, mqerr.Draining), "%v", err)
		require.Equal(t, 10*time.Millisecond, at[1])
		require.Equal(t, 30*time.Millisecond, at[2])
		require.Less(t, len(at), 15)
		require.Less(t, at[len(at)-1], 3*time.Second)
	})
}

// TestNil: without Masters nothing is tried twice.
func TestNil(t *testing.T) {
	var m *Masters
	at, err := tries(m, Call{Repeat: true}, mqerr.Unavailable)
	require.True(t, mqerr.Is(err, mqerr.Unavailable), "%v", err)
	require.Len(t, at, 1)
	m.Changed(1)
	m.Look()
	require.Zero(t, m.Wait())
	_, known := m.Stats()
	require.False(t, known)
}
