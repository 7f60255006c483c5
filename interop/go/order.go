package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// fifo receives three message groups with a simple consumer, since this client's push
// consumer goes on to the next message of a group while one that failed waits. One
// message fails at first: it is given back for some seconds, with what came after it.
func (l *lab) fifo() error {
	const n, failing = 20, "a-3" // more than one answer holds
	c, err := l.consumer("fifo", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	groups := []string{"a", "b", "c"}
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
	return c.quiet(await)
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
