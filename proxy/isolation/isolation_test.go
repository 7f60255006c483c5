package isolation

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// load sends to each of some groups in turn, where it may, as a proxy does.
type load struct {
	t      *testing.T
	table  *Table
	now    time.Time
	took   map[brokerapi.ShardID]time.Duration
	fails  map[brokerapi.ShardID]bool
	went   map[brokerapi.ShardID]int
	events []string
}

func newLoad(t *testing.T, o Options, took map[brokerapi.ShardID]time.Duration) *load {
	l := &load{t: t, now: time.Unix(1000, 0), took: took, fails: map[brokerapi.ShardID]bool{}}
	o.Changed = func(id brokerapi.ShardID, isolated bool, _ time.Duration) {
		l.events = append(l.events, fmt.Sprint(id, isolated))
	}
	l.table = New(o)
	return l
}

// run makes n sends, 10 ms apart, each to its home or, if that is avoided, to the others.
func (l *load) run(n int) {
	l.went, l.events = map[brokerapi.ShardID]int{}, nil
	for i := range n {
		l.now = l.now.Add(10 * time.Millisecond)
		shards := len(l.took)
		for j := range shards {
			id := brokerapi.ShardID(1 + (i+j)%shards)
			if j < shards-1 && l.table.Avoid(id, l.now) {
				continue
			}
			l.went[id]++
			l.table.Sent(id, l.now, l.took[id], l.fails[id])
			break
		}
	}
}

const fast, slow = 2 * time.Millisecond, time.Second

// TestSlow: a group that becomes slow is left alone but for a few sends, fewer and fewer, and taken back when it is fast again.
func TestSlow(t *testing.T) {
	l := newLoad(t, Options{}, map[brokerapi.ShardID]time.Duration{1: fast, 2: fast, 3: fast})
	l.run(300)
	require.Empty(t, l.events)
	require.Equal(t, map[brokerapi.ShardID]int{1: 100, 2: 100, 3: 100}, l.went)

	l.took[2] = slow
	l.run(60)
	require.Equal(t, []string{"2 true"}, l.events)
	l.run(3000) // 30 s: pauses of 1, 2, 4, 8, 16 s
	require.Empty(t, l.events)
	require.LessOrEqual(t, l.went[2], 5)
	require.Positive(t, l.went[2])
	s, known := l.table.Stats()
	require.True(t, known)
	require.Equal(t, Stats{Isolated: map[brokerapi.ShardID]bool{1: false, 2: true, 3: false}, Times: 1}, s)

	l.took[2] = fast
	l.run(3500)
	require.Equal(t, []string{"2 false"}, l.events)
	l.run(300)
	require.Equal(t, 100, l.went[2])
}

// TestFailing: the same for a group whose sends fail, however fast.
func TestFailing(t *testing.T) {
	l := newLoad(t, Options{}, map[brokerapi.ShardID]time.Duration{1: fast, 2: fast})
	l.run(100)
	l.fails[1] = true
	l.run(40)
	require.Equal(t, []string{"1 true"}, l.events)
	l.fails[1] = false
	l.run(400)
	require.Equal(t, []string{"1 false"}, l.events)
}

// TestNotAll: a group is judged against the others: when all are slow or failing, or there is one only, none is isolated.
func TestNotAll(t *testing.T) {
	for name, change := range map[string]func(l *load){
		"all slow":       func(l *load) { l.took[1], l.took[2] = slow, slow },
		"all failing":    func(l *load) { l.fails[1], l.fails[2] = true, true },
		"a bit slower":   func(l *load) { l.took[1] = 400 * time.Millisecond },
		"not five times": func(l *load) { l.took[1], l.took[2] = 900*time.Millisecond, 200*time.Millisecond },
	} {
		l := newLoad(t, Options{}, map[brokerapi.ShardID]time.Duration{1: fast, 2: fast})
		change(l)
		l.run(500)
		require.Empty(t, l.events, name)
		require.Equal(t, 250, l.went[1], name)
	}
	l := newLoad(t, Options{}, map[brokerapi.ShardID]time.Duration{1: slow})
	l.run(100)
	require.Empty(t, l.events)
}

// TestOneMistake: a few slow sends do nothing.
func TestOneMistake(t *testing.T) {
	l := newLoad(t, Options{}, map[brokerapi.ShardID]time.Duration{1: fast, 2: fast})
	l.run(100)
	l.took[1] = slow
	l.run(8)
	l.took[1] = fast
	l.run(100)
	require.Empty(t, l.events)
}

// TestForget: a group that is no more is no measure for others.
func TestForget(t *testing.T) {
	l := newLoad(t, Options{}, map[brokerapi.ShardID]time.Duration{1: fast, 2: slow})
	l.run(20)
	l.table.Forget([]brokerapi.ShardID{2})
	s, _ := l.table.Stats()
	require.Len(t, s.Isolated, 1)
	for range 100 {
		l.table.Sent(2, l.now, slow, false)
	}
	require.Empty(t, l.events)
}

// TestOff: a nil table isolates none.
func TestOff(t *testing.T) {
	table := New(Options{Slow: -1})
	require.Nil(t, table)
	table.Sent(1, time.Now(), time.Hour, true)
	require.False(t, table.Avoid(1, time.Now()))
	table.Forget(nil)
	_, known := table.Stats()
	require.False(t, known)
}
