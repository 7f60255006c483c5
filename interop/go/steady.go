package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// steady sends and receives until it is told to end, and prints what an application sees: README.md.
type steady struct {
	*lab
	mu      sync.Mutex    // guards the output
	stopped chan struct{} // closed when nothing more is to be sent
	ended   chan struct{} // closed when all is to end
}

const steadyPause = 50 * time.Millisecond

func (l *lab) steady() error {
	s := &steady{lab: l, stopped: make(chan struct{}), ended: make(chan struct{})}
	simple, err := l.consumerOf("steady", topic("steady"), rmq.SUB_ALL)
	if err != nil {
		return err
	}
	order, err := l.consumerOf("steadyfifo", topic("steadyfifo"), rmq.SUB_ALL)
	if err != nil {
		return err
	}
	push, err := rmq.NewPushConsumer(l.config(l.consuming, "steadypush"),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic("steady"): rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: func(mv *rmq.MessageView) rmq.ConsumerResult {
			s.say("got", "push", mv.GetProperties()["i"], fmt.Sprint(mv.GetDeliveryAttempt()))
			return rmq.SUCCESS
		}}))
	if err != nil {
		return err
	}
	if err := push.Start(); err != nil {
		return err
	}
	var senders, receivers sync.WaitGroup
	senders.Go(func() { s.send("n", topic("steady"), "") })
	senders.Go(func() { s.send("f", topic("steadyfifo"), "one") })
	receivers.Go(func() { s.receive("simple", simple) })
	receivers.Go(func() { s.receive("fifo", order) })
	s.say("ready")
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	close(s.stopped)
	senders.Wait()
	s.say("produced")
	for in.Scan() { // until its end
	}
	close(s.ended)
	receivers.Wait()
	return nil
}

// say prints an event: milliseconds, and words.
func (s *steady) say(words ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range words {
		words[i] = strings.NewReplacer("\t", " ", "\n", " ").Replace(w)
	}
	fmt.Printf("%d\t%s\n", time.Now().UnixMilli(), strings.Join(words, "\t"))
}

func (s *steady) send(prefix, topic, group string) {
	for i := 0; ; i++ {
		select {
		case <-s.stopped:
			return
		case <-time.After(steadyPause):
		}
		key := prefix + strconv.Itoa(i)
		m := &rmq.Message{Topic: topic, Body: []byte(key)}
		m.AddProperty("i", key)
		if group != "" {
			m.SetMessageGroup(group)
		}
		if _, err := s.producer.Send(context.Background(), m); err != nil {
			s.say("unsent", key, err.Error())
			continue
		}
		s.say("sent", key)
	}
}

func (s *steady) receive(name string, c *consumer) {
	for {
		select {
		case <-s.ended:
			return
		default:
		}
		all, err := c.once(invisible)
		if errors.Is(err, errLost) {
			s.say("lost", name)
			continue
		}
		if err != nil {
			s.say("unreceived", name, err.Error())
			time.Sleep(steadyPause)
			continue
		}
		for _, mv := range all {
			key := mv.GetProperties()["i"]
			s.say("got", name, key, fmt.Sprint(mv.GetDeliveryAttempt()))
			if err := c.Ack(context.Background(), mv); err != nil {
				s.say("unacked", name, key, err.Error())
				continue
			}
			s.say("acked", name, key)
		}
	}
}
