package pop

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"testing"

	"github.com/perigee-mq/perigee/store/record"
)

// fill leases n messages in leases of batch, round robin over the queues.
func fill(tb testing.TB, t *Table, n, batch, queues int, session bool) {
	ck := record.PopCk{Topic: 1, Group: 1, Session: session, Sections: []record.PopSection{{Items: make([]record.PopItem, batch)}}}
	if session {
		ck.Client, ck.ClientName = t.NewClientNum(), []byte("client")
	}
	for i := 0; i < n; i += batch {
		lease(tb, t, &ck, i/batch, queues)
		ck.ClientName = nil
	}
}

// lease applies the i-th lease, whose messages are the next of queue i modulo queues.
func lease(tb testing.TB, t *Table, ck *record.PopCk, i, queues int) {
	sec := &ck.Sections[0]
	sec.Queue = record.QueueID(i % queues)
	first := i / queues * len(sec.Items)
	for j := range sec.Items {
		sec.Items[j] = record.PopItem{Offset: record.QueueOffset(first + j), Attempt: 1, Prev: -1}
	}
	ck.Until = 1_700_000_000_000 + 30_000 + int64(i)/100
	if err := t.ApplyLease(record.Pos(i)*64, ck); err != nil {
		tb.Fatal(err)
	}
}

func liveBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// gcCPU is the CPU time that garbage collection has taken so far, in seconds.
func gcCPU() float64 {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/gc/mark/idle:cpu-seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64() - s[1].Value.Float64()
}

// cpu is the CPU time of this process in ns; the machine may have other things to do.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano() + u.Stime.Nano())
}

const million = 1_000_000

// BenchmarkChurn leases and acks with a million messages in flight: each operation is one message
// that is leased, and one that is acked.
func BenchmarkChurn(b *testing.B) {
	for _, batch := range []int{1, 8, 32} {
		b.Run(map[int]string{1: "batch1", 8: "batch8", 32: "batch32"}[batch], func(b *testing.B) {
			const queues = 64
			t := New(Options{})
			t.Advance(1_700_000_000_000, nil)
			inFlight := million / batch
			fill(b, t, million, batch, queues, false)
			ck := record.PopCk{Topic: 1, Group: 1, Sections: []record.PopSection{{Items: make([]record.PopItem, batch)}}}
			ack := record.PopAck{Sections: []record.AckSection{{Topic: 1, Group: 1, Offsets: make([]record.QueueOffset, batch)}}}
			b.ResetTimer()
			began := cpu()
			for n := range b.N / batch {
				lease(b, t, &ck, inFlight+n, queues)
				sec := &ack.Sections[0]
				sec.Queue = record.QueueID(n % queues)
				for j := range sec.Offsets {
					sec.Offsets[j] = record.QueueOffset(n/queues*batch + j)
				}
				if err := t.ApplyAck(&ack); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(2*float64(b.N)/(cpu()-began)*1000, "Mops/CPU-s")
		})
	}
}

// BenchmarkAckRandom acks a million messages in random order, one per record.
func BenchmarkAckRandom(b *testing.B) {
	order := rand.New(rand.NewPCG(1, 1)).Perm(million)
	ack := record.PopAck{Sections: []record.AckSection{{Topic: 1, Group: 1, Offsets: make([]record.QueueOffset, 1)}}}
	for b.Loop() {
		b.StopTimer()
		t := New(Options{})
		fill(b, t, million, 1, 64, false)
		b.StartTimer()
		for _, i := range order {
			ack.Sections[0].Queue = record.QueueID(i % 64)
			ack.Sections[0].Offsets[0] = record.QueueOffset(i / 64)
			if err := t.ApplyAck(&ack); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million, "ns/ack")
}

// BenchmarkExpire lets a million leases end.
func BenchmarkExpire(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		t := New(Options{})
		t.Advance(1_700_000_000_000, nil)
		fill(b, t, million, 1, 64, false)
		b.StartTimer()
		for now := int64(1_700_000_000_000); ; now += 20 {
			t.Advance(now, nil)
			if _, more := t.NextDue(); !more {
				break
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million, "ns/lease")
}

// BenchmarkEncode saves and loads a million messages in flight.
func BenchmarkEncode(b *testing.B) {
	t := New(Options{})
	fill(b, t, million, 32, 64, false)
	state := t.Encode(nil)
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			state = t.Encode(state[:0])
		}
		b.ReportMetric(float64(len(state))/million, "B/message")
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if err := New(Options{}).Decode(state); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkMemory measures ten million messages in flight: bytes a message, and CPU per cycle of the
// garbage collector.
func BenchmarkMemory(b *testing.B) {
	const n = 10 * million
	for _, c := range []struct {
		name    string
		batch   int
		session bool
	}{{"batch1", 1, false}, {"batch8", 8, false}, {"batch32", 32, false}, {"session1", 1, true}} {
		b.Run(c.name, func(b *testing.B) {
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			before := liveBytes()
			t := New(Options{})
			fill(b, t, n, c.batch, 64, c.session)
			size := float64(liveBytes()-before) / n
			began := gcCPU()
			const cycles = 5
			for range cycles {
				runtime.GC()
			}
			cpu := gcCPU() - began
			runtime.KeepAlive(t)
			for b.Loop() { // all is measured by now
			}
			b.ReportMetric(size, "B/message")
			b.ReportMetric(cpu*1000/cycles, "ms/GC")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestMemory holds the table to its bounds: 32 bytes for a leased message, 500 for a queue with a
// single one, next to nothing for what is done.
func TestMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	measure := func(build func(*Table)) (*Table, float64) {
		before := liveBytes()
		tab := New(Options{})
		build(tab)
		return tab, float64(liveBytes() - before)
	}
	for _, batch := range []int{1, 8, 32} {
		for _, session := range []bool{false, true} {
			tab, size := measure(func(tab *Table) { fill(t, tab, million, batch, 64, session) })
			t.Logf("batch %d, session %v: %.1f bytes a message", batch, session, size/million)
			if size/million >= 32 {
				t.Errorf("batch %d, session %v: %.1f bytes a message", batch, session, size/million)
			}
			runtime.KeepAlive(tab)
		}
	}
	const queues = 100_000
	tab, size := measure(func(tab *Table) { fill(t, tab, queues, 1, queues, false) })
	t.Logf("one message in each of %d queues: %.0f bytes a queue", queues, size/queues)
	if size/queues > 500 {
		t.Errorf("one message in each of %d queues: %.0f bytes a queue", queues, size/queues)
	}
	runtime.KeepAlive(tab)

	tab, size = measure(func(tab *Table) {
		fill(t, tab, 32, 32, 1, false)
		if err := tab.ApplySkip(&record.Skip{Topic: 1, Group: 1, From: 32, To: 10 * million}); err != nil {
			t.Fatal(err)
		}
		ck := record.PopCk{Topic: 1, Group: 1, Sections: []record.PopSection{{Items: []record.PopItem{{Offset: 10 * million, Attempt: 1, Prev: -1}}}}}
		if err := tab.ApplyLease(8, &ck); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("32 stuck messages, ten million done behind them: %.0f bytes", size)
	if tab.chunks.inUse() > 100 || tab.pages.inUse() > 3 || tab.branches.inUse() > 20 {
		t.Errorf("%d chunks, %d pages, %d branches for two places far apart", tab.chunks.inUse(), tab.pages.inUse(), tab.branches.inUse())
	}
}

// TestMemoryComesBack: what a burst took is free again when it is acked.
func TestMemoryComesBack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := liveBytes()
	tab := New(Options{})
	fill(t, tab, million, 32, 64, false)
	for q := range record.QueueID(64) {
		ack := record.PopAck{Sections: []record.AckSection{{Topic: 1, Group: 1, Queue: q}}}
		for off := range tab.Stats(Key{Group: 1, Topic: 1, Queue: q}).Next {
			ack.Sections[0].Offsets = append(ack.Sections[0].Offsets, off)
		}
		if err := tab.ApplyAck(&ack); err != nil {
			t.Fatal(err)
		}
	}
	if size := liveBytes() - before; size > 2<<20 {
		t.Errorf("%d bytes are held for nothing", size)
	}
	if fault := tab.check(); fault != "" {
		t.Error(fault)
	}
}
