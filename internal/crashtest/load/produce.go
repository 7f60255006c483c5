package load

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/crashtest/history"
)

// plain sends messages that may come in any order.
func (c *client) plain(ctx context.Context, topic string) {
	for ctx.Err() == nil {
		var out []outgoing
		for range 1 + c.rng.IntN(3) {
			o := c.message(topic, typeOf(topic))
			if topic == topicPriority {
				o.msg.SystemProperties.Priority = new(int32(c.rng.IntN(4)))
			}
			out = append(out, o)
		}
		_, o := c.sendAgain(ctx, topic, out)
		c.pace(ctx, o)
		if topic == topicFragile || topic == topicResets {
			c.wait(ctx, 60*time.Millisecond)
		}
	}
}

// fifo sends to message groups of its own, one message or batch after the other.
func (c *client) fifo(ctx context.Context, mine int) {
	for ctx.Err() == nil {
		key := fmt.Sprintf("key-%d-%d", mine, c.rng.IntN(10))
		var out []outgoing
		for range 1 + max(0, c.rng.IntN(6)-2) {
			o := c.message(topicFIFO, rmqv2.MessageType_FIFO)
			o.msg.SystemProperties.MessageGroup, o.item.Key = &key, key
			out = append(out, o)
		}
		_, o := c.sendAgain(ctx, topicFIFO, out)
		c.pace(ctx, o)
	}
}

// liteNames are the lite topics.
var liteNames = []string{"one", "two", "three", "four", "five", "six"}

// lite sends to lite topics.
func (c *client) lite(ctx context.Context) {
	for ctx.Err() == nil {
		o := c.message(topicLite, rmqv2.MessageType_LITE)
		name := liteNames[c.rng.IntN(len(liteNames))]
		o.msg.SystemProperties.LiteTopic, o.item.Key = &name, name
		_, out := c.sendAgain(ctx, topicLite, []outgoing{o})
		c.pace(ctx, out)
	}
}

// subscribe says which lite topics a client wants: brokers that were started again do not know it.
func (c *client) subscribe(ctx context.Context, group string) {
	ctx, cancel := c.call(ctx, 3*time.Second)
	defer cancel()
	_, _ = c.rpc().SyncLiteSubscription(ctx, &rmqv2.SyncLiteSubscriptionRequest{
		Action: rmqv2.LiteSubscriptionAction_COMPLETE_ADD, Topic: resource(topicLite), Group: resource(group), LiteTopicSet: liteNames,
	})
}

// later is a message that was sent to come later.
type later struct {
	id, handle string
	at         time.Time // to be recalled
}

// delay sends messages that come later, and recalls some, also when it is nearly or long too late.
func (c *client) delay(ctx context.Context) {
	var open []later
	for ctx.Err() == nil {
		o := c.message(topicDelay, rmqv2.MessageType_DELAY)
		wait := 20*time.Millisecond + time.Duration(c.rng.Int64N(int64(3*time.Second)))
		due := time.Now().Add(wait).Truncate(time.Millisecond)
		o.msg.SystemProperties.DeliveryTimestamp, o.item.Due = timestamppb.New(due), c.l.rec.TimeOf(due)
		resp, out := c.sendAgain(ctx, topicDelay, []outgoing{o})
		if out == history.OK && c.rng.IntN(3) == 0 {
			at := time.Now().Add(time.Duration(c.rng.Int64N(int64(wait) * 5 / 4)))
			if c.rng.IntN(3) == 0 {
				at = due.Add(time.Duration(c.rng.IntN(20)-10) * time.Millisecond)
			}
			open = append(open, later{o.item.ID, resp.GetEntries()[0].GetRecallHandle(), at})
		}
		rest := open[:0]
		for _, l := range open {
			if time.Now().Before(l.at) {
				rest = append(rest, l)
				continue
			}
			c.recall(ctx, l)
		}
		open = rest
		c.pace(ctx, out)
	}
}

func (c *client) recall(ctx context.Context, l later) {
	op := c.l.rec.Begin(&history.Op{Kind: history.Recall, Client: c.name, Topic: topicDelay, Items: []history.Item{{ID: l.id}}})
	ctx, cancel := c.call(ctx, 4*time.Second)
	defer cancel()
	resp, err := c.rpc().RecallMessage(ctx, &rmqv2.RecallMessageRequest{Topic: resource(topicDelay), RecallHandle: l.handle})
	o, code := outcome(resp.GetStatus(), err)
	c.l.rec.End(op, o, code, func() {
		op.Items[0].Outcome, op.Items[0].Invalid = o, resp.GetStatus().GetCode() == rmqv2.Code_NOT_FOUND
	})
}

// transactions sends half messages, and ends some: the others are left to checks.
func (c *client) transactions(ctx context.Context) {
	for ctx.Err() == nil {
		o := c.message(topicTxn, rmqv2.MessageType_TRANSACTION)
		o.msg.SystemProperties.OrphanedTransactionRecoveryDuration = durationpb.New(time.Second)
		c.l.verbs.Store(o.item.ID, c.rng.IntN(3) > 0)
		resp, out := c.sendAgain(ctx, topicTxn, []outgoing{o})
		if out == history.OK && c.rng.IntN(4) > 0 {
			out = c.end(ctx, o.item.ID, resp.GetEntries()[0].GetTransactionId(), rmqv2.TransactionSource_SOURCE_CLIENT)
		}
		c.pace(ctx, out)
	}
}

// end gives the verdict of a half message, which is decided with it.
func (c *client) end(ctx context.Context, id, txn string, source rmqv2.TransactionSource) history.Outcome {
	commit, known := c.l.verbs.Load(id)
	if !known {
		return history.Fail
	}
	op := &history.Op{Kind: history.Rollback, Client: c.name, Topic: topicTxn, Items: []history.Item{{ID: id}}}
	resolution := rmqv2.TransactionResolution_ROLLBACK
	if commit.(bool) {
		op.Kind, resolution = history.Commit, rmqv2.TransactionResolution_COMMIT
	}
	c.l.rec.Begin(op)
	ctx, cancel := c.call(ctx, 4*time.Second)
	defer cancel()
	resp, err := c.rpc().EndTransaction(ctx, &rmqv2.EndTransactionRequest{
		Topic: resource(topicTxn), MessageId: id, TransactionId: txn, Resolution: resolution, Source: source,
	})
	o, code := outcome(resp.GetStatus(), err)
	c.l.rec.End(op, o, code, func() { op.Items[0].Outcome = o })
	return o
}

// checks answers what the service asks about half messages that nobody has ended.
func (c *client) checks(ctx context.Context) {
	for ctx.Err() == nil {
		c.session(ctx)
		c.wait(ctx, 20*time.Millisecond)
	}
}

func (c *client) session(ctx context.Context) {
	call, cancel := c.call(ctx, time.Hour)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	st, err := c.rpc().Telemetry(call)
	if err != nil {
		return
	}
	err = st.Send(&rmqv2.TelemetryCommand{Command: &rmqv2.TelemetryCommand_Settings{Settings: &rmqv2.Settings{
		ClientType: rmqv2.ClientType_PRODUCER.Enum(), RequestTimeout: durationpb.New(3 * time.Second),
		AccessPoint: &rmqv2.Endpoints{Scheme: rmqv2.AddressScheme_IPv4, Addresses: []*rmqv2.Address{{Host: "127.0.0.1", Port: 8081}}},
		PubSub:      &rmqv2.Settings_Publishing{Publishing: &rmqv2.Publishing{Topics: []*rmqv2.Resource{resource(topicTxn)}}},
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
