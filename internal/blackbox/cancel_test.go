package blackbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/testseed"
)

// TestReceiveCancelledBefore: a receive that is over before it begins leases nothing.
func TestReceiveCancelledBefore(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	p.put(20)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		p.receive(ctx, c, nil).is(t, "Canceled")
	}
	past, done := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer done()
	p.receive(past, c, nil).is(t, "DeadlineExceeded")
	if s := p.state(t.Context()); s.GetReady() != 20 || s.GetInFlight() != 0 {
		t.Errorf("ready %d, in flight %d", s.GetReady(), s.GetInFlight())
	}
	p.firstTime(20)
}

// firstTime takes and acknowledges n messages, all of which must come at once and for the first time.
func (p *place) firstTime(n int) {
	p.t.Helper()
	began := time.Now()
	got := p.take(n)
	for _, m := range got {
		if a := m.GetSystemProperties().GetDeliveryAttempt(); a != 1 {
			p.t.Errorf("a message that reached nobody comes with attempt %d", a)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		p.t.Errorf("messages that reached nobody came after %v", took)
	}
	p.finishAll(got)
}

// TestReceiveCancelledWhileWaiting: receives that wait and go away take nothing with them.
func TestReceiveCancelledWhileWaiting(t *testing.T) {
	t.Parallel()
	d := ownDev(t)
	c := connect(t, d.grpc)
	p := newPlace(t, c)
	long := func(r *rmqv2.ReceiveMessageRequest) { r.LongPollingTimeout = durationpb.New(20 * time.Second) }
	for round := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { p.receive(ctx, c, long).is(t, "Canceled") })
		}
		until(t, 5*time.Second, func(context.Context) bool { return d.metric(t, "perigee_proxy_receives_waiting") == 50 })
		cancel()
		wg.Wait()
		until(t, 5*time.Second, func(context.Context) bool { return d.metric(t, "perigee_proxy_receives_waiting") == 0 })
		p.put(50 + round)
		p.firstTime(50 + round)
	}
	// The same with connections that break.
	var gone []*client
	for range 20 {
		one := connect(t, d.grpc)
		gone = append(gone, one)
		req := receiveRequest(p.topic, p.group)
		long(req)
		b, err := proto.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one.open(t.Context(), "ReceiveMessage", b); err != nil {
			t.Fatal(err)
		}
	}
	until(t, 5*time.Second, func(context.Context) bool { return d.metric(t, "perigee_proxy_receives_waiting") == 20 })
	for _, one := range gone {
		_ = one.conn.Close()
	}
	until(t, 5*time.Second, func(context.Context) bool { return d.metric(t, "perigee_proxy_receives_waiting") == 0 })
	p.put(20)
	p.firstTime(20)
}

// TestReceiveCancelledAnywhere cancels receives at any time. Whatever stage that hits, every message
// comes again until it is acknowledged, and its attempts never go back.
//
//fault:client receives are cancelled at any moment => each message comes again until it is acknowledged, and its attempts never go back
func TestReceiveCancelledAnywhere(t *testing.T) {
	t.Parallel()
	seed := testseed.First(t)
	d := sharedDev(t)
	c := connect(t, d.grpc)
	p := newPlace(t, c)
	const messages = 400
	var wg sync.WaitGroup
	sending, stop := context.WithCancel(t.Context())
	for i := range 8 {
		one := connect(t, d.grpc)
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for n := 0; sending.Err() == nil; n++ {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				timer := time.AfterFunc(time.Duration(rng.Int64N(int64(6*time.Millisecond))), cancel)
				a := p.receive(ctx, one, func(r *rmqv2.ReceiveMessageRequest) {
					r.BatchSize = int32(1 + rng.IntN(32))
					if rng.IntN(3) == 0 {
						r.AttemptId = new(fmt.Sprint(i, n))
					}
				})
				a.is(t, "OK|Canceled|MESSAGE_NOT_FOUND")
				timer.Stop()
				cancel()
				if a.name() == "OK" && rng.IntN(2) == 0 {
					p.ack(t.Context(), one, a.messages).is(t, "OK")
				}
			}
		})
	}
	for i := range messages {
		p.send(t.Context(), c, p.message(fmt.Sprint("message ", i))).is(t, "OK")
	}
	stop()
	wg.Wait()
	served(t, d)
	// settle does the rest.
}

// TestSendCancelledAnywhere cancels sends at any time. A message is stored once or not at all, and
// those whose sends were answered are.
//
//fault:client sends are cancelled at any moment => each message is stored once or not at all
func TestSendCancelledAnywhere(t *testing.T) {
	t.Parallel()
	seed := testseed.First(t)
	d := sharedDev(t)
	p := newPlace(t, connect(t, d.grpc))
	var wg sync.WaitGroup
	var mu sync.Mutex
	ends := map[string]int{}
	for i := range 8 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			one := connect(t, d.grpc)
			for range 60 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				list := []*rmqv2.Message{p.message("one"), p.message("two")}
				body(1 + rng.IntN(200<<10))(list[0])
				timer := time.AfterFunc(time.Duration(rng.Int64N(int64(8*time.Millisecond))), cancel)
				a := p.send(ctx, one, list...)
				a.is(t, "OK|Canceled")
				timer.Stop()
				cancel()
				mu.Lock()
				ends[a.name()]++
				mu.Unlock()
				if rng.IntN(10) == 0 { // the whole connection breaks
					_ = one.conn.Close()
					one = connect(t, d.grpc)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("sends ended: %v", ends)
	served(t, d)
}

// TestAckCancelledAnywhere cancels acks and changes at any time: a message is done or comes again.
//
//fault:client acks are cancelled at any moment => each is done or not, and says so when repeated
func TestAckCancelledAnywhere(t *testing.T) {
	t.Parallel()
	seed := testseed.First(t)
	d := sharedDev(t)
	c := connect(t, d.grpc)
	p := newPlace(t, c)
	p.put(400)
	got := p.hold(c, 400, 10*time.Second)
	var wg sync.WaitGroup
	for i := range 8 {
		one := connect(t, d.grpc)
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for _, m := range got[i*50 : (i+1)*50] {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				timer := time.AfterFunc(time.Duration(rng.Int64N(int64(4*time.Millisecond))), cancel)
				if rng.IntN(3) == 0 {
					h := m.GetSystemProperties().GetReceiptHandle()
					one.do(ctx, "ChangeInvisibleDuration", changeRequest(p.topic, p.group, h, 0)).is(t, "OK|Canceled")
				} else {
					p.ack(ctx, one, []*rmqv2.Message{m}).is(t, "OK|Canceled")
				}
				timer.Stop()
				cancel()
			}
		})
	}
	wg.Wait()
	served(t, d)
}
