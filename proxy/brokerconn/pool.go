package brokerconn

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Shard is what the pool needs to know of a broker group.
type Shard struct {
	ID        brokerapi.ShardID
	Name      string
	Address   string          // of the master, host:port; empty: not known
	Epoch     brokerapi.Epoch // of the master
	HasMaster bool            // false: nobody leads it now
}

// Pool keeps a connection to the broker of each shard. It is safe for concurrent use.
type Pool struct {
	o        Options
	switches atomic.Int64
	entries  atomic.Pointer[map[brokerapi.ShardID]*entry] // replaced, never changed

	mu      sync.Mutex // guards changes of entries, and closed
	closed  bool
	closing sync.WaitGroup
}

// entry is one shard. It is never changed.
type entry struct {
	Shard
	conn *Conn // nil: the address is not known
}

// NewPool returns a pool without shards.
func NewPool(o Options) *Pool {
	p := &Pool{o: o.withDefaults()}
	p.entries.Store(&map[brokerapi.ShardID]*entry{})
	return p
}

// Counters counts what passed all links of the pool.
func (p *Pool) Counters() *link.Counters { return p.o.Link.Counters }

// Switches is how often a broker of a higher epoch was connected after one of a lower.
func (p *Pool) Switches() int64 { return p.switches.Load() }

// Update tells all shards of the routing table: new ones are connected, those with another address
// connect there, vanished ones are closed. A shard in a lower epoch than before stays as it was.
func (p *Pool) Update(shards []Shard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	old := *p.entries.Load()
	entries := make(map[brokerapi.ShardID]*entry, len(shards))
	var fresh []*Conn
	for _, s := range shards {
		e := &entry{Shard: s}
		was := old[s.ID]
		if was != nil && s.Epoch < was.Epoch {
			entries[s.ID] = was
			continue
		}
		if was != nil {
			e.conn = was.conn
		}
		switch {
		case e.Address == "": // keep trying where it was
		case e.conn == nil:
			e.conn = newConn(p.o, s.ID, s.Name, s.Address)
			e.conn.switches = &p.switches
			e.conn.least = s.Epoch
			fresh = append(fresh, e.conn)
		default:
			e.conn.Follow(s.Address, s.Epoch)
			if e.HasMaster && !was.HasMaster {
				e.conn.Hurry()
			}
		}
		entries[s.ID] = e
	}
	p.entries.Store(&entries)
	for _, c := range fresh {
		c.start() // now Broker finds it, whoever hears Up
	}
	for id, e := range old {
		if entries[id] == nil && e.conn != nil {
			p.closing.Go(func() { _ = e.conn.Close() })
		}
	}
}

// Broker returns the broker that leads a shard and the highest epoch seen of it. The error is of kind
// Unavailable when it cannot be asked now.
func (p *Pool) Broker(id brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	e := (*p.entries.Load())[id]
	switch {
	case e == nil:
		return nil, 0, mqerr.New(mqerr.Unavailable, "shard %d is not in the routing table", id)
	case e.conn == nil || !e.HasMaster && e.conn.Epoch() <= e.Epoch: // a broker may tell of its election first
		return nil, 0, mqerr.New(mqerr.Unavailable, "shard %s has no master now", e.Name)
	}
	if err := e.conn.Err(); err != nil {
		return nil, 0, err
	}
	return e.conn, max(e.Epoch, e.conn.Epoch()), nil
}

// Close closes all connections and waits for them.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	entries := *p.entries.Swap(&map[brokerapi.ShardID]*entry{})
	p.mu.Unlock()
	for e := range maps.Values(entries) {
		if e.conn != nil {
			p.closing.Go(func() { _ = e.conn.Close() })
		}
	}
	p.closing.Wait()
	return nil
}
