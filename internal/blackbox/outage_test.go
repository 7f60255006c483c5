package blackbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/testseed"
)

// away is what a call to a broker that is gone is answered with: not done, or not known to be.
const away = "HA_NOT_AVAILABLE|PROXY_TIMEOUT"

// TestBrokerKilled: while a broker is gone its messages and leases are refused, never judged; after its
// restart everything that was answered is still true.
//
//fault:kill a broker is killed while leases are out => calls for what is there are refused, never judged; after its start all that was answered is true, and nobody lost an attempt
func TestBrokerKilled(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	c, other := k.client(0), k.client(1)
	p := newTyped(t, c, controllerv1.TopicType_TOPIC_TYPE_NORMAL, 1) // all in one group
	both := newPlace(t, c)                                           // in both
	p.put(20)
	both.put(8)
	until(t, 5*time.Second, func(ctx context.Context) bool {
		return other.do(ctx, "QueryRoute", request("QueryRoute", both.topic, "")).name() == "OK"
	})
	home := brokersOf(t, c, p.topic)[0][:1]
	held := p.hold(other, 10, 2*time.Minute)
	p.finish(held[:5])
	held = held[5:]

	k.kill(k.brokers[home])
	began := time.Now()
	p.send(t.Context(), c, p.message("refused")).is(t, away)
	p.send(t.Context(), other, p.message("refused")).is(t, away)
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("refusals took %v", took)
	}
	// Not INVALID_RECEIPT_HANDLE, which ends the retries of clients: the handle is as good as before.
	p.ack(t.Context(), c, held[:1]).is(t, away)
	c.do(t.Context(), "ChangeInvisibleDuration", changeRequest(p.topic, p.group, held[1].GetSystemProperties().GetReceiptHandle(), time.Minute)).is(t, away)
	if route := brokersOf(t, c, both.topic); !slices.Contains(route, home+"/0") {
		t.Errorf("a broker that is gone is gone from the route %v", route)
	}
	for i := range 10 { // the other group takes what has no place
		both.send(t.Context(), c, both.message(fmt.Sprint("meanwhile ", i))).is(t, "OK")
	}
	got := both.receive(t.Context(), other, func(r *rmqv2.ReceiveMessageRequest) { r.BatchSize = 4 })
	if got.is(t, "OK"); len(got.messages) == 0 {
		t.Error("no message of the broker that is there")
	}
	both.ack(t.Context(), c, got.messages).is(t, "OK")
	waiting := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		waiting <- p.receive(ctx, other, func(r *rmqv2.ReceiveMessageRequest) {
			r.LongPollingTimeout, r.BatchSize = durationpb.New(20*time.Second), 1
			invisible(time.Minute)(r)
		})
	}()

	k.startBroker(home)
	restarted := time.Now()
	until(t, 10*time.Second, func(ctx context.Context) bool { return p.send(ctx, c, p.message("back")).name() == "OK" })
	t.Logf("sends succeed %v after the broker was ready", time.Since(restarted))
	a := <-waiting
	a.is(t, "OK|"+away)
	if a.name() == "OK" {
		p.ack(t.Context(), c, a.messages).is(t, "OK")
	}
	until(t, 5*time.Second, func(ctx context.Context) bool { return p.ack(ctx, other, held[:1]).name() == "OK" })
	p.ack(t.Context(), c, held[1:]).is(t, "OK")
	rest := p.hold(c, 10-len(a.messages), time.Minute)
	for _, m := range rest {
		if n := m.GetSystemProperties().GetDeliveryAttempt(); n != 1 {
			t.Errorf("a message that nobody had comes with attempt %d after the restart", n)
		}
	}
	p.finish(rest)
}

// TestBrokersKilledUnderLoad kills each broker several times while clients send, receive, acknowledge
// through both proxies. The ledger tells whether all promises were kept.
//
//fault:kill brokers of a cluster are killed in turn under load through two proxies => every message that was answered is there once, acknowledged ones never come again
func TestBrokersKilledUnderLoad(t *testing.T) {
	t.Parallel()
	seed := testseed.First(t)
	k := newCluster(t)
	p := newTyped(t, k.client(0), controllerv1.TopicType_TOPIC_TYPE_NORMAL, 6)
	until(t, 5*time.Second, func(ctx context.Context) bool {
		return k.client(1).do(ctx, "QueryRoute", request("QueryRoute", p.topic, "")).name() == "OK"
	})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	count := func(what string, a answer) {
		mu.Lock()
		defer mu.Unlock()
		answers[what+" "+a.name()]++
	}
	for i := range 4 {
		c := k.client(i % 2)
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for ctx.Err() == nil {
				list := []*rmqv2.Message{p.message("one"), p.message("two"), p.message("three")}[:1+rng.IntN(3)]
				a := p.send(t.Context(), c, list...)
				a.is(t, "OK|"+away)
				count("send", a)
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				a := p.receive(t.Context(), c, nil)
				a.is(t, "OK|MESSAGE_NOT_FOUND|"+away)
				count("receive", a)
				if len(a.messages) > 0 && rng.IntN(10) > 0 {
					a = p.ack(t.Context(), c, a.messages)
					a.is(t, "OK|INVALID_RECEIPT_HANDLE|MULTIPLE_RESULTS|"+away) // invalid: it was late, others have it
					count("ack", a)
				}
			}
		})
	}
	for round := range 6 {
		<-time.After(time.Duration(400+rand.New(rand.NewPCG(seed, uint64(100+round))).IntN(400)) * time.Millisecond)
		group := []string{"a", "b"}[round%2]
		k.kill(k.brokers[group])
		k.startBroker(group)
	}
	until(t, 10*time.Second, func(ctx context.Context) bool { return p.send(ctx, k.client(1), p.message("last")).name() == "OK" })
	stop()
	wg.Wait()
	t.Logf("answers: %v", answers)
	if answers["send OK"] < 100 || answers["ack OK"] < 20 {
		t.Error("too little was done to say anything")
	}
	until(t, 10*time.Second, func(ctx context.Context) bool {
		d, err := p.c.admin.DescribeGroup(ctx, &adminv1.DescribeGroupRequest{Name: p.group, Topic: p.topic})
		return err == nil && len(d.GetUnknown()) == 0
	})
}

// TestControllerKilled: messages flow while the controller is away and when it comes back.
//
//fault:kill the controller is killed under load => messages flow; topics are refused meanwhile, and can be made when it is back
func TestControllerKilled(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	p := newPlace(t, k.client(0))
	clients := []*client{k.client(0), k.client(1)}
	until(t, 5*time.Second, func(ctx context.Context) bool {
		return clients[1].do(ctx, "QueryRoute", request("QueryRoute", p.topic, "")).name() == "OK"
	})
	var slowest time.Duration
	flows := func(rounds int) {
		t.Helper()
		for i := range rounds {
			c := clients[i%2]
			for _, a := range []answer{
				p.send(t.Context(), c, p.message("a message")),
				c.do(t.Context(), "QueryRoute", request("QueryRoute", p.topic, "")),
				c.do(t.Context(), "Heartbeat", request("Heartbeat", "", p.group)),
				c.do(t.Context(), "Telemetry", settingsCommand(consumerSettings(p.topic, p.group))),
			} {
				a.is(t, "OK")
				slowest = max(slowest, a.took)
			}
			a := p.receive(t.Context(), c, nil)
			a.is(t, "OK")
			slowest = max(slowest, a.took)
			p.ack(t.Context(), clients[(i+1)%2], a.messages).is(t, "OK")
		}
	}
	flows(20)
	for range 2 {
		k.kill(k.controller)
		end := time.Now().Add(1500 * time.Millisecond)
		for time.Now().Before(end) {
			flows(10)
		}
		clients[0].do(t.Context(), "QueryRoute", request("QueryRoute", "absent", "")).is(t, "TOPIC_NOT_FOUND")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := clients[0].admin.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: "later"}})
		cancel()
		if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
			t.Errorf("a topic was made without a controller: %v", err)
		}
		k.startController()
		flows(20)
	}
	until(t, 15*time.Second, func(ctx context.Context) bool {
		_, err := clients[1].admin.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: "later", Queues: 4}})
		return err == nil
	})
	until(t, 5*time.Second, func(ctx context.Context) bool {
		return clients[0].do(ctx, "SendMessage", request("SendMessage", "later", "")).name() == "OK"
	})
	flows(20)
	if t.Logf("the slowest call took %v", slowest); slowest > 2*time.Second {
		t.Errorf("a call took %v while the controller was away or came back", slowest)
	}
}

// TestTopicWhileBrokerIsDown: a topic is reported made only when its brokers know it.
//
//fault:kill a topic is made while a broker is gone => it is not reported as made before all its brokers know it
func TestTopicWhileBrokerIsDown(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	c := k.client(0)
	k.kill(k.brokers["b"])
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	began := time.Now()
	_, err := c.admin.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: "early", Queues: 4}})
	t.Logf("after %v: %v", time.Since(began), err)
	if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
		t.Errorf("a topic of a broker that is down is made: %v", err)
	}
	k.startBroker("b")
	until(t, 10*time.Second, func(ctx context.Context) bool {
		_, err := c.admin.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: "early", Queues: 4}})
		return err == nil
	})
	if got, want := brokersOf(t, c, "early"), []string{"a/0", "a/1", "b/0", "b/1"}; !slices.Equal(got, want) {
		t.Errorf("route %v, want %v", got, want)
	}
	for range 8 {
		c.do(t.Context(), "SendMessage", request("SendMessage", "early", "")).is(t, "OK")
	}
	d, err := c.admin.DescribeTopic(t.Context(), &adminv1.DescribeTopicRequest{Name: "early"})
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]int64{}
	for _, q := range d.GetQueues() {
		held[q.GetBroker()] += q.GetMax()
	}
	if held["a"] == 0 || held["b"] == 0 || held["a"]+held["b"] != 8 {
		t.Errorf("messages by broker group: %v", held)
	}
}
