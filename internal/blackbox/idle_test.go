package blackbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// cpuTime is the processor time of a process's threads, false where that cannot be told.
func cpuTime(pid int) (used time.Duration, known bool) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, false
	}
	for _, f := range files {
		var ns int64
		if b, err := os.ReadFile(f); err == nil {
			if _, err := fmt.Sscan(string(b), &ns); err == nil {
				used, known = used+time.Duration(ns), true
			}
		}
	}
	return used, known
}

// TestIdleReceives: receives that wait cost nothing while nothing happens: no pop, no request to a
// broker, no timer, hardly any processor time.
func TestIdleReceives(t *testing.T) {
	t.Parallel()
	const waiting = 100
	d := ownDev(t)
	c := connect(t, d.grpc)
	var places []*place
	for range 4 {
		places = append(places, newPlace(t, c))
	}
	var wg sync.WaitGroup
	for i := range waiting {
		p := places[i%len(places)]
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			one := c.with("x-mq-client-id", fmt.Sprint("idle@", i))
			p.receive(ctx, one, func(r *rmqv2.ReceiveMessageRequest) {
				r.LongPollingTimeout = durationpb.New(20 * time.Second)
				r.AutoRenew = i%2 == 0
			}).is(t, "MESSAGE_NOT_FOUND|OK")
		})
	}
	until(t, 5*time.Second, func(context.Context) bool { return d.metric(t, "perigee_proxy_receives_waiting") == waiting })
	before := d.metrics(t)
	used, known := cpuTime(d.p.cmd.Process.Pid)
	<-time.After(10 * time.Second) // what is measured
	usedThen, _ := cpuTime(d.p.cmd.Process.Pid)
	after := d.metrics(t)

	moved := 0
	for name, v := range after {
		still := strings.HasPrefix(name, "perigee_proxy_polls_total") || strings.HasPrefix(name, "perigee_proxy_receives_waiting") ||
			strings.HasPrefix(name, "perigee_broker_events_total") && (strings.Contains(name, "pops") || strings.Contains(name, "leased") || strings.Contains(name, "changed"))
		if still && v != before[name] {
			t.Errorf("%s went from %v to %v while nothing happened", name, before[name], v)
		}
		if still {
			moved++
		}
	}
	if moved < 8 {
		t.Errorf("only %d counters were found", moved)
	}
	if known {
		share := float64(usedThen-used) / float64(10*time.Second)
		t.Logf("%d waiting receives use %.2f %% of a core", waiting, 100*share)
		if share > 0.02 {
			t.Errorf("%d waiting receives use %.2f %% of a core", waiting, 100*share)
		}
	}

	// They still get what comes.
	began := time.Now()
	places[0].put(1)
	until(t, time.Second, func(context.Context) bool { return d.metric(t, "perigee_proxy_receives_waiting") < waiting })
	t.Logf("a message took %v to one of them", time.Since(began))
	wg.Wait()
	for i := range waiting { // their session leases end with them
		bye := request("NotifyClientTermination", "", places[i%len(places)].group)
		c.with("x-mq-client-id", fmt.Sprint("idle@", i)).do(t.Context(), "NotifyClientTermination", bye).is(t, "OK")
	}
}
