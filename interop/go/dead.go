package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// deadLetter fails a message in a push consumer until its group gives it up, and
// receives it from the topic of the group's dead letters.
func (l *lab) deadLetter() error {
	this := l.newTry("dead")
	var mu sync.Mutex
	var attempts []int32
	push, err := rmq.NewPushConsumer(l.config(l.consuming, "dead"),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic("dead"): rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: func(mv *rmq.MessageView) rmq.ConsumerResult {
			if mv.GetProperties()["try"] != this.id {
				return rmq.SUCCESS
			}
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, mv.GetDeliveryAttempt())
			return rmq.FAILURE
		}}))
	if err != nil {
		return err
	}
	if err := push.Start(); err != nil {
		return err
	}
	m := this.message("1", body(1, 1000))
	m.SetTag("dead")
	m.SetKeys("key-" + this.id)
	id, err := send(l.producer, m)
	if err != nil {
		return err
	}
	mv, err := l.deadOf(this, 20*time.Second)
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	switch tag := mv.GetTag(); {
	case fmt.Sprint(attempts) != "[1 2]":
		return fmt.Errorf("the listener saw the attempts %v, want 1 and 2", attempts)
	case mv.GetMessageId() != id:
		return fmt.Errorf("dead letter: id %s, want %s", mv.GetMessageId(), id)
	case !bytes.Equal(mv.GetBody(), m.Body):
		return fmt.Errorf("dead letter: another body")
	case tag == nil || *tag != "dead" || fmt.Sprint(mv.GetKeys()) != fmt.Sprint(m.GetKeys()):
		return fmt.Errorf("dead letter: another tag, or keys %q", mv.GetKeys())
	}
	for name, value := range m.GetProperties() {
		if got := mv.GetProperties()[name]; got != value {
			return fmt.Errorf("dead letter: property %s is %q, want %q", name, got, value)
		}
	}
	return nil
}

// deadOf receives the dead letter of a try. The topic is there with its first message.
func (l *lab) deadOf(this try, within time.Duration) (*rmq.MessageView, error) {
	deadline := time.Now().Add(within)
	for {
		mv, err := l.receiveDead(this, deadline)
		if err == nil || time.Now().After(deadline) {
			return mv, err
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func (l *lab) receiveDead(this try, deadline time.Time) (*rmq.MessageView, error) {
	c, err := l.consumerOf("deadread", "%DLQ%"+topic("dead")+"-"+l.run, rmq.SUB_ALL)
	if err != nil {
		return nil, err
	}
	defer c.GracefulStop()
	c.try = this
	mvs, err := c.take(1, invisible, deadline)
	if err != nil {
		return nil, err
	}
	return mvs[0], c.Ack(context.Background(), mvs[0])
}
