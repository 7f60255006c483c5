package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// delay sends messages that are due in about 3 s.
func (l *lab) delay() error {
	c, err := l.consumer("delay", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	var due [3]time.Time
	for i := range due {
		due[i] = time.Now().Add(3*time.Second + time.Duration(i)*500*time.Millisecond).Truncate(time.Millisecond)
		m := c.message(strconv.Itoa(i), []byte("x"))
		m.SetDelayTimestamp(due[i])
		if _, err := send(l.producer, m); err != nil {
			return err
		}
	}
	var lates []time.Duration
	for deadline := time.Now().Add(15 * time.Second); len(lates) < len(due); {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d messages came in time", len(lates), len(due))
		}
		mvs, err := c.poll(invisible)
		now := time.Now()
		if err != nil {
			return err
		}
		for _, mv := range mvs {
			i, err := strconv.Atoi(mv.GetProperties()["i"])
			if err != nil {
				return err
			}
			late := now.Sub(due[i])
			if late < 0 {
				return fmt.Errorf("message %d came %v too early", i, -late)
			}
			lates = append(lates, late)
			if err := attempt(mv, 1); err != nil {
				return err
			}
			if err := c.Ack(context.Background(), mv); err != nil {
				return err
			}
		}
	}
	slices.Sort(lates)
	if lates[0] > time.Second || lates[2] > 15*time.Second { // the programs compete for the processor
		return fmt.Errorf("messages came %v after they were due, want one within 1 s and all within 15 s", lates)
	}
	return c.quiet(await)
}
