package blackbox

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// TestTwoGroups: a topic is spread over both broker groups, and messages of both are found whatever
// queue a receive names, through either proxy.
func TestTwoGroups(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	one, two := k.client(0), k.client(1)
	p := newPlace(t, one)
	want := []string{"a/0", "a/1", "b/0", "b/1"}
	until(t, 5*time.Second, func(ctx context.Context) bool {
		return two.do(ctx, "QueryRoute", request("QueryRoute", p.topic, "")).name() == "OK"
	})
	for _, c := range []*client{one, two} {
		if got := brokersOf(t, c, p.topic); !slices.Equal(got, want) {
			t.Errorf("route %v, want %v", got, want)
		}
		a := c.do(t.Context(), "QueryAssignment", request("QueryAssignment", p.topic, p.group))
		a.is(t, "OK")
		var assigned []string
		for _, s := range a.replies[0].(*rmqv2.QueryAssignmentResponse).GetAssignments() {
			assigned = append(assigned, fmt.Sprintf("%s/%d", s.GetMessageQueue().GetBroker().GetName(), s.GetMessageQueue().GetId()))
		}
		if !slices.Equal(assigned, []string{"a/-1", "b/-1"}) {
			t.Errorf("assignment %v", assigned)
		}
	}
	for i := range 40 {
		p.send(t.Context(), []*client{one, two}[i%2], p.message(fmt.Sprint("message ", i))).is(t, "OK")
	}
	held := map[string]int64{}
	d, err := one.admin.DescribeTopic(t.Context(), &adminv1.DescribeTopicRequest{Name: p.topic})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range d.GetQueues() {
		held[q.GetBroker()] += q.GetMax()
	}
	if held["a"] < 5 || held["b"] < 5 || held["a"]+held["b"] != 40 {
		t.Errorf("messages by broker group: %v", held)
	}

	// One queue of one group is named, all messages come.
	got := 0
	for got < 40 {
		a := p.receive(t.Context(), two, func(r *rmqv2.ReceiveMessageRequest) { r.MessageQueue.Broker = &rmqv2.Broker{Name: "a"} })
		a.is(t, "OK")
		if len(a.messages) == 0 {
			break
		}
		got += len(a.messages)
		p.ack(t.Context(), one, a.messages).is(t, "OK")
	}
	if got != 40 {
		t.Errorf("%d of 40 messages came", got)
	}
	// A waiting receive hears of a message in either group at once.
	for range 6 {
		woken := make(chan answer, 1)
		go func() { woken <- p.receive(t.Context(), two, nil) }()
		until(t, 5*time.Second, func(context.Context) bool { return k.proxies[1].metric(t, "perigee_proxy_receives_waiting") == 1 })
		sent := time.Now()
		p.send(t.Context(), one, p.message("wake up")).is(t, "OK")
		a := <-woken
		if took := time.Since(sent); took > time.Second || len(a.messages) != 1 {
			t.Errorf("%d messages woke a receive after %v", len(a.messages), took)
		}
		p.ack(t.Context(), two, a.messages).is(t, "OK")
	}
	many := newTyped(t, one, controllerv1.TopicType_TOPIC_TYPE_NORMAL, 1)
	if got := brokersOf(t, one, many.topic); len(got) != 1 || got[0][1:] != "/0" {
		t.Errorf("the route of a topic of one queue: %v", got)
	}
}

// TestProxyKilled: what was received through a proxy that is gone is acknowledged, changed and repeated
// through another one.
//
//fault:kill a proxy is killed while its clients hold leases => they are acknowledged, changed and repeated through another proxy
func TestProxyKilled(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	doomed, other := k.client(0), k.client(1)
	p, quiet := newPlace(t, other), newPlace(t, other)
	p.put(26)
	until(t, 5*time.Second, func(ctx context.Context) bool {
		return doomed.do(ctx, "QueryRoute", request("QueryRoute", p.topic, "")).name() == "OK"
	})
	attempt := func(r *rmqv2.ReceiveMessageRequest) {
		r.AttemptId, r.BatchSize = new("an-attempt"), 4
		r.MessageQueue.Broker = &rmqv2.Broker{Name: "b"}
		invisible(time.Minute)(r)
	}
	before := p.receive(t.Context(), doomed, attempt)
	before.is(t, "OK")
	session := p.receive(t.Context(), doomed, func(r *rmqv2.ReceiveMessageRequest) { r.AutoRenew, r.BatchSize = true, 2 })
	session.is(t, "OK")
	held := p.hold(doomed, 20, time.Minute)
	waiting := make(chan answer, 1)
	go func() { waiting <- quiet.receive(t.Context(), doomed, nil) }()
	until(t, 5*time.Second, func(context.Context) bool { return k.proxies[0].metric(t, "perigee_proxy_receives_waiting") == 1 })

	k.kill(k.proxies[0].p)
	(<-waiting).is(t, "Unavailable")
	p.ack(t.Context(), other, held[:10]).is(t, "OK")
	for _, m := range held[10:] {
		h := m.GetSystemProperties().GetReceiptHandle()
		a := other.do(t.Context(), "ChangeInvisibleDuration", changeRequest(p.topic, p.group, h, 0))
		a.is(t, "OK")
	}
	again := p.hold(other, 10, time.Minute)
	if got, want := idsOf(again), idsOf(held[10:]); !slices.Equal(got, want) {
		t.Errorf("given back: %v, came: %v", want, got)
	}
	for _, m := range again {
		if n := m.GetSystemProperties().GetDeliveryAttempt(); n != 2 {
			t.Errorf("attempt %d of a message that was given back once", n)
		}
	}
	p.finish(again)

	repeated := p.receive(t.Context(), other, attempt)
	repeated.is(t, "OK")
	if got, want := idsOf(repeated.messages), idsOf(before.messages); len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the same attempt id: %v, then %v", want, got)
	}
	for _, m := range repeated.messages {
		if n := m.GetSystemProperties().GetDeliveryAttempt(); n != 1 {
			t.Errorf("attempt %d of a repeated answer", n)
		}
	}
	p.finish(repeated.messages)

	// The session goes on while its client is heard anywhere, and ends when it says goodbye anywhere.
	other.do(t.Context(), "Heartbeat", request("Heartbeat", "", p.group)).is(t, "OK")
	if s := p.state(t.Context()); int(s.GetInFlight()) != len(session.messages) || len(session.messages) == 0 {
		t.Errorf("in flight %d, the session holds %d", s.GetInFlight(), len(session.messages))
	}
	other.do(t.Context(), "NotifyClientTermination", request("NotifyClientTermination", "", p.group)).is(t, "OK")
	until(t, 5*time.Second, func(ctx context.Context) bool { return int(p.state(ctx).GetReady()) >= len(session.messages) })

	// The proxy comes back empty, on its address: its clients go on.
	k.startProxy(0)
	doomed.do(t.Context(), "Heartbeat", request("Heartbeat", "", p.group)).is(t, "OK")
	p.send(t.Context(), doomed, p.message("after the restart")).is(t, "OK")
	p.ack(t.Context(), doomed, p.hold(doomed, 1, time.Minute)).is(t, "OK")
}
