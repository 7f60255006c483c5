package ctl

import (
	"context"
	"log/slog"
	"sync"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// wantTimeout bounds one request for a topic. Who wants the topic asks again.
const wantTimeout = 5 * time.Second

// Wanted are the topics of its own that a broker needs, on their way to the controller. A topic that was
// made comes back as a definition, like any other.
type Wanted struct {
	wake chan struct{} // holds a token when there is something to ask for

	mu    sync.Mutex
	names map[string]bool // to be asked for
}

// NewWanted returns an empty Wanted.
func NewWanted() *Wanted {
	return &Wanted{wake: make(chan struct{}, 1), names: map[string]bool{}}
}

// Want notes a name. It does not block.
func (w *Wanted) Want(name string) {
	w.mu.Lock()
	w.names[name] = true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns one of the names, "" if there is none.
func (w *Wanted) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.names {
		delete(w.names, name)
		return name
	}
	return ""
}

// Run asks the controller for what is wanted on a shard, one by one, until ctx ends.
func (w *Wanted) Run(ctx context.Context, c *Client, shard uint32) {
	told := ""
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		for name := w.take(); name != "" && ctx.Err() == nil; name = w.take() {
			err := c.ensure(ctx, name, shard)
			switch {
			case err == nil:
				told = ""
			case ctx.Err() == nil && err.Error() != told: // once for each reason: it is asked for again and again
				told = err.Error()
				c.log.LogAttrs(ctx, slog.LevelWarn, "the controller does not make a topic that the broker needs: what belongs there waits; it is asked again",
					slog.String("topic", name), slog.String("error", told))
			}
		}
	}
}

// ensure asks once.
func (c *Client) ensure(ctx context.Context, name string, shard uint32) error {
	ctx, cancel := context.WithTimeout(ctx, wantTimeout)
	defer cancel()
	_, err := c.rpc.EnsureTopic(ctx, &controllerv1.EnsureTopicRequest{Name: name, Shard: shard})
	if err != nil {
		return rpc.FromStatus(err)
	}
	return nil
}
