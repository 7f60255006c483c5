package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	"github.com/perigee-mq/perigee/internal/crashtest/history"
)

// drainTime is how long it may take to read everything: leases of 12 s end meanwhile.
const drainTime = time.Minute

// Drain ends all that is open, reads everything with the groups of the load until nothing is left, and
// then all that is stored with one more. The processes stay up from here on.
func (l *Load) Drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	c := l.client("drain")
	if err := c.resolve(ctx); err != nil {
		return err
	}
	if err := c.insist(ctx, "the last reset", func(ctx context.Context) error {
		if o := c.reset(ctx, true); o != history.OK {
			return fmt.Errorf("outcome %v", o)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := each(l.reads(), func(r history.Sub) error { return l.empty(ctx, r) }); err != nil {
		return err
	}
	if err := each([]history.Sub{{Group: groupAudit, Topic: topicNormal}, {Group: groupAuditLite, Topic: topicLite}}, func(r history.Sub) error {
		return l.empty(ctx, r)
	}); err != nil {
		return err
	}
	topics := []history.Sub{{Topic: topicPulled}}
	for _, r := range l.reads() {
		if r.Topic != topicLite {
			topics = append(topics, history.Sub{Topic: r.Topic})
		}
	}
	if l.has(ctx, lettersTopic) {
		topics = append(topics, history.Sub{Topic: lettersTopic})
	}
	return each(topics, func(r history.Sub) error { return l.client("audit-"+r.Topic).scan(ctx, r.Topic) })
}

// scan pulls all that is stored in a topic, done or not.
func (c *client) scan(ctx context.Context, topic string) error {
	for _, q := range c.queues(ctx, topic) {
		for next, end := int64(0), false; !end; {
			if err := c.insist(ctx, "reading "+topic, func(ctx context.Context) error {
				n, to, o := c.pullOnce(ctx, groupAudit, topic, q, next)
				if next = to; o == history.Fail {
					next = c.first(ctx, q)
				}
				if end = n == 0 && o == history.OK; o == history.OK || n > 0 {
					return nil
				}
				return fmt.Errorf("outcome %v", o)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// each does something for all, a few at a time, and returns the first error.
func each(subs []history.Sub, do func(history.Sub) error) error {
	errs := make([]error, len(subs))
	var wg sync.WaitGroup
	for i, s := range subs {
		wg.Go(func() { errs[i] = do(s) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// has tells whether a topic is there.
func (l *Load) has(ctx context.Context, topic string) (is bool) {
	c := l.client("list")
	_ = c.insist(ctx, "topics", func(ctx context.Context) error {
		resp, err := c.admin().ListTopics(ctx, &adminv1.ListTopicsRequest{})
		for _, t := range resp.GetTopics() {
			is = is || t.GetName() == topic
		}
		return err
	})
	return is
}

// resolve gives every half message its verdict, and waits until what was to come later has come.
func (c *client) resolve(ctx context.Context) error {
	ended := map[string]bool{}
	var sent []string
	var due history.Time
	for _, op := range c.l.rec.Snapshot() {
		for _, it := range op.Items {
			switch {
			case op.Kind == history.Send && op.N == history.HalfMessage && it.Outcome == history.OK:
				sent = append(sent, it.ID)
			case (op.Kind == history.Commit || op.Kind == history.Rollback) && it.Outcome == history.OK:
				ended[it.ID] = true
			}
			due = max(due, it.Due)
		}
	}
	for _, id := range sent {
		if ended[id] {
			continue
		}
		if err := c.insist(ctx, "ending "+id, func(ctx context.Context) error {
			if c.end(ctx, id, id, rmqv2.TransactionSource_SOURCE_CLIENT) == history.Unknown {
				return fmt.Errorf("no answer")
			}
			return nil
		}); err != nil {
			return err
		}
	}
	for c.l.rec.Now() < due+history.Time(300*time.Millisecond) {
		c.wait(ctx, 50*time.Millisecond)
	}
	return nil
}

// empty reads a topic with a group until nothing of it is left, acknowledging what comes.
func (l *Load) empty(ctx context.Context, r history.Sub) error {
	c := l.client("drain-" + r.Group + "-" + r.Topic)
	state := ""
	for ctx.Err() == nil {
		call, cancel := c.call(ctx, 3*time.Second)
		d, err := c.admin().DescribeGroup(call, &adminv1.DescribeGroupRequest{Name: r.Group, Topic: r.Topic})
		cancel()
		if state = fmt.Sprint(d.GetTopics(), d.GetUnknown(), err); err != nil || len(d.GetUnknown()) > 0 {
			c.wait(ctx, 50*time.Millisecond)
			continue
		}
		left := int64(0)
		for _, t := range d.GetTopics() {
			left += t.GetReady() + t.GetOverMaxAttempts() + t.GetInFlight() + t.GetWaiting()
			if t.GetReady() == 0 && left > 0 { // somebody has it still
				c.wait(ctx, 50*time.Millisecond)
				left = -1
			}
		}
		if left == 0 {
			return nil
		}
		if left < 0 {
			continue
		}
		if r.Topic == topicLite {
			c.subscribe(ctx, r.Group)
		}
		short, stop := context.WithTimeout(ctx, 700*time.Millisecond) // what is ready comes at once
		gs, _ := c.receive(short, r.Group, r.Topic, 32, invisible)
		stop()
		c.ack(ctx, r.Group, gs...)
	}
	return fmt.Errorf("%s did not read %s to its end within %v: %s", r.Group, r.Topic, drainTime, state)
}
