package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// load is clients that come and go and do everything at a bounded rate.
type load struct {
	addr     string
	seed     uint64
	pace     time.Duration // between two calls of one sender
	delayMax time.Duration
	ledger   *ledger

	seq          atomic.Int64 // message ids
	failures     atomic.Int64
	firstFailure atomic.Pointer[string]
	sessions     atomic.Int64
	verdicts     sync.Map // of half messages that are left to checks: whether to commit
}

const group = "soak"

// topicTypes are the topics of the load, by name.
var topicTypes = map[string]controllerv1.TopicType{
	"normal": controllerv1.TopicType_TOPIC_TYPE_NORMAL, "fifo": controllerv1.TopicType_TOPIC_TYPE_FIFO, "priority": controllerv1.TopicType_TOPIC_TYPE_PRIORITY,
	"delay": controllerv1.TopicType_TOPIC_TYPE_DELAY, "txn": controllerv1.TopicType_TOPIC_TYPE_TRANSACTION, "lite": controllerv1.TopicType_TOPIC_TYPE_LITE,
}

func groupOf(topic string) string { return group + "-" + topic }

func (l *load) define(ctx context.Context) error {
	c, err := l.caller("define")
	if err != nil {
		return err
	}
	defer c.close()
	admin := adminv1.NewAdminServiceClient(c.conn)
	for name, t := range topicTypes {
		if _, err := admin.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: name, Type: t, Queues: 4}}); err != nil {
			return err
		}
		g := &controllerv1.PutGroupRequest{Name: groupOf(name), MaxAttempts: new(int32(1000))}
		switch name {
		case "fifo":
			g.Ordered = new(true)
		case "lite":
			g.LiteTopic = &name
		}
		if _, err := admin.PutGroup(ctx, &adminv1.PutGroupRequest{Group: g}); err != nil {
			return err
		}
	}
	return nil
}

// produce sends until ctx ends.
func (l *load) produce(ctx context.Context, wg *sync.WaitGroup) {
	for name, send := range map[string]func(*caller, context.Context){
		"normal": (*caller).normal, "fifo": (*caller).fifo, "priority": (*caller).priority, "delay": (*caller).delay, "txn": (*caller).txn, "lite": (*caller).lite,
		"topics": (*caller).comeAndGo,
	} {
		wg.Go(func() {
			l.live(ctx, name, func(ctx context.Context, c *caller) {
				for ctx.Err() == nil {
					send(c, ctx)
					pause(ctx, l.pace/2+time.Duration(c.rng.Int64N(int64(l.pace))))
				}
			})
		})
	}
	wg.Go(func() { l.live(ctx, "checks", func(ctx context.Context, c *caller) { c.checks(ctx) }) })
}

// consume receives until ctx ends.
func (l *load) consume(ctx context.Context, wg *sync.WaitGroup) {
	for name := range topicTypes {
		for range 2 {
			wg.Go(func() {
				l.live(ctx, name, func(ctx context.Context, c *caller) {
					end := c.settings(ctx, name)
					defer end()
					for ctx.Err() == nil {
						if name == "lite" {
							c.subscribe(ctx)
						}
						c.treat(ctx, name)
					}
				})
			})
		}
	}
}

// live runs clients of a role, one after the other, each for a while, until ctx ends. Half of them say
// goodbye.
func (l *load) live(ctx context.Context, role string, do func(context.Context, *caller)) {
	for ctx.Err() == nil {
		c, err := l.caller(role)
		if err != nil {
			return
		}
		l.sessions.Add(1)
		life, cancel := context.WithTimeout(ctx, 15*time.Second+time.Duration(c.rng.IntN(30))*time.Second)
		do(life, c)
		cancel()
		if c.rng.IntN(2) == 0 {
			bye, cancel := c.call(ctx, 5*time.Second)
			_, _ = c.rpc.NotifyClientTermination(bye, &rmqv2.NotifyClientTerminationRequest{Group: resource(groupOf(role))})
			cancel()
		}
		c.close()
	}
}

func (c *caller) normal(ctx context.Context) {
	var out []*rmqv2.Message
	for range 1 + c.rng.IntN(6) {
		out = append(out, c.message("normal", rmqv2.MessageType_NORMAL))
	}
	c.send(ctx, time.Time{}, out...)
}

func (c *caller) fifo(ctx context.Context) {
	m := c.message("fifo", rmqv2.MessageType_FIFO)
	m.SystemProperties.MessageGroup = new(fmt.Sprint("key-", c.rng.IntN(200)))
	c.send(ctx, time.Time{}, m)
}

func (c *caller) priority(ctx context.Context) {
	m := c.message("priority", rmqv2.MessageType_PRIORITY)
	m.SystemProperties.Priority = new(int32(c.rng.IntN(4)))
	c.send(ctx, time.Time{}, m)
}

// delay sends messages that come soon, some of them much later, and takes a few back.
func (c *caller) delay(ctx context.Context) {
	wait := time.Second + time.Duration(c.rng.Int64N(int64(20*time.Second)))
	if c.rng.IntN(50) == 0 {
		wait = c.l.delayMax/2 + time.Duration(c.rng.Int64N(int64(c.l.delayMax/2)))
	}
	due := time.Now().Add(wait).Truncate(time.Millisecond)
	m := c.message("delay", rmqv2.MessageType_DELAY)
	m.SystemProperties.DeliveryTimestamp = timestamppb.New(due)
	resp := c.send(ctx, due, m)
	if resp == nil || c.rng.IntN(10) > 0 || wait < 5*time.Second {
		return
	}
	ctx, cancel := c.call(ctx, 10*time.Second)
	defer cancel()
	back, err := c.rpc.RecallMessage(ctx, &rmqv2.RecallMessageRequest{Topic: resource("delay"), RecallHandle: resp.GetEntries()[0].GetRecallHandle()})
	if !c.failed("recall", back.GetStatus(), err) {
		c.l.ledger.rolledBack(m.GetSystemProperties().GetMessageId())
	}
}

// txn ends most half messages at once, one way or the other, and leaves the others to checks.
func (c *caller) txn(ctx context.Context) {
	m := c.message("txn", rmqv2.MessageType_TRANSACTION)
	m.SystemProperties.OrphanedTransactionRecoveryDuration = durationpb.New(5 * time.Second)
	id, commit := m.GetSystemProperties().GetMessageId(), c.rng.IntN(3) > 0
	c.l.verdicts.Store(id, commit)
	resp := c.send(ctx, time.Time{}, m)
	if resp == nil {
		c.l.verdicts.Delete(id)
		return
	}
	if c.rng.IntN(6) > 0 {
		c.end(ctx, id, resp.GetEntries()[0].GetTransactionId(), rmqv2.TransactionSource_SOURCE_CLIENT)
	}
}

func (c *caller) end(ctx context.Context, id, txn string, source rmqv2.TransactionSource) {
	commit, known := c.l.verdicts.LoadAndDelete(id)
	if !known {
		return
	}
	resolution := rmqv2.TransactionResolution_COMMIT
	if commit == false {
		resolution = rmqv2.TransactionResolution_ROLLBACK
		c.l.ledger.rolledBack(id)
	}
	ctx, cancel := c.call(ctx, 10*time.Second)
	defer cancel()
	resp, err := c.rpc.EndTransaction(ctx, &rmqv2.EndTransactionRequest{Topic: resource("txn"), MessageId: id, TransactionId: txn, Resolution: resolution, Source: source})
	if !c.failed("end of a transaction", resp.GetStatus(), err) && commit == true {
		c.l.ledger.sent(id)
	}
}

// checks answers what the service asks about half messages.
func (c *caller) checks(ctx context.Context) {
	call, cancel := c.call(ctx, time.Hour)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	st, err := c.rpc.Telemetry(call)
	if err != nil {
		return
	}
	err = st.Send(&rmqv2.TelemetryCommand{Command: &rmqv2.TelemetryCommand_Settings{Settings: &rmqv2.Settings{
		ClientType: rmqv2.ClientType_PRODUCER.Enum(), RequestTimeout: durationpb.New(3 * time.Second), AccessPoint: c.l.endpoints(),
		PubSub: &rmqv2.Settings_Publishing{Publishing: &rmqv2.Publishing{Topics: []*rmqv2.Resource{resource("txn")}}},
	}}})
	for err == nil {
		var cmd *rmqv2.TelemetryCommand
		if cmd, err = st.Recv(); err != nil {
			return
		}
		if r := cmd.GetRecoverOrphanedTransactionCommand(); r != nil {
			c.end(ctx, r.GetMessage().GetSystemProperties().GetMessageId(), r.GetTransactionId(), rmqv2.TransactionSource_SOURCE_SERVER_CHECK)
		}
	}
}

func (l *load) endpoints() *rmqv2.Endpoints {
	return &rmqv2.Endpoints{Scheme: rmqv2.AddressScheme_IPv4, Addresses: []*rmqv2.Address{{Host: "127.0.0.1", Port: 8081}}}
}

// settings opens a telemetry stream of a consumer.
func (c *caller) settings(ctx context.Context, topic string) (end func()) {
	call, cancel := c.call(ctx, time.Hour)
	st, err := c.rpc.Telemetry(call)
	if err != nil {
		return cancel
	}
	kind := rmqv2.ClientType_SIMPLE_CONSUMER
	if topic == "lite" {
		kind = rmqv2.ClientType_LITE_SIMPLE_CONSUMER
	}
	if st.Send(&rmqv2.TelemetryCommand{Command: &rmqv2.TelemetryCommand_Settings{Settings: &rmqv2.Settings{
		ClientType: &kind, RequestTimeout: durationpb.New(3 * time.Second), AccessPoint: c.l.endpoints(),
		PubSub: &rmqv2.Settings_Subscription{Subscription: &rmqv2.Subscription{Group: resource(groupOf(topic))}},
	}}}) == nil {
		_, _ = st.Recv()
	}
	return cancel
}

// liteEpoch is how long a set of lite topics is in use, liteNames how many are in it.
const (
	liteEpoch = 30 * time.Second
	liteNames = 12
)

func liteName(epoch int64, i int) string { return fmt.Sprintf("lite-%d-%d", epoch, i) }

func (c *caller) lite(ctx context.Context) {
	m := c.message("lite", rmqv2.MessageType_LITE)
	m.SystemProperties.LiteTopic = new(liteName(time.Now().UnixNano()/int64(liteEpoch), c.rng.IntN(liteNames)))
	c.send(ctx, time.Time{}, m)
}

// subscribe subscribes to the lite topics of the last minutes.
func (c *caller) subscribe(ctx context.Context) {
	var names []string
	now := time.Now().UnixNano() / int64(liteEpoch)
	for epoch := now - 6; epoch <= now+1; epoch++ {
		for i := range liteNames {
			names = append(names, liteName(epoch, i))
		}
	}
	ctx, cancel := c.call(ctx, 10*time.Second)
	defer cancel()
	resp, err := c.rpc.SyncLiteSubscription(ctx, &rmqv2.SyncLiteSubscriptionRequest{
		Action: rmqv2.LiteSubscriptionAction_COMPLETE_ADD, Topic: resource("lite"), Group: resource(groupOf("lite")), LiteTopicSet: names,
	})
	c.failed("lite subscription", resp.GetStatus(), err)
}

// treat receives once: most messages are acknowledged, some come again.
func (c *caller) treat(ctx context.Context, topic string) {
	var done []*rmqv2.Message
	often := 40
	if topic == "fifo" || topic == "lite" {
		often = 400 // what comes behind it waits, too
	}
	for _, m := range c.receive(ctx, groupOf(topic), topic) {
		if c.rng.IntN(often) > 0 {
			done = append(done, m)
		}
	}
	c.ack(ctx, groupOf(topic), topic, done)
}

// comeAndGo makes a topic with messages in it, which nobody reads, and deletes an older one.
func (c *caller) comeAndGo(ctx context.Context) {
	admin := adminv1.NewAdminServiceClient(c.conn)
	n := c.l.seq.Add(1)
	name := fmt.Sprintf("passing-%d", n)
	call, cancel := c.call(ctx, 10*time.Second)
	defer cancel()
	if _, err := admin.PutTopic(call, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: name, Queues: 1}}); err != nil {
		c.failed("topic", nil, err)
		return
	}
	req := &rmqv2.SendMessageRequest{}
	for range 5 {
		req.Messages = append(req.Messages, c.message(name, rmqv2.MessageType_NORMAL))
	}
	resp, err := c.rpc.SendMessage(call, req)
	c.failed("send", resp.GetStatus(), err)
	pause(ctx, 2*time.Second)
	gone, cancel := c.call(ctx, 10*time.Second)
	defer cancel()
	if _, err := admin.DeleteTopic(gone, &adminv1.DeleteTopicRequest{Name: name}); err != nil {
		c.failed("end of a topic", nil, err)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
