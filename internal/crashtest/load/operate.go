package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/crashtest/history"
)

// queues asks for the queues of a topic, until it is told.
func (c *client) queues(ctx context.Context, topic string) []*rmqv2.MessageQueue {
	for ctx.Err() == nil {
		call, cancel := c.call(ctx, 3*time.Second)
		resp, err := c.rpc().QueryRoute(call, &rmqv2.QueryRouteRequest{
			Topic: resource(topic), Endpoints: &rmqv2.Endpoints{Scheme: rmqv2.AddressScheme_IPv4, Addresses: []*rmqv2.Address{{Host: "127.0.0.1", Port: 8081}}},
		})
		cancel()
		if err == nil && len(resp.GetMessageQueues()) > 0 {
			return resp.GetMessageQueues()
		}
		c.wait(ctx, 50*time.Millisecond)
	}
	return nil
}

// queueOf is a queue as the history names it.
func (c *client) queueOf(q *rmqv2.MessageQueue) history.Queue {
	out := history.Queue{Topic: q.GetTopic().GetName(), Broker: "dev", ID: q.GetId()}
	if c.l.at.Names != nil {
		out.Broker = q.GetBroker().GetName()
	}
	return out
}

// pull reads queues one after the other and stores how far it came.
func (c *client) pull(ctx context.Context) {
	queues := c.queues(ctx, topicPulled)
	next := map[int]int64{}
	for ctx.Err() == nil {
		i := c.rng.IntN(len(queues))
		n, to, o := c.pullOnce(ctx, groupPull, topicPulled, queues[i], next[i])
		switch {
		case n > 0:
			next[i] = to
			c.store(ctx, queues[i], next[i])
		case o == history.Fail: // what it wants may be gone
			next[i] = max(next[i], c.first(ctx, queues[i]))
		}
		if c.rng.IntN(4) == 0 {
			c.stored(ctx, queues[i])
		}
		c.pace(ctx, o)
	}
}

// pullOnce makes one pull, and returns how much came and where to go on.
func (c *client) pullOnce(ctx context.Context, group, topic string, q *rmqv2.MessageQueue, from int64) (n, next int64, o history.Outcome) {
	op := c.l.rec.Begin(&history.Op{Kind: history.Pull, Client: c.name, Group: group, Topic: topic, N: from, Queues: []history.Queue{c.queueOf(q)}})
	call, cancel := c.call(ctx, 3*time.Second)
	defer cancel()
	st, err := c.rpc().PullMessage(call, &rmqv2.PullMessageRequest{
		Group: resource(group), MessageQueue: q, Offset: from, BatchSize: 32, LongPollingTimeout: durationpb.New(100 * time.Millisecond),
		FilterExpression: &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"},
	})
	var last *rmqv2.Status
	for err == nil {
		var resp *rmqv2.PullMessageResponse
		if resp, err = st.Recv(); err != nil {
			break
		}
		if s := resp.GetStatus(); s != nil {
			last = s
		}
		if m := resp.GetMessage(); m != nil {
			c.l.rec.Came(op, c.item(topic, m))
			next = m.GetSystemProperties().GetQueueOffset() + 1
			n++
		}
		next = max(next, resp.GetNextOffset())
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	o, code := outcome(last, err)
	if last.GetCode() == rmqv2.Code_MESSAGE_NOT_FOUND && err == nil {
		o = history.OK
	}
	c.l.rec.End(op, o, code, nil)
	return n, max(from, next), o
}

// first is where a queue begins, 0 if that is not known.
func (c *client) first(ctx context.Context, q *rmqv2.MessageQueue) int64 {
	ctx, cancel := c.call(ctx, 3*time.Second)
	defer cancel()
	resp, _ := c.rpc().QueryOffset(ctx, &rmqv2.QueryOffsetRequest{MessageQueue: q, QueryOffsetPolicy: rmqv2.QueryOffsetPolicy_BEGINNING})
	return resp.GetOffset()
}

func (c *client) store(ctx context.Context, q *rmqv2.MessageQueue, to int64) {
	op := c.l.rec.Begin(&history.Op{Kind: history.SetOffset, Client: c.name, Group: groupPull, Topic: topicPulled, N: to, Queues: []history.Queue{c.queueOf(q)}})
	call, cancel := c.call(ctx, 3*time.Second)
	defer cancel()
	resp, err := c.rpc().UpdateOffset(call, &rmqv2.UpdateOffsetRequest{Group: resource(groupPull), MessageQueue: q, Offset: to})
	o, code := outcome(resp.GetStatus(), err)
	c.l.rec.End(op, o, code, nil)
}

// stored asks how far it has come.
func (c *client) stored(ctx context.Context, q *rmqv2.MessageQueue) {
	op := c.l.rec.Begin(&history.Op{Kind: history.GetOffset, Client: c.name, Group: groupPull, Topic: topicPulled, Queues: []history.Queue{c.queueOf(q)}})
	call, cancel := c.call(ctx, 3*time.Second)
	defer cancel()
	resp, err := c.rpc().GetOffset(call, &rmqv2.GetOffsetRequest{Group: resource(groupPull), MessageQueue: q})
	o, code := outcome(resp.GetStatus(), err)
	n := resp.GetOffset()
	if resp.GetStatus().GetCode() == rmqv2.Code_OFFSET_NOT_FOUND {
		o, n = history.OK, -1
	}
	c.l.rec.End(op, o, code, func() { op.N = n })
}

// operate changes topics and groups, resets a group, and moves dead letters back.
func (c *client) operate(ctx context.Context) {
	for ctx.Err() == nil {
		extra := fmt.Sprint("extra-", c.rng.IntN(4))
		switch c.rng.IntN(8) {
		case 0, 1:
			c.define(ctx, history.PutTopic, func(op *history.Op) { op.Names = []string{extra} }, func(ctx context.Context, _ *history.Op) error {
				_, err := c.admin().PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: extra, Queues: 1}})
				return err
			})
		case 2:
			c.define(ctx, history.DelTopic, func(op *history.Op) { op.Names = []string{extra} }, func(ctx context.Context, _ *history.Op) error {
				_, err := c.admin().DeleteTopic(ctx, &adminv1.DeleteTopicRequest{Name: extra})
				return err
			})
		case 3:
			n := int32(1 + c.rng.IntN(50))
			c.define(ctx, history.PutGroup, func(op *history.Op) { op.Names, op.N = []string{extra}, int64(n) }, func(ctx context.Context, _ *history.Op) error {
				_, err := c.admin().PutGroup(ctx, &adminv1.PutGroupRequest{Group: &controllerv1.PutGroupRequest{Name: extra, MaxAttempts: &n, Mode: controllerv1.PutMode_PUT_MODE_UPSERT}})
				return err
			})
		case 4, 5:
			c.list(ctx)
		case 6:
			if c.rng.IntN(4) == 0 {
				c.reset(ctx, c.rng.IntN(3) == 0)
			}
		case 7:
			c.redrive(ctx)
		}
		c.wait(ctx, time.Duration(c.rng.IntN(60))*time.Millisecond)
	}
}

// define makes a call of the administrative service.
func (c *client) define(ctx context.Context, kind history.Kind, about func(*history.Op), do func(context.Context, *history.Op) error) history.Outcome {
	op := &history.Op{Kind: kind, Client: c.name}
	about(op)
	c.l.rec.Begin(op)
	ctx, cancel := c.call(ctx, 5*time.Second)
	defer cancel()
	answer := &history.Op{} // filled in at the end only
	err := do(ctx, answer)
	o, code := adminOutcome(err)
	c.l.rec.End(op, o, code, func() {
		if answer.N != 0 {
			op.N = answer.N
		}
		if answer.Names != nil {
			op.Names, op.Values = answer.Names, answer.Values
		}
		if answer.Queues != nil {
			op.Queues = answer.Queues
		}
	})
	return o
}

// List asks which topics and groups there are, through each proxy.
func (l *Load) List(ctx context.Context) {
	c := l.client("list")
	for range 3 * len(l.conns) {
		c.list(ctx)
	}
}

// list asks which topics and groups there are.
func (c *client) list(ctx context.Context) {
	none := func(*history.Op) {}
	c.define(ctx, history.Topics, none, func(ctx context.Context, a *history.Op) error {
		resp, err := c.admin().ListTopics(ctx, &adminv1.ListTopicsRequest{})
		for _, t := range resp.GetTopics() {
			if strings.HasPrefix(t.GetName(), "extra-") {
				a.Names = append(a.Names, t.GetName())
			}
		}
		return err
	})
	c.define(ctx, history.Groups, none, func(ctx context.Context, a *history.Op) error {
		resp, err := c.admin().ListGroups(ctx, &adminv1.ListGroupsRequest{})
		for _, g := range resp.GetGroups() {
			if strings.HasPrefix(g.GetName(), "extra-") {
				a.Names, a.Values = append(a.Names, g.GetName()), append(a.Values, int64(g.GetMaxAttempts()))
			}
		}
		return err
	})
}

// reset moves a group to the begin or the end of its topic.
func (c *client) reset(ctx context.Context, begin bool) history.Outcome {
	return c.define(ctx, history.Reset, func(op *history.Op) { op.Group, op.Topic = groupResets, topicResets }, func(ctx context.Context, a *history.Op) error {
		req := &adminv1.ResetGroupRequest{Group: groupResets, Topic: topicResets, To: &adminv1.ResetGroupRequest_End{End: true}}
		if begin {
			req.To = &adminv1.ResetGroupRequest_Begin{Begin: true}
		}
		resp, err := c.admin().ResetGroup(ctx, req)
		if err == nil && len(resp.GetUnknown()) > 0 {
			return errors.New(strings.Join(resp.GetUnknown(), "; "))
		}
		for _, q := range resp.GetQueues() {
			a.Queues = append(a.Queues, history.Queue{Topic: topicResets, Broker: q.GetBroker(), ID: q.GetQueue(), To: q.GetTo()})
		}
		return err
	})
}

// redrive moves a few dead letters back.
func (c *client) redrive(ctx context.Context) {
	most := int32(1 + c.rng.IntN(4))
	broker := c.l.at.Groups[c.rng.IntN(len(c.l.at.Groups))]
	c.define(ctx, history.Redrive, func(op *history.Op) { op.Topic, op.Most = lettersTopic, int64(most) }, func(ctx context.Context, a *history.Op) error {
		resp, err := c.admin().RedriveDeadLetters(ctx, &adminv1.RedriveDeadLettersRequest{Topic: lettersTopic, Broker: broker, Max: most})
		a.N = int64(resp.GetRedriven())
		return err
	})
}
