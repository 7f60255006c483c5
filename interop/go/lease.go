package main

import (
	"context"
	"fmt"
	"time"
)

func (l *lab) noAck() error {
	c, err := l.consumer("noack", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	id, err := send(l.producer, c.message("1", []byte("x")))
	if err != nil {
		return err
	}
	var times [2]time.Time
	for i := range times {
		mvs, err := c.take(1, invisible, time.Now().Add(20*time.Second))
		if err != nil {
			return err
		}
		times[i] = time.Now()
		if mvs[0].GetMessageId() != id {
			return fmt.Errorf("id %s, want %s", mvs[0].GetMessageId(), id)
		}
		if err := attempt(mvs[0], int32(i+1)); err != nil {
			return err
		}
		if i == 1 {
			if err := c.Ack(context.Background(), mvs[0]); err != nil {
				return err
			}
		}
	}
	return between("the message came again", times[1].Sub(times[0]), 9500*time.Millisecond, 13*time.Second)
}

// changeInvisible prolongs three leases. One message is acknowledged with the
// handle from before, one with that from after, and one not at all: it proves
// that the change had an effect.
func (l *lab) changeInvisible() error {
	const longer = 15 * time.Second
	c, err := l.consumer("change", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	names := []string{"old", "new", "none"}
	for _, name := range names {
		if _, err := send(l.producer, c.message(name, []byte("x"))); err != nil {
			return err
		}
	}
	mvs, err := c.take(len(names), invisible, time.Now().Add(10*time.Second))
	if err != nil {
		return err
	}
	var changed time.Time
	for _, mv := range mvs {
		before := mv.ReceiptHandle
		if err := c.ChangeInvisibleDuration(mv, longer); err != nil {
			return fmt.Errorf("change: %w", err)
		}
		after := mv.ReceiptHandle
		if after == "" {
			return fmt.Errorf("change: no receipt handle in the answer")
		}
		name := mv.GetProperties()["i"]
		switch name {
		case "none":
			changed = time.Now()
			continue
		case "old":
			mv.ReceiptHandle = before
		}
		if err := c.Ack(context.Background(), mv); err != nil {
			return fmt.Errorf("ack with the %s handle: %w", name, err)
		}
	}
	again, err := c.take(1, invisible, changed.Add(longer+4*time.Second))
	if err != nil {
		return err
	}
	if name := again[0].GetProperties()["i"]; name != "none" {
		return fmt.Errorf("the message acknowledged with the %s handle came again", name)
	}
	if err := between("the message came again", time.Since(changed), longer-500*time.Millisecond, longer+3*time.Second); err != nil {
		return err
	}
	if err := attempt(again[0], 2); err != nil {
		return err
	}
	if err := c.Ack(context.Background(), again[0]); err != nil {
		return err
	}
	return c.quiet(3 * time.Second)
}
