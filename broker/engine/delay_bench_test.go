package engine

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store"
)

var timerCount = flag.Int("timers", 100_000, "messages of BenchmarkTimers")

// BenchmarkTimers stores messages due in one second, spread over it, and tells how late they are delivered
// (p50, p99) and how long a restart takes while they wait.
//
//	go test ./broker/engine -run xxx -bench Timers -benchtime 1x -timers 1000000
func BenchmarkTimers(b *testing.B) {
	n := *timerCount
	for b.Loop() {
		runTimers(b, n)
	}
}

func runTimers(b *testing.B, n int) {
	const perSend = 500
	dir := b.TempDir()
	open := func(epoch uint64) (*Engine, *store.Store, time.Duration) {
		began := time.Now()
		st, err := store.Open(store.Options{FS: vfs.OS, Dir: dir, SegmentBytes: 256 << 20})
		if err != nil {
			b.Fatal(err)
		}
		e, err := Open(Options{Store: st, Async: true})
		if err == nil {
			err = e.Start(Identity{Epoch: e.views.epoch + 1, Incarnation: epoch})
		}
		if err != nil {
			b.Fatal(err)
		}
		return e, st, time.Since(began)
	}
	e, st, _ := open(1)
	defs := &Definitions{Topics: []topic.Definition{{ID: 1, Name: "t", Queues: 8, Version: 1}}, Full: true, Version: 1}
	if err := e.Define(context.Background(), defs); err != nil {
		b.Fatal(err)
	}
	due := time.Now().Add(time.Duration(n)*30*time.Microsecond + 5*time.Second).UnixMilli()
	proxy, err := e.Attach("bench", brokerapi.Events{})
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	body := make([]byte, 64)
	for at := 0; at < n; at += perSend {
		req := &brokerapi.SendRequest{Topic: 1}
		for i := range perSend {
			req.Messages = append(req.Messages, brokerapi.Message{
				Queue: brokerapi.AnyQueue, Type: brokerapi.Delay, DeliverAt: due + int64(at+i)*7919%int64(n)*1000/int64(n), ID: fmt.Appendf(nil, "id-%d", at+i), Body: body,
			})
		}
		slots <- struct{}{}
		wg.Add(1)
		proxy.Send(req, func(_ *brokerapi.SendReply, err error) {
			if err != nil {
				b.Error(err)
			}
			<-slots
			wg.Done()
		})
	}
	wg.Wait()
	b.ReportMetric(float64(due-time.Now().UnixMilli()), "ms-to-spare")
	if _, err := e.Close(); err != nil {
		b.Fatal(err)
	}
	_ = st.Close()
	e, st, took := open(2)
	b.ReportMetric(float64(took.Milliseconds()), "ms/restart")
	if left := due - time.Now().UnixMilli(); left < 0 {
		b.Logf("storing took %d ms too long: the first were late before the clock ran", -left)
	}
	sizes, err := e.Views(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	waiting := sizes.Timers + int(e.counts.Delivered.Load())
	got := int64(n - waiting) // delivered before the restart
	late := make([]int64, got, n)
	for got < int64(n) {
		before := int64(n-waiting) + e.counts.Delivered.Load()
		now := time.Now().UnixMilli()
		// What was delivered since the last look is at most as late as the oldest that was due then.
		for i := got; i < before; i++ {
			late = append(late, now-(due+i*1000/int64(n)))
		}
		got = before
		<-time.After(time.Millisecond)
	}
	slices.Sort(late)
	b.ReportMetric(float64(late[len(late)/2]), "ms-late-p50")
	b.ReportMetric(float64(late[len(late)*99/100]), "ms-late-p99")
	b.ReportMetric(float64(e.counts.LateMaxMS.Load()), "ms-late-max")
	if _, err := e.Close(); err != nil {
		b.Fatal(err)
	}
	_ = st.Close()
}
