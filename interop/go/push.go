package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// consumed is what a push consumer saw.
type consumed struct {
	mu       sync.Mutex // guards all
	attempts map[string][]int32
	times    map[string][]time.Time
	done     int
}

func (l *lab) pushConsume() error {
	const n, failing = 50, "7"
	this := l.newTry("push")
	seen := consumed{attempts: map[string][]int32{}, times: map[string][]time.Time{}}
	c, err := rmq.NewPushConsumer(l.config(l.consuming, "push"),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic("push"): rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: func(mv *rmq.MessageView) rmq.ConsumerResult {
			if mv.GetProperties()["try"] != this.id {
				return rmq.SUCCESS
			}
			seen.mu.Lock()
			defer seen.mu.Unlock()
			i := mv.GetProperties()["i"]
			seen.attempts[i] = append(seen.attempts[i], mv.GetDeliveryAttempt())
			seen.times[i] = append(seen.times[i], time.Now())
			if i == failing && len(seen.times[i]) == 1 {
				return rmq.FAILURE
			}
			seen.done++
			return rmq.SUCCESS
		}}))
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	for i := range n {
		if _, err := send(l.producer, this.message(strconv.Itoa(i), []byte("x"))); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		seen.mu.Lock()
		done := seen.done
		seen.mu.Unlock()
		if done >= n {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d messages were consumed in time", done, n)
		}
	}
	time.Sleep(2 * time.Second) // none comes once more
	// Stopping waits for the pending poll, up to 23 s.
	if err := c.GracefulStop(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return seen.judge(n, failing)
}

// judge wants each of n messages once, and the one that failed twice.
func (s *consumed) judge(n int, failing string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.attempts) != n {
		return fmt.Errorf("%d different messages, want %d", len(s.attempts), n)
	}
	for i, attempts := range s.attempts {
		want := []int32{1}
		if i == failing {
			want = []int32{1, 2}
		}
		if fmt.Sprint(attempts) != fmt.Sprint(want) {
			return fmt.Errorf("message %s came with attempts %v, want %v", i, attempts, want)
		}
	}
	t := s.times[failing]
	return between("the failed message came again", t[1].Sub(t[0]), 900*time.Millisecond, 6*time.Second)
}

// tls sends and receives through TLS, with a producer and a consumer of its own.
func (l *lab) tls() error {
	p, err := rmq.NewProducer(l.config(l.producing, ""), rmq.WithTopics(topic("tls")))
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.GracefulStop()
	c, err := l.consumer("tls", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	id, err := send(p, c.message("1", body(1, 100_000)))
	if err != nil {
		return err
	}
	mvs, err := c.take(1, invisible, time.Now().Add(10*time.Second))
	if err != nil {
		return err
	}
	if mvs[0].GetMessageId() != id || string(mvs[0].GetBody()) != string(body(1, 100_000)) {
		return fmt.Errorf("another message came")
	}
	return c.Ack(context.Background(), mvs[0])
}
