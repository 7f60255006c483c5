package load

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/crashtest/history"
)

// about is a call with handles.
func about(kind history.Kind, c *client, group string, gs ...got) *history.Op {
	op := &history.Op{Kind: kind, Client: c.name, Group: group, Topic: gs[0].topic}
	for _, g := range gs {
		op.Items = append(op.Items, history.Item{ID: g.sys().GetMessageId(), Lease: g.lease})
	}
	return op
}

// answer takes down the answer to a call with handles.
func (c *client) answer(op *history.Op, o history.Outcome, code string, entries []*rmqv2.Status) {
	c.l.rec.End(op, o, code, func() {
		for i := range op.Items {
			it := &op.Items[i]
			it.Outcome = o
			if i < len(entries) {
				it.Outcome, _ = outcome(entries[i], nil)
				it.Invalid = entries[i].GetCode() == rmqv2.Code_INVALID_RECEIPT_HANDLE
			}
		}
	})
}

func (c *client) ack(ctx context.Context, group string, gs ...got) history.Outcome {
	if len(gs) == 0 {
		return history.OK
	}
	op := c.l.rec.Begin(about(history.Ack, c, group, gs...))
	ctx, cancel := c.call(ctx, 4*time.Second)
	defer cancel()
	req := &rmqv2.AckMessageRequest{Group: resource(group), Topic: resource(gs[0].topic)}
	for _, g := range gs {
		e := &rmqv2.AckMessageEntry{MessageId: g.sys().GetMessageId(), ReceiptHandle: g.sys().GetReceiptHandle()}
		if l := g.sys().GetLiteTopic(); l != "" {
			e.LiteTopic = &l
		}
		req.Entries = append(req.Entries, e)
	}
	resp, err := c.rpc().AckMessage(ctx, req)
	o, code := outcome(resp.GetStatus(), err)
	var entries []*rmqv2.Status
	for _, e := range resp.GetEntries() {
		entries = append(entries, e.GetStatus())
	}
	c.answer(op, o, code, entries)
	return o
}

// change gives a message another time until it comes again, 0 for at once.
func (c *client) change(ctx context.Context, group string, g got, d time.Duration) history.Outcome {
	op := about(history.Change, c, group, g)
	op.For = history.Time(d)
	c.l.rec.Begin(op)
	ctx, cancel := c.call(ctx, 4*time.Second)
	defer cancel()
	req := &rmqv2.ChangeInvisibleDurationRequest{
		Group: resource(group), Topic: resource(g.topic), ReceiptHandle: g.sys().GetReceiptHandle(), MessageId: g.sys().GetMessageId(), InvisibleDuration: durationpb.New(d),
	}
	if l := g.sys().GetLiteTopic(); l != "" {
		req.LiteTopic = &l
	}
	resp, err := c.rpc().ChangeInvisibleDuration(ctx, req)
	o, code := outcome(resp.GetStatus(), err)
	c.answer(op, o, code, one(resp.GetStatus(), err))
	return o
}

func one(s *rmqv2.Status, err error) []*rmqv2.Status {
	if err != nil {
		return nil
	}
	return []*rmqv2.Status{s}
}

// forward gives a message up.
func (c *client) forward(ctx context.Context, group string, g got) {
	op := c.l.rec.Begin(about(history.Forward, c, group, g))
	ctx, cancel := c.call(ctx, 4*time.Second)
	defer cancel()
	resp, err := c.rpc().ForwardMessageToDeadLetterQueue(ctx, &rmqv2.ForwardMessageToDeadLetterQueueRequest{
		Group: resource(group), Topic: resource(g.topic), ReceiptHandle: g.sys().GetReceiptHandle(), MessageId: g.sys().GetMessageId(),
		DeliveryAttempt: g.sys().GetDeliveryAttempt(), MaxDeliveryAttempts: attemptsMax,
	})
	o, code := outcome(resp.GetStatus(), err)
	c.answer(op, o, code, one(resp.GetStatus(), err))
}

// held is a message that a consumer works on for a while.
type held struct {
	got
	until time.Time
}

// consume receives from a topic for a group, and does with what comes all that can be done.
func (c *client) consume(ctx context.Context, group, topic string, most int, before func(context.Context)) {
	var work []held
	for ctx.Err() == nil {
		if before != nil {
			before(ctx)
		}
		gs, o := c.receive(ctx, group, topic, 1+c.rng.IntN(most), invisible)
		work = append(work, c.treat(ctx, group, gs)...)
		work = c.finish(ctx, group, work, false)
		c.pace(ctx, o)
	}
	c.finish(context.WithoutCancel(ctx), group, work, true)
}

// treat does something with each message: most are acknowledged, some come again, some are worked on.
func (c *client) treat(ctx context.Context, group string, gs []got) (work []held) {
	var ack []got
	keep := func(g got, d time.Duration) { work = append(work, held{g, time.Now().Add(d)}) }
	for _, g := range gs {
		switch n := c.rng.IntN(100); {
		case n < 3: // comes again when its lease has ended
		case n < 8:
			c.change(ctx, group, g, 0)
		case n < 10:
			c.change(ctx, group, g, time.Duration(c.rng.IntN(3000))*time.Millisecond)
		case n < 15:
			keep(g, time.Duration(c.rng.IntN(6000))*time.Millisecond)
		case n < 18:
			if c.change(ctx, group, g, 12*time.Second) == history.OK {
				keep(g, time.Duration(c.rng.IntN(8000))*time.Millisecond)
			}
		case n < 40 && group == groupDying:
			c.forward(ctx, group, g)
		case n < 60 && group == groupDying:
			c.change(ctx, group, g, 0)
		default:
			ack = append(ack, g)
		}
	}
	c.ack(ctx, group, ack...)
	return work
}

// finish acknowledges what was worked on long enough, or all. An ack without an answer is repeated, once.
func (c *client) finish(ctx context.Context, group string, work []held, all bool) (rest []held) {
	for _, h := range work {
		switch {
		case !all && time.Now().Before(h.until):
			rest = append(rest, h)
		case c.ack(ctx, group, h.got) == history.Unknown && c.rng.IntN(2) == 0:
			c.ack(ctx, group, h.got)
		}
	}
	return rest
}

// attend consumes as push consumers do: what it has is its own while it is heard of.
func (c *client) attend(ctx context.Context, group, topic string) {
	var work []held
	for ctx.Err() == nil {
		gs, o := c.receive(ctx, group, topic, 1+c.rng.IntN(8), session)
		for _, g := range gs {
			if c.rng.IntN(4) == 0 {
				work = append(work, held{g, time.Now().Add(time.Duration(c.rng.IntN(8000)) * time.Millisecond)})
				continue
			}
			c.ack(ctx, group, g)
		}
		work = c.finish(ctx, group, work, false)
		c.pace(ctx, o)
	}
	ctx = context.WithoutCancel(ctx)
	c.finish(ctx, group, work, true)
	_ = c.insist(ctx, "goodbye", func(ctx context.Context) error {
		op := c.l.rec.Begin(&history.Op{Kind: history.Goodbye, Client: c.name, Group: group})
		resp, err := c.rpc().NotifyClientTermination(ctx, &rmqv2.NotifyClientTerminationRequest{Group: resource(group)})
		o, code := outcome(resp.GetStatus(), err)
		c.l.rec.End(op, o, code, nil)
		if o != history.OK {
			return errors.New(code)
		}
		return nil
	})
}
