package blackbox

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// TestRetention sends more than is kept, kills the server and starts it without any file of its views: what
// waits for its time or for a verdict, and what is under lease, comes through.
//
//fault:space old messages were deleted by retention; the process is killed, and checkpoints, consume queues and index are removed => everything that is kept comes from a SNAPSHOT in the log and what follows it: delayed, half and leased messages older than the log too
func TestRetention(t *testing.T) {
	t.Parallel()
	more := []string{"--segment-bytes", "1MiB", "--retention-look", "500ms", "--checkpoint-interval", "1s"}
	s := newStoppable(t, append(more, "--retention", "5s")...)
	c := connect(t, s.grpc)
	load := fullLoad(t, c)
	filler := newTyped(t, c, controllerv1.TopicType_TOPIC_TYPE_NORMAL, 1)
	waits := load["delay"].kind("delay", "waits")
	waits.SystemProperties.DeliveryTimestamp = timestamppb.New(time.Now().Add(25 * time.Second))
	load["delay"].send(t.Context(), c, waits).is(t, "OK")
	half := load["transaction"].kind("transaction", "half")
	load["transaction"].send(t.Context(), c, half).is(t, "OK")
	load["normal"].send(t.Context(), c, load["normal"].message("leased")).is(t, "OK")
	var leased []*rmqv2.Message
	until(t, patience, func(ctx context.Context) bool {
		a := load["normal"].receive(ctx, c, invisible(5*time.Minute))
		leased = a.messages
		return len(leased) > 0
	})
	// A consumer keeps up with more than the log keeps.
	until(t, time.Minute, func(ctx context.Context) bool {
		for range 8 {
			filler.send(ctx, c, filler.message(strings.Repeat("f", 100_000))).is(t, "OK")
		}
		if a := filler.receive(ctx, c, nil); len(a.messages) > 0 {
			filler.ack(ctx, c, a.messages).is(t, "OK")
		}
		m := dev{http: s.http}.metrics(t)
		return t.Failed() || m["perigee_retention_steps_total"] >= 2 && m["perigee_retention_carried_total"] >= 3 && m["perigee_log_first_bytes"] >= 4<<20
	})
	filler.empty(t)
	if err := s.kill(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"checkpoint", "queue", "index"} {
		if err := os.RemoveAll(filepath.Join(s.dir, "broker", dir)); err != nil {
			t.Fatal(err)
		}
	}
	// Nobody reads before the end of the test, and what nobody reads in time goes: it is kept for longer now.
	s.start(append(more, "--retention", "1h")...)
	load["normal"].ack(t.Context(), c, leased).is(t, "OK")
	load["transaction"].commit(t, half.GetSystemProperties().GetMessageId())
	load["fifo"].send(t.Context(), c, load["fifo"].kind("fifo", "after")).is(t, "OK")
	until(t, 30*time.Second, func(context.Context) bool {
		return t.Failed() || dev{http: s.http}.metric(t, "rocketmq_timing_messages") == 0
	})
	// The rest, each message once, is what every place is checked for at the end.
}

// empty receives and acks until nothing comes.
func (p *place) empty(t *testing.T) {
	t.Helper()
	until(t, patience, func(ctx context.Context) bool {
		a := p.receive(ctx, p.c, nil)
		if len(a.messages) > 0 {
			p.ack(ctx, p.c, a.messages).is(t, "OK")
		}
		return len(a.messages) == 0
	})
}
