package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// fifo receives three message groups with a push consumer, which fails none, since it
// would go on to the next message of a group while that one waits; and with a simple
// consumer. There one message fails at first: it is given back for some seconds, with
// what came after it.
func (l *lab) fifo() error {
	const n, failing = 20, "a-3" // more than one answer holds
	c, err := l.consumer("fifo", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	groups := []string{"a", "b", "c"}
	pushed, err := l.fifoPush(c.try)
	if err != nil {
		return err
	}
	for i := range n {
		for _, g := range groups {
			m := c.message(g+"-"+strconv.Itoa(i), []byte("x"))
			m.SetMessageGroup(c.id + g)
			if _, err := send(l.producer, m); err != nil {
				return err
			}
		}
	}
	o := ordered{c: c, failing: failing, next: map[string]int{}}
	for deadline := time.Now().Add(30 * time.Second); o.done < n*len(groups); {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d messages were done in time", o.done, n*len(groups))
		}
		mvs, err := c.poll(invisible)
		if err != nil {
			return err
		}
		if err := o.consume(mvs); err != nil {
			return err
		}
	}
	if want := n * (len(groups) - 1); o.meanwhile < want {
		return fmt.Errorf("%d messages of other groups were done before the failed one came again, want %d", o.meanwhile, want)
	}
	if err := c.quiet(await); err != nil {
		return err
	}
	return pushed.judge(n * len(groups))
}

// pushed is what the push consumer of an ordered group saw.
type pushed struct {
	mu    sync.Mutex     // guards all
	next  map[string]int // the next message of each message group
	wrong error          // the first message that was not the next one
	seen  int
}

// fifoPush starts a push consumer of the messages of a try. It ends with the process.
func (l *lab) fifoPush(this try) (*pushed, error) {
	p := &pushed{next: map[string]int{}}
	c, err := rmq.NewPushConsumer(l.config(l.consuming, "fifopush"),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic("fifo"): rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: func(mv *rmq.MessageView) rmq.ConsumerResult {
			if mv.GetProperties()["try"] == this.id {
				p.consume(mv.GetProperties()["i"])
			}
			return rmq.SUCCESS
		}}))
	if err != nil {
		return nil, err
	}
	return p, c.Start()
}

func (p *pushed) consume(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	group, i, _ := strings.Cut(name, "-")
	if want := strconv.Itoa(p.next[group]); i != want && p.wrong == nil {
		p.wrong = fmt.Errorf("push: message %s came where %s-%s is the next", name, group, want)
	}
	p.next[group]++
	p.seen++
}

func (p *pushed) judge(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrong == nil && p.seen != n {
		return fmt.Errorf("push: %d messages came, want %d", p.seen, n)
	}
	return p.wrong
}

// ordered consumes messages of an ordered group.
type ordered struct {
	c         *consumer
	failing   string         // the message to fail once
	next      map[string]int // the next message of each message group
	failed    time.Time      // when it failed
	done      int            // acknowledged
	meanwhile int            // of other groups, done when the failed one came again
}

// later is for how long what failed is given back.
const later = 5 * time.Second

// consume wants of each message group the next message.
func (o *ordered) consume(mvs []*rmq.MessageView) error {
	var stopped []string // message groups of which one failed in this answer
	for _, mv := range mvs {
		name := mv.GetProperties()["i"]
		group, i, _ := strings.Cut(name, "-")
		if slices.Contains(stopped, group) {
			if err := o.c.ChangeInvisibleDuration(mv, later); err != nil {
				return fmt.Errorf("give back %s: %w", name, err)
			}
			continue
		}
		if want := strconv.Itoa(o.next[group]); i != want {
			return fmt.Errorf("message %s came where %s-%s is the next", name, group, want)
		}
		if got := mv.GetMessageGroup(); got == nil || *got != o.c.id+group {
			return fmt.Errorf("message %s is of another message group", name)
		}
		if name == o.failing && o.failed.IsZero() {
			if err := attempt(mv, 1); err != nil {
				return err
			}
			if err := o.c.ChangeInvisibleDuration(mv, later); err != nil {
				return fmt.Errorf("give back %s: %w", name, err)
			}
			o.failed = time.Now()
			stopped = append(stopped, group)
			continue
		}
		if name == o.failing {
			if err := attempt(mv, 2); err != nil {
				return err
			}
			if err := between("the failed message came again", time.Since(o.failed), later-500*time.Millisecond, later+8*time.Second); err != nil {
				return err
			}
			for g, n := range o.next {
				if g != group {
					o.meanwhile += n
				}
			}
		}
		if err := o.c.Ack(context.Background(), mv); err != nil {
			return fmt.Errorf("ack: %w", err)
		}
		o.next[group]++
		o.done++
	}
	return nil
}
