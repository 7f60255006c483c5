package clients

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type stream struct{ n int }

func (*stream) Send([]byte) error { return nil }

var start = time.Unix(1_000_000, 0)

func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

func TestSettingsAreRemembered(t *testing.T) {
	table := New(Options{}, start)
	_, ok := table.Settings("c")
	require.False(t, ok)
	table.Beat("c", true, start)
	_, ok = table.Settings("c")
	require.False(t, ok, "a heartbeat is no settings")
	table.Put("c", Settings{Type: SimpleConsumer, Group: "g"}, &stream{}, start)
	table.Put("c", Settings{Type: Producer}, &stream{}, start)
	got, ok := table.Settings("c")
	require.True(t, ok)
	require.Equal(t, Settings{Type: Producer}, got)
	table.Drop("c")
	_, ok = table.Settings("c")
	require.False(t, ok)
}

func TestStreamsNewestFirst(t *testing.T) {
	table := New(Options{}, start)
	a, b := &stream{1}, &stream{2}
	table.Put("c", Settings{}, a, start)
	table.Put("c", Settings{}, b, start)
	require.Equal(t, []Stream{b, a}, table.Streams("c"))
	table.Put("c", Settings{}, a, start) // sent settings again: it is the newest now, and there once
	require.Equal(t, []Stream{a, b}, table.Streams("c"))
	table.Leave("c", a)
	require.Equal(t, []Stream{b}, table.Streams("c"))
	table.Leave("c", a)
	table.Leave("nobody", a)
	for i := range 100 {
		table.Put("c", Settings{}, &stream{i}, start)
	}
	require.Len(t, table.Streams("c"), streamsMax)
	require.Equal(t, &stream{99}, table.Streams("c")[0])
}

func TestSilentClientsAreForgotten(t *testing.T) {
	table := New(Options{}, start)
	table.Put("silent", Settings{}, &stream{}, at(0))
	table.Put("beats", Settings{}, &stream{}, at(0))
	table.Beat("beats", false, at(60))
	table.Expire(at(119.9))
	require.Equal(t, 2, table.Len())
	table.Expire(at(120))
	require.Equal(t, 1, table.Len())
	table.Heard("silent", at(130)) // a sign of life makes no record
	require.Equal(t, 1, table.Len())
	table.Heard("beats", at(170))
	table.Heard("beats", at(150)) // late news change nothing
	table.Expire(at(280))
	require.Equal(t, 1, table.Len())
	table.Expire(at(291))
	require.Zero(t, table.Len())
}

func TestTableIsBounded(t *testing.T) {
	table := New(Options{MaxClients: 8}, start)
	for i := range 8 {
		table.Beat(fmt.Sprint(i), false, at(float64(8-i)))
	}
	table.Beat("new", false, at(9))
	require.Equal(t, 8, table.Len())
	require.EqualValues(t, 1, table.PushedOut())
	table.mu.RLock()
	defer table.mu.RUnlock()
	require.NotContains(t, table.clients, "7", "the most silent one makes room")
}

// TestWhoIsReported: those whose leases may last as long as they live, and nobody else.
func TestWhoIsReported(t *testing.T) {
	table := New(Options{}, start)
	table.Put("simple", Settings{Type: SimpleConsumer}, &stream{}, at(1))
	table.Put("producer", Settings{Type: Producer}, &stream{}, at(1))
	table.Put("push", Settings{Type: PushConsumer}, &stream{}, at(1))
	table.Put("both", Settings{Type: SimpleConsumer}, &stream{}, at(1))
	table.Renews("both", at(1))
	table.Renews("bare", at(1))
	table.Beat("moved", true, at(1))
	table.Beat("moved producer", false, at(1))
	table.Beat("simple", true, at(1))
	require.ElementsMatch(t, []string{"push", "both", "bare", "moved"}, table.Alive(at(1)))
	table.Heard("push", at(4))
	require.Equal(t, []string{"push"}, table.Alive(at(2)))
	table.Renews("bare", at(5))
	require.ElementsMatch(t, []string{"push", "bare"}, table.Alive(at(4)))
}

// fakeBroker notes who is reported to it.
type fakeBroker struct {
	brokerapi.Broker
	mu      sync.Mutex
	err     error
	reports [][]string
	ended   []string
}

func (b *fakeBroker) Alive(_ context.Context, clients []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.reports = append(b.reports, slices.Sorted(slices.Values(clients)))
	}
	return b.err
}

func (b *fakeBroker) EndSession(_ context.Context, client string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = append(b.ended, client)
	return b.err
}

func (b *fakeBroker) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *fakeBroker) seen() [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.reports
	b.reports = nil
	return got
}

type fakeBrokers map[brokerapi.ShardID]*fakeBroker

func (m fakeBrokers) Broker(s brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	if b, ok := m[s]; ok {
		return b, 1, nil
	}
	return nil, 0, errors.New("no such shard")
}

func TestRunReportsTheLivingOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		brokers := fakeBrokers{1: {}, 2: {}}
		table := New(Options{}, time.Now())
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = table.Run(ctx, Report{Brokers: brokers, Shards: func() []brokerapi.ShardID { return []brokerapi.ShardID{1, 2, 3} }})
		})
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		wait(time.Second)
		table.Renews("a", time.Now())
		table.Renews("b", time.Now())
		wait(5 * time.Second)
		require.Equal(t, [][]string{{"a", "b"}}, brokers[1].seen())
		require.Equal(t, [][]string{{"a", "b"}}, brokers[2].seen())
		wait(10 * time.Second) // nobody speaks: nothing is sent
		require.Empty(t, brokers[1].seen())

		brokers[1].fail(errors.New("down"))
		table.Heard("a", time.Now())
		wait(5 * time.Second)
		require.Empty(t, brokers[1].seen())
		require.Equal(t, [][]string{{"a"}}, brokers[2].seen())
		brokers[1].fail(nil)
		wait(5 * time.Second) // the one that missed it is told
		require.Contains(t, brokers[1].seen()[0], "a")
		require.Empty(t, brokers[2].seen())

		wait(130 * time.Second)
		require.Zero(t, table.Len())
		stop()
		wg.Wait()
	})
}

func TestManyClientsGoInSeveralCalls(t *testing.T) {
	brokers := fakeBrokers{1: {}}
	ids := make([]string, 2500)
	for i := range ids {
		ids[i] = fmt.Sprintf("%04d", i)
	}
	require.NoError(t, report(t.Context(), brokers, 1, ids))
	got := brokers[1].seen()
	require.Len(t, got, 3)
	require.Equal(t, ids, slices.Concat(got...))
}

func TestGoodbyeGoesToAllShards(t *testing.T) {
	brokers := fakeBrokers{1: {}, 2: {}}
	Goodbye(t.Context(), brokers, []brokerapi.ShardID{1, 2, 3}, "c")
	require.Equal(t, []string{"c"}, brokers[1].ended)
	require.Equal(t, []string{"c"}, brokers[2].ended)
}

// TestConcurrentUse is for the race detector.
func TestConcurrentUse(t *testing.T) {
	table := New(Options{MaxClients: 10}, start)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 500 {
				id := fmt.Sprint((i + n) % 20)
				s := &stream{n}
				table.Put(id, Settings{Type: PushConsumer}, s, at(float64(n)))
				table.Heard(id, at(float64(n)))
				table.Renews(id, at(float64(n)))
				table.Beat(id, true, at(float64(n)))
				table.Settings(id)
				table.Streams(id)
				table.Leave(id, s)
				table.Alive(at(float64(n)))
				table.Expire(at(float64(n)))
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, table.Len(), 10)
}

func TestMixedSubscriptions(t *testing.T) {
	now := time.Now()
	table := New(Options{}, now)
	put := func(id, group string, subscription uint64, language int32) {
		table.Put(id, Settings{Type: PushConsumer, Group: group, Subscription: subscription, Language: language}, nil, now)
	}
	put("1", "same", 5, 1)
	put("2", "same", 5, 2)
	put("3", "other", 6, 1)
	put("4", "simple", 0, 1)
	put("5", "simple", 7, 1)
	if got := table.Mixed(10); len(got) != 0 {
		t.Errorf("mixed: %v", got)
	}
	put("6", "same", 8, 1)
	put("7", "other", 9, 1)
	if got := table.Mixed(10); !slices.Equal(got, []string{"other", "same"}) {
		t.Errorf("mixed: %v", got)
	}
	if got := table.Mixed(1); len(got) != 1 {
		t.Errorf("at most one: %v", got)
	}
	if got := table.Kinds(); got[Who{PushConsumer, 2}] != 1 || got[Who{PushConsumer, 1}] != 6 {
		t.Errorf("kinds: %v", got)
	}
}
