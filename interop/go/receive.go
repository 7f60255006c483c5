package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

const bodyMax = 4 << 20

// sizeOf gives the body size of message i of 100: mostly small, some large, one the largest.
func sizeOf(i int) int {
	large := map[int]int{11: 32 << 10, 22: 64<<10 + 1, 33: 256 << 10, 44: 1 << 20, 55: 2<<20 + 7, 66: 3 << 20, 77: bodyMax - 1, 88: bodyMax}
	if size, ok := large[i]; ok {
		return size
	}
	return 1 + i*i%2000
}

// hundredth fills message i of 100: what it holds must come back as it was.
func (t try) hundredth(i int) *rmq.Message {
	m := t.message(strconv.Itoa(i), body(i, sizeOf(i)))
	m.SetTag("tag" + strconv.Itoa(i%5))
	m.SetKeys(fmt.Sprintf("key-%s-%d", t.id, i), "größe-"+strconv.Itoa(sizeOf(i)))
	m.AddProperty("text", "naïve, 日本語, = & \"quoted\" "+strconv.Itoa(i))
	return m
}

func (l *lab) sendHundred() error {
	const n, invisible = 100, 15 * time.Second
	c, err := l.consumer("send", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	want := make(map[string]*rmq.Message, n)
	for i := range n {
		m := c.hundredth(i)
		id, err := send(l.producer, m)
		if err != nil {
			return fmt.Errorf("message %d of %d bytes: %w", i, len(m.Body), err)
		}
		want[id] = m
	}
	if len(want) != n {
		return fmt.Errorf("%d messages got %d ids", n, len(want))
	}
	for deadline := time.Now().Add(20 * time.Second); len(want) > 0; {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d messages did not come", len(want), n)
		}
		mvs, err := c.poll(invisible)
		if err != nil {
			return err
		}
		for _, mv := range mvs {
			if err := same(mv, want[mv.GetMessageId()]); err != nil {
				return err
			}
			delete(want, mv.GetMessageId())
			if err := c.Ack(context.Background(), mv); err != nil {
				return fmt.Errorf("ack: %w", err)
			}
		}
	}
	return c.quiet(invisible + 2*time.Second)
}

// same compares what was received with what was sent.
func same(got *rmq.MessageView, want *rmq.Message) error {
	if want == nil {
		return fmt.Errorf("id %s was not sent, or came twice", got.GetMessageId())
	}
	i := want.GetProperties()["i"]
	switch {
	case !bytes.Equal(got.GetBody(), want.Body):
		return fmt.Errorf("message %s: another body, %d bytes of %d", i, len(got.GetBody()), len(want.Body))
	case !slices.Equal(got.GetKeys(), want.GetKeys()):
		return fmt.Errorf("message %s: keys %q, want %q", i, got.GetKeys(), want.GetKeys())
	case got.GetTag() == nil || *got.GetTag() != *want.GetTag():
		return fmt.Errorf("message %s: another tag, want %q", i, *want.GetTag())
	case !maps.Equal(got.GetProperties(), want.GetProperties()):
		return fmt.Errorf("message %s: properties %q, want %q", i, got.GetProperties(), want.GetProperties())
	}
	return attempt(got, 1)
}

func (l *lab) tagFilter() error {
	c, err := l.consumer("tags", "a || b")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	for i := range 40 {
		m := c.message(strconv.Itoa(i), []byte("x"))
		if tag := []string{"a", "b", "c", ""}[i%4]; tag != "" {
			m.SetTag(tag)
		}
		if _, err := send(l.producer, m); err != nil {
			return err
		}
	}
	mvs, err := c.take(20, invisible, time.Now().Add(20*time.Second))
	if err != nil {
		return err
	}
	for _, mv := range mvs {
		if tag := mv.GetTag(); tag == nil || (*tag != "a" && *tag != "b") {
			return fmt.Errorf("message %s is of another tag", mv.GetProperties()["i"])
		}
		if err := c.Ack(context.Background(), mv); err != nil {
			return err
		}
	}
	return c.quiet(await)
}

func (l *lab) sqlFilter() error {
	c, err := l.consumerOf("sql", topic("sql"), rmq.NewFilterExpressionWithType("region = 'eu' AND (price BETWEEN 10 AND 19.5 OR vip IS NOT NULL)", rmq.SQL92))
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	want := map[string]bool{} // what matches, true when it came
	for i := range 40 {
		m := c.message(strconv.Itoa(i), []byte("x"))
		m.AddProperty("region", []string{"eu", "us"}[i%2])
		m.AddProperty("price", strconv.Itoa(i))
		if i%8 == 0 {
			m.AddProperty("vip", "yes")
		}
		if i%2 == 0 && (10 <= i && i <= 19 || i%8 == 0) {
			want[strconv.Itoa(i)] = false
		}
		if _, err := send(l.producer, m); err != nil {
			return err
		}
	}
	mvs, err := c.take(len(want), invisible, time.Now().Add(20*time.Second))
	if err != nil {
		return err
	}
	for _, mv := range mvs {
		i := mv.GetProperties()["i"]
		if came, matches := want[i]; !matches || came {
			return fmt.Errorf("message %s came, which does not match or came before", i)
		}
		want[i] = true
		if err := c.Ack(context.Background(), mv); err != nil {
			return err
		}
	}
	return c.quiet(await)
}

func (l *lab) longPollWake() error {
	// Not while the other checks are at their busiest.
	time.Sleep(6 * time.Second)
	c, err := l.consumer("wake", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	type arrival struct {
		mvs []*rmq.MessageView
		at  time.Time
		err error
	}
	var delays []time.Duration
	for i := range 5 {
		arrived := make(chan arrival, 1)
		go func() {
			mvs, err := c.take(1, invisible, time.Now().Add(10*time.Second))
			arrived <- arrival{mvs, time.Now(), err}
		}()
		time.Sleep(500 * time.Millisecond) // it waits by now
		m := c.message(strconv.Itoa(i), []byte("x"))
		if _, err := send(l.producer, m); err != nil {
			return err
		}
		answered := time.Now()
		a := <-arrived
		if a.err != nil {
			return a.err
		}
		delays = append(delays, max(0, a.at.Sub(answered)))
		if err := c.Ack(context.Background(), a.mvs[0]); err != nil {
			return err
		}
	}
	slices.Sort(delays)
	if delays[0] >= 100*time.Millisecond || delays[2] >= 500*time.Millisecond {
		return fmt.Errorf("messages came %v after their send, want one within 100 ms and half within 500 ms", delays)
	}
	return nil
}

func (l *lab) emptyPoll() error {
	c, err := l.consumer("empty", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	begin := time.Now()
	mvs, err := c.poll(invisible)
	if err != nil {
		return err
	}
	if len(mvs) > 0 {
		return fmt.Errorf("%d messages came", len(mvs))
	}
	return between("an empty poll ended", time.Since(begin), 4500*time.Millisecond, 8*time.Second)
}

func (l *lab) unknownTopic() error {
	unknown := "it-go-unknown-" + l.run
	_, err := l.producer.Send(context.Background(), &rmq.Message{Topic: unknown, Body: []byte("x")})
	if err := notFound("sending to", err); err != nil {
		return err
	}
	c, err := l.consumer("empty", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	return notFound("subscribing to", c.Subscribe(unknown, rmq.SUB_ALL))
}
