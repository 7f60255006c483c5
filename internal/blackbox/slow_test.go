package blackbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// TestSlowReaders: clients that receive and never read hold up nobody else, and what they did not take
// goes to others with the same attempt number when they go away.
//
//fault:client clients receive and never read => nobody else is held up; what they did not take goes to others with the same attempt number
func TestSlowReaders(t *testing.T) {
	t.Parallel()
	const (
		readers  = 8
		batch    = 32
		messages = readers * batch
		lease    = 15 * time.Second
	)
	d := sharedDev(t)
	c := connect(t, d.grpc)
	p := newPlace(t, c)
	big := strings.Repeat("x", 120<<10) // 32 of them fit into one answer
	for i := 0; i < messages; i += 16 {
		var list []*rmqv2.Message
		for j := range 16 {
			list = append(list, p.message(fmt.Sprintf("%d %s", i+j, big)))
		}
		p.send(t.Context(), c, list...).is(t, "OK")
	}
	// Fixed windows: a client that does not read has room for 64 KiB.
	slow := connect(t, d.grpc, grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	defer leave()
	leased := time.Now()
	for range readers {
		req := receiveRequest(p.topic, p.group)
		invisible(lease)(req)
		b, err := proto.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := slow.open(ctx, "ReceiveMessage", b); err != nil {
			t.Fatal(err)
		}
	}
	until(t, 10*time.Second, func(ctx context.Context) bool { return p.state(ctx).GetInFlight() == messages })
	served(t, d)
	if s := p.state(t.Context()); s.GetInFlight() != messages {
		t.Errorf("%d of %d messages are leased, by readers that do not read", s.GetInFlight(), messages)
	}
	if spent := time.Since(leased); spent > lease-3*time.Second {
		t.Skipf("the machine is too slow for this test: %v before the readers left", spent)
	}
	leave()

	// At most a few messages of each reader are in the transport's hands, and may have reached it.
	const unsure = 4 * readers
	left := time.Now()
	first := p.take(messages - unsure)
	if spent := time.Since(left); spent > 5*time.Second {
		t.Errorf("what was not taken came back after %v", spent)
	}
	for _, m := range first {
		if n := m.GetSystemProperties().GetDeliveryAttempt(); n != 1 {
			t.Errorf("a message that reached nobody comes with attempt %d", n)
		}
	}
	p.finishAll(first)
	rest := p.take(unsure)
	attempts := map[int32]int{}
	for _, m := range rest {
		attempts[m.GetSystemProperties().GetDeliveryAttempt()]++
	}
	t.Logf("%d came back at once, of the other %d by attempt: %v", len(first), len(rest), attempts)
	if attempts[1]+attempts[2] != len(rest) {
		t.Errorf("attempts of messages that were received once: %v", attempts)
	}
	p.finishAll(rest)
}

// finishAll acknowledges messages, 32 at a time.
func (p *place) finishAll(messages []*rmqv2.Message) {
	p.t.Helper()
	for part := range slices.Chunk(messages, 32) {
		p.finish(part)
	}
}

// served sends and receives for a while as another client, and fails if it is held up.
func served(t *testing.T, d dev) {
	t.Helper()
	c := connect(t, d.grpc)
	p := newPlace(t, c)
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				began := time.Now()
				p.send(t.Context(), c, p.message("a message")).is(t, "OK")
				a := p.receive(t.Context(), c, func(r *rmqv2.ReceiveMessageRequest) { r.BatchSize = 1 })
				if a.is(t, "OK"); len(a.messages) > 0 {
					p.ack(t.Context(), c, a.messages).is(t, "OK")
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	median, worst := took[len(took)/2], took[len(took)-1]
	t.Logf("others: send, receive and ack took %v, at most %v", median, worst)
	if median > 200*time.Millisecond || worst > 2*time.Second {
		t.Errorf("other clients are held up: %v, at most %v", median, worst)
	}
}
