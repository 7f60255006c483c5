package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// What a run must have done at least to count.
const (
	killsMin     = 20
	specialMin   = 4 // of them during recovery, roll or checkpoint
	opsMin       = 50000
	runAtMost    = 4 * time.Minute
	loadPerRound = 1200 * time.Millisecond
)

// TestKillUnderLoad kills a process with SIGKILL again and again under load and checks every answer.
func TestKillUnderLoad(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))

	s := newServer(t, t.TempDir(), freeAddr(t))
	s.start()
	conn, err := dial(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := &load{h: newHistory(), rpc: rmqv2.NewMessagingServiceClient(conn), topic: "crash", group: "crash"}

	ctx, stop := context.WithTimeout(t.Context(), runAtMost)
	defer stop()
	loaded, endLoad := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); l.run(loaded, 6, seed) }()

	kills, special := 0, map[string]int{}
	for ctx.Err() == nil && (kills < killsMin || l.h.operations() < opsMin) {
		switch kills % 5 {
		case 1:
			await(ctx, s.when("segment rolled"), 5*time.Second, func() { special["roll"]++ })
		case 2:
			await(ctx, s.when("checkpoint started"), 5*time.Second, func() { special["checkpoint"]++ })
		default:
			wait(ctx, loadPerRound/2+time.Duration(rng.Int64N(int64(loadPerRound))))
		}
		s.kill()
		kills++
		if kills%5 == 3 { // once more while it recovers
			recovering := s.when("recovery started")
			s.launch()
			await(ctx, recovering, 10*time.Second, func() { special["recovery"]++ })
			s.kill()
			kills++
		}
		s.start()
	}
	endLoad()
	<-ended
	n := special["roll"] + special["checkpoint"] + special["recovery"]
	t.Logf("%d answered operations, %d kills, during: %v", l.h.operations(), kills, special)
	if kills < killsMin || n < specialMin || l.h.operations() < opsMin {
		t.Errorf("the run is too small: %d kills (%d special), %d operations", kills, n, l.h.operations())
	}
	l.verify(t)
}

// verify drains the group and reads everything with a second one.
func (l *load) verify(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// The server is up for good now, but the connection may still be in its pause after the last kill.
	l.opts = []grpc.CallOption{grpc.WaitForReady(true)}
	l.drain(ctx, t)
	l.audit(ctx, t)
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	for _, m := range l.h.sent {
		if m.stored && !m.acked && !m.maybe {
			l.h.fault("message %s was stored, not acknowledged, and does not come", m.id)
		}
	}
	for _, b := range l.h.bad {
		t.Error(b)
	}
}

// drain receives and acknowledges until nothing comes and every lease has ended.
func (l *load) drain(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		got, err := l.poll(ctx, "crash@drain", l.group, invisible, l.h)
		if err != nil {
			t.Fatalf("draining: %v", err)
		}
		if len(got) == 0 && l.h.open() == 0 {
			return
		}
		l.ack(ctx, "crash@drain", got)
	}
	t.Errorf("%d messages did not come while draining", l.h.open())
}

// audit reads the topic with a fresh group: every stored message is there once, in its place.
func (l *load) audit(ctx context.Context, t *testing.T) {
	seen := map[string]int{}
	for {
		got, err := l.poll(ctx, "crash@audit", "crash-audit", 5*time.Minute, nil)
		if err != nil {
			t.Fatalf("auditing: %v", err)
		}
		if len(got) == 0 {
			break
		}
		for _, m := range got {
			sys := m.GetSystemProperties()
			seen[sys.GetMessageId()]++
			l.h.mu.Lock()
			if w := l.h.sent[sys.GetMessageId()]; w == nil || w.body != string(m.GetBody()) || w.stored && w.offset != sys.GetQueueOffset() {
				l.h.fault("message %s is stored as it was not sent: offset %d", sys.GetMessageId(), sys.GetQueueOffset())
			}
			l.h.mu.Unlock()
		}
	}
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	for id, m := range l.h.sent {
		if n := seen[id]; n > 1 || n == 0 && m.stored {
			l.h.fault("message %s (answered OK: %v) is stored %d times", id, m.stored, n)
		}
	}
	t.Logf("%d messages stored, %d sent", len(seen), len(l.h.sent))
}

// await waits for something at most so long, and calls hit if it came.
func await(ctx context.Context, c chan bool, d time.Duration, hit func()) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		hit()
	case <-timer.C:
	case <-ctx.Done():
	}
}

// freeAddr is a loopback address that was free a moment ago.
func freeAddr(t *testing.T) string {
	// Below the range from which the kernel takes the ports of clients: one of those could take it
	// before the process listens.
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(11000))
		if ln, err := net.Listen("tcp", addr); err == nil {
			_ = ln.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}
