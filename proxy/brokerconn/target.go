package brokerconn

import (
	"context"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/link/grpclink"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Follow makes the connection go to the master of an epoch, at once: what is in flight to a master of a lower epoch, or
// at another address, is answered. An epoch lower than one that was seen changes nothing.
func (c *Conn) Follow(address string, epoch brokerapi.Epoch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch < c.least {
		return
	}
	moved, newer := c.address != address, epoch > c.least
	c.address, c.least = address, epoch
	if c.abort != nil && (moved || c.leads != 0 && c.leads < epoch) {
		c.abort()
	}
	if moved || newer {
		c.hurryLocked()
	}
}

// Hurry makes a connection that is down try at once.
func (c *Conn) Hurry() {
	c.mu.Lock()
	c.hurryLocked()
	c.mu.Unlock()
}

func (c *Conn) hurryLocked() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// target is where to connect. ctx ends when that changes.
func (c *Conn) target(ctx context.Context) (context.Context, context.CancelFunc, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.kick: // this is the try
	default:
	}
	ctx, c.abort = context.WithCancel(ctx)
	c.leads = 0
	return ctx, c.abort, c.address
}

// accept refuses a broker that leads an epoch which is over, and remembers that of another one.
func (c *Conn) accept(address string, peer grpclink.Hello) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	epoch := brokerapi.Epoch(peer.Epoch)
	switch {
	case peer.Shard != uint32(c.shard):
		return mqerr.New(mqerr.Invalid, "the broker at %s is %s of shard %d, not of shard %d", address, peer.Name, peer.Shard, c.shard)
	case epoch < c.least:
		return mqerr.New(mqerr.NotLeader, "broker %s at %s leads epoch %d, and epoch %d has begun", peer.Name, address, epoch, c.least)
	}
	c.least, c.leads = epoch, epoch
	if before := c.epoch.Swap(peer.Epoch); before != 0 && before < peer.Epoch {
		c.switches.Add(1)
	}
	return nil
}
