package pop

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/perigee-mq/perigee/store/record"
)

// behind makes a table with an ordered queue in which the message groups 0..stuck-1 of all are stuck with
// their first message, and n messages behind each other were looked at.
func behind(tb testing.TB, n, all, stuck int) (*Table, Options) {
	group := func(off int64) uint64 { return uint64(off) % uint64(all) }
	o := Options{
		Ordered: func(record.GroupID) bool { return true },
		Groups: func(_ Key, off record.QueueOffset, dst []uint64) (int, error) {
			for i := range dst {
				dst[i] = group(int64(off) + int64(i))
			}
			return len(dst), nil
		},
	}
	t := New(o)
	k := Key{Group: 1, Topic: 1}
	t.Start(k, 0)
	take := func(record.QueueOffset) Verdict { return Take }
	var items []record.PopItem
	limit := all // the first lease has one message of each group
	for pos, next := record.Pos(8), record.QueueOffset(0); int64(next) < int64(n); pos += 8 {
		var err error
		items, next, err = t.PlanOrdered(k, record.QueueOffset(n), limit, 4096, take, items[:0])
		limit = 1024
		if err != nil {
			tb.Fatal(err)
		}
		ck := record.PopCk{Topic: 1, Group: 1, Until: 1 << 40, Ordered: true, Sections: []record.PopSection{{Items: items, Next: next}}}
		if err := t.ApplyLease(pos, &ck); err != nil {
			tb.Fatal(err)
		}
		ack := record.PopAck{Sections: []record.AckSection{{Topic: 1, Group: 1}}}
		for _, it := range items {
			if int(group(int64(it.Offset))) >= stuck {
				ack.Sections[0].Offsets = append(ack.Sections[0].Offsets, it.Offset)
			}
		}
		if err := t.ApplyAck(&ack); err != nil {
			tb.Fatal(err)
		}
	}
	return t, o
}

// TestMemoryBehindStuckGroups: messages that were passed over cost one or two bytes each, in memory as in a
// checkpoint, and next to nothing if they follow each other. A checkpoint is loaded without reading what they
// are, and what may go out when a group becomes free is found at once.
func TestMemoryBehindStuckGroups(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	n := 2 * million / raceSlows
	const fixed = 4 << 20 // memory that does not grow with what waits
	for _, c := range []struct {
		name       string
		all, stuck int
		per        float64 // bytes a message that was passed over
	}{{"one group", 1, 1, 0.01}, {"one of two", 2, 1, 1.3}, {"half of a thousand", 1000, 500, 2.4}, {"one of twenty thousand", 20_000, 1, 20}} {
		before, began := liveBytes(), time.Now()
		tab, o := behind(t, n, c.all, c.stuck)
		size, took := liveBytes()-before, time.Since(began)
		k := Key{Group: 1, Topic: 1}
		s := tab.Stats(k)
		each := (n + c.all - 1) / c.all // of the groups that are stuck
		passed := int64(each-1) * int64(c.stuck)
		if s.Waiting != passed || s.Ready != 0 || s.InFlight != int64(c.stuck) {
			t.Errorf("%s: %+v, want %d waiting", c.name, s, passed)
		}
		state := tab.Encode(nil)
		t.Logf("%s: %.2f bytes a message, %.2f in a checkpoint, %v for %d", c.name, float64(size)/float64(passed), float64(len(state))/float64(passed), took, n)
		if bound := int64(c.per*float64(passed)) + fixed; size > bound || int64(len(state)) > bound-fixed+4096 {
			t.Errorf("%s: %d bytes, %d in a checkpoint for %d messages", c.name, size, len(state), passed)
		}
		o.Groups = func(Key, record.QueueOffset, []uint64) (int, error) {
			t.Fatalf("%s: decoding reads message groups", c.name)
			return 0, nil
		}
		again := New(o)
		if err := again.Decode(state); err != nil {
			t.Fatal(err)
		}
		again.Advance(1<<40, nil)
		items, next, err := again.PlanOrdered(k, s.Next, 32, 100, func(record.QueueOffset) Verdict { return Take }, nil)
		if err != nil || len(items) != min(32, each*c.stuck) || next != s.Next {
			t.Errorf("%s: %d messages, next %d, %v", c.name, len(items), next, err)
		}
		runtime.KeepAlive(tab)
	}
}

// BenchmarkPassOver looks at a million messages behind a stuck one.
func BenchmarkPassOver(b *testing.B) {
	for b.Loop() {
		behind(b, million, 10, 1)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million, "ns/message")
}
