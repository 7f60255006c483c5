package proxy

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/brokerconn"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/server"
)

// LocalBroker is a broker of the same process.
type LocalBroker interface {
	brokerapi.Connector
	// Ready is closed when the broker serves.
	Ready() <-chan struct{}
	// Leads is the shard and epoch that the broker leads; valid after Ready.
	Leads() (brokerapi.ShardID, brokerapi.Epoch)
}

// brokers is how a proxy finds brokers: over the network, or the one in its own process.
type brokers interface {
	server.Brokers
	// start returns when brokers can be found.
	start(ctx context.Context) error
	// follow keeps in step with the routes until ctx ends.
	follow(ctx context.Context) error
	// links counts what passes the links to brokers, nil if there are none.
	links() *link.Counters
	// switches is how often a broker of a higher epoch was connected after one of a lower; false: masters never change.
	switches() (n int64, known bool)
	Close() error
}

// connectTimeout is how long a proxy that starts waits for brokers that are said to be alive.
const connectTimeout = 2 * time.Second

// remote finds brokers over the network, following the routes.
type remote struct {
	*brokerconn.Pool
	routes *route.Table
	up     chan struct{} // told when a broker can be asked
	moved  func()        // the routes may have changed who can be asked
}

func (r *remote) start(ctx context.Context) error {
	r.update(r.routes.Load())
	timer := time.NewTimer(connectTimeout)
	defer timer.Stop()
	for !r.reached() {
		select {
		case <-r.up:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// reached tells whether every shard that is said to be alive can be asked.
func (r *remote) reached() bool {
	for _, s := range r.routes.Load().Shards() {
		if _, _, err := r.Broker(s.ID); err != nil && s.Live {
			return false
		}
	}
	return true
}

// follow keeps the connections in step with the routes until ctx ends.
func (r *remote) follow(ctx context.Context) error {
	for {
		t := r.routes.Load()
		r.update(t)
		r.moved()
		select {
		case <-t.Changed():
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *remote) links() *link.Counters { return r.Counters() }

func (r *remote) switches() (int64, bool) { return r.Switches(), true }

func (r *remote) update(t *route.Snapshot) {
	var shards []brokerconn.Shard
	for _, s := range t.Shards() {
		shards = append(shards, brokerconn.Shard{ID: s.ID, Name: s.Name, Address: s.Address, Epoch: s.Epoch, HasMaster: s.HasMaster})
	}
	r.Update(shards)
}

// local is the broker of this process.
type local struct {
	broker LocalBroker
	name   string
	events brokerconn.Events
	up     atomic.Pointer[brokerconn.Local] // nil before it serves
}

func (l *local) start(ctx context.Context) error {
	select {
	case <-l.broker.Ready():
	case <-ctx.Done():
		return nil
	}
	shard, epoch := l.broker.Leads()
	up, err := brokerconn.AttachLocal(l.name, l.broker, shard, epoch, l.events)
	if err != nil {
		return err
	}
	l.up.Store(up)
	return nil
}

func (l *local) follow(context.Context) error { return nil }

func (l *local) links() *link.Counters { return nil }

func (l *local) switches() (int64, bool) { return 0, false }

func (l *local) Broker(shard brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	if up := l.up.Load(); up != nil {
		return up.Broker(shard)
	}
	return nil, 0, mqerr.New(mqerr.Unavailable, "the broker of this process is starting")
}

func (l *local) Close() error {
	if up := l.up.Load(); up != nil {
		return up.Close()
	}
	return nil
}
