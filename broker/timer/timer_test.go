package timer

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// TestRefused: records that do not fit what waits are damage.
func TestRefused(t *testing.T) {
	tab := New()
	require.NoError(t, tab.Add(1, Entry{Due: 10, Pos: 80, Size: 8, Queue: 2}, 5))
	require.NoError(t, tab.Add(1, Entry{Due: 20, Pos: 160, Size: 8, Queue: AnyQueue}, 5))
	deliver := func(topic record.TopicID, now int64, p ...record.Place) error {
		return tab.ApplyDeliver(&record.Deliver{Topic: topic, Items: p}, now)
	}
	first := record.Place{Queue: 2, Ref: 80, Size: 8}
	for name, err := range map[string]error{
		"the same again": tab.Add(1, Entry{Due: 10, Pos: 80, Size: 8, Queue: 2}, 5),
		"bad queue":      tab.Add(1, Entry{Due: 10, Pos: 88, Queue: -2}, 5),
		"bad time":       tab.Add(1, Entry{Due: -1, Pos: 88}, 5),
		"early":          deliver(1, 9, first),
		"other topic":    deliver(2, 10, first),
		"other queue":    deliver(1, 10, record.Place{Queue: 1, Ref: 80, Size: 8}),
		"other size":     deliver(1, 10, record.Place{Queue: 2, Ref: 80, Size: 16}),
		"not the first":  deliver(1, 30, record.Place{Queue: 0, Ref: 160, Size: 8}),
		"unknown recall": tab.ApplyRecall(&record.Recall{Topic: 1, Items: []record.Recalled{{Ref: 80, DeliverAt: 11}}}, 5),
		"no topic":       tab.ApplyRecall(&record.Recall{Topic: 3, Items: []record.Recalled{{Ref: 80, DeliverAt: 10}}}, 5),
	} {
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "%s: %v", name, err)
	}
	require.NoError(t, deliver(1, 10, first))
	require.NoError(t, deliver(1, 20, record.Place{Queue: 3, Ref: 160, Size: 8}))
	require.True(t, mqerr.Is(deliver(1, 20, first), mqerr.Corrupt))
	require.Zero(t, tab.Len())
	require.Empty(t, tab.Encode(nil), "a topic where nothing waits leaves nothing")
}

func entry(i int, due int64) Entry {
	return Entry{Due: due, Pos: record.Pos(i) * 1024, Size: 1024, Queue: AnyQueue, TagHash: uint64(i), GroupHash: uint64(i)}
}

// TestMemory: an entry takes at most 64 bytes, in whatever order the messages come and after most of them
// were recalled. The bound holds for ten million as for a million: leaves and their list only grow in number.
func TestMemory(t *testing.T) {
	const n = 200_000
	for name, due := range map[string]func(r *rand.Rand, i int) int64{
		"random":         func(r *rand.Rand, _ int) int64 { return r.Int64N(40 * 24 * 3600 * 1000) },
		"same delay":     func(_ *rand.Rand, i int) int64 { return int64(i) },
		"latest first":   func(_ *rand.Rand, i int) int64 { return int64(n - i) },
		"eighteen level": func(r *rand.Rand, i int) int64 { return int64(i) + 60_000*r.Int64N(18) },
	} {
		r := rand.New(rand.NewPCG(1, 2))
		before := heapBytes()
		tab := New()
		dues := make([]int64, n)
		for i := range n {
			dues[i] = due(r, i)
			require.NoError(t, tab.Add(7, entry(i, dues[i]), 0))
		}
		per := float64(heapBytes()-before-8*n) / n
		t.Logf("%s: %.1f bytes per timer", name, per)
		if per > 64 {
			t.Errorf("%s: %.1f bytes per timer, the bound is 64", name, per)
		}
		for i := range n { // nine of ten are recalled and, with time, forgotten
			if i%10 != 0 {
				require.NoError(t, tab.ApplyRecall(&record.Recall{Topic: 7, Items: []record.Recalled{{Ref: entry(i, 0).Pos, DeliverAt: dues[i]}}}, 1<<60))
			}
		}
		per = float64(heapBytes()-before-8*n) / float64(tab.Len()+tab.Recalled())
		t.Logf("%s: %.1f bytes per timer of those that are left", name, per)
		if per > 64 {
			t.Errorf("%s: %.1f bytes per timer after most were recalled, the bound is 64", name, per)
		}
		runtime.KeepAlive(tab)
		runtime.KeepAlive(dues)
	}
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// FuzzDecode: no bytes make Decode panic, and what it takes is what Encode writes.
func FuzzDecode(f *testing.F) {
	tab := New()
	for i := range 3 {
		_ = tab.Add(record.TopicID(1+i%2), entry(i, int64(100-i)), 0)
	}
	_ = tab.ApplyRecall(&record.Recall{Topic: 1, Items: []record.Recalled{{Ref: 0, DeliverAt: 100}}}, 1)
	f.Add(tab.Encode(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		tab := New()
		if err := tab.Decode(b); err != nil {
			if !mqerr.Is(err, mqerr.Corrupt) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		require.Equal(t, string(b), string(tab.Encode(nil)))
	})
}

// BenchmarkTable takes ten million timers in, saves them, and delivers them.
func BenchmarkTable(b *testing.B) {
	const n = 10_000_000
	for b.Loop() {
		r := rand.New(rand.NewPCG(1, 2))
		before := heapBytes()
		tab := New()
		at := b.Elapsed()
		for i := range n {
			if err := tab.Add(7, entry(i, r.Int64N(40*24*3600*1000)), 0); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64((b.Elapsed()-at).Nanoseconds())/n, "ns/add")
		b.ReportMetric(float64(heapBytes()-before)/n, "B/timer")
		at = b.Elapsed()
		parts := tab.Share()
		b.ReportMetric(float64((b.Elapsed() - at).Microseconds()), "µs/share")
		at = b.Elapsed()
		if err := tab.Add(7, entry(n, 1), 0); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64((b.Elapsed() - at).Microseconds()), "µs/add-shared")
		var all []byte
		for _, p := range parts {
			all = append(all, p...)
		}
		at = b.Elapsed()
		if err := New().Decode(all); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64((b.Elapsed() - at).Milliseconds()), "ms/decode")
		at = b.Elapsed()
		var due []Entry
		for tab.Len() > 0 {
			due = tab.Due(7, 1<<60, 4096, due[:0])
			d := record.Deliver{Topic: 7}
			for _, e := range due {
				d.Items = append(d.Items, record.Place{Ref: e.Pos, Size: e.Size, TagHash: e.TagHash, GroupHash: e.GroupHash})
			}
			if err := tab.ApplyDeliver(&d, 1<<60); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64((b.Elapsed()-at).Nanoseconds())/n, "ns/deliver")
	}
}
