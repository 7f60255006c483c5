package controller

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

const (
	tick = 500 * time.Millisecond
	// progressEvery is how often it is made durable how far the brokers are. Nobody waits for it.
	progressEvery = time.Second
	keysEvery     = time.Minute
	// keyAge is how long a key of receipt handles is used. Handles live for hours at most.
	keyAge = 30 * 24 * time.Hour
	// keySpread is how long a new key is known before it is used, so that every proxy accepts it by then.
	keySpread = 10 * time.Minute
)

// keep does what has to be done from time to time, until ctx ends.
func (c *Controller) keep(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	progress, keys, growth := c.o.Now(), c.o.Now(), c.o.Now()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		c.reg.Tick()
		now := c.o.Now()
		if now.Sub(progress) >= progressEvery {
			progress = now
			for _, cmd := range c.reg.Progress() {
				c.propose(cmd)
			}
		}
		if now.Sub(keys) >= keysEvery {
			keys = now
			c.keepKeys(now)
		}
		if now.Sub(growth) >= growthEvery {
			growth = now
			c.endGrowth(now)
		}
	}
}

// propose applies a command that will be tried again if it fails.
func (c *Controller) propose(cmd state.Command) {
	if _, err := c.node.Apply(cmd); err != nil && !mqerr.Is(err, mqerr.Fenced) {
		c.o.Log.Debug("not stored", slog.Any("error", err))
	}
}

func (c *Controller) keepKeys(now time.Time) {
	var keys state.Keys
	c.node.View(func(s *state.State) { keys = s.Keys() })
	cmd, err := dueKey(keys, now.UnixMilli(), c.o.Rand)
	if err != nil {
		c.o.Log.Error("no new key for receipt handles: the present one is used on, it is tried again each minute; the system gives no random numbers", slog.Any("error", err))
	}
	if cmd != nil && c.node.Leader() == c.o.ID {
		c.propose(cmd)
	}
}

// dueKey returns what has to be done about the keys of receipt handles, nil if nothing.
func dueKey(keys state.Keys, nowMS int64, random io.Reader) (state.Command, error) {
	current, ok := keys.Get(state.KeyCurrent)
	if !ok {
		return nil, nil
	}
	if next, ok := keys.Get(state.KeyNext); ok {
		if nowMS-next.AddedMS < keySpread.Milliseconds() {
			return nil, nil
		}
		return state.UseKey{ID: next.ID}, nil
	}
	if nowMS-current.AddedMS < keyAge.Milliseconds() {
		return nil, nil
	}
	cmd := state.RotateKey{NowMS: nowMS}
	if _, err := io.ReadFull(random, cmd.Key[:]); err != nil {
		return nil, err
	}
	return cmd, nil
}
