// Package checks asks producers about transactions that nobody has ended. It tells every broker of which
// topics this proxy has producers; a broker that has checks for it sends a notice, upon which the checks are
// fetched and each goes down the telemetry stream of a producer of its topic, one after the other in turn.
//
// Nothing here is remembered: a check that reaches nobody comes again from its broker after an interval.
package checks

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/route"
)

// Brokers finds the broker that leads a shard.
type Brokers interface {
	// Broker returns the broker and the highest epoch seen of its shard.
	Broker(shard brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error)
}

// Options configures a Checker. The zero value of a field means its default.
type Options struct {
	Clients *clients.Table // required
	Routes  *route.Table   // required
	Brokers Brokers        // required
	// StoreHost names the broker of a shard to clients, host:port. Required.
	StoreHost func(brokerapi.ShardID) string
	// Every is the time after which what could not be told to a broker is told again. Default 3 s.
	Every time.Duration
	Log   *slog.Logger // default: discard
}

// Stats are what a Checker has done since its start.
type Stats struct {
	Sent   uint64 // checks handed to a stream
	Unsent uint64 // checks that no stream took: they come again
}

// Checker is one proxy's side of the checks. Notice and Up never block.
type Checker struct {
	o            Options
	wake         chan struct{}
	sent, unsent atomic.Uint64
	work         sync.WaitGroup

	mu       sync.Mutex
	ended    bool
	shards   map[brokerapi.ShardID]*shard
	outboxes map[clients.Stream]*outbox
}

// shard is what has to be done with one broker. Guarded by Checker.mu.
type shard struct {
	want    []brokerapi.TopicID // with producers and queues there, sorted
	told    []brokerapi.TopicID // what the broker was told last
	stale   bool                // the broker may know something else
	noticed bool                // checks wait
	busy    bool                // a goroutine is at work
}

// outdated tells whether the broker has to be told.
func (s *shard) outdated() bool { return s.stale || !slices.Equal(s.want, s.told) }

// New returns a Checker.
func New(o Options) *Checker {
	if o.Every == 0 {
		o.Every = 3 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Checker{o: o, wake: make(chan struct{}, 1), shards: map[brokerapi.ShardID]*shard{}, outboxes: map[clients.Stream]*outbox{}}
}

// Stats returns what has been done.
func (c *Checker) Stats() Stats { return Stats{Sent: c.sent.Load(), Unsent: c.unsent.Load()} }

func (c *Checker) shardLocked(id brokerapi.ShardID) *shard {
	s := c.shards[id]
	if s == nil {
		s = &shard{stale: true}
		c.shards[id] = s
	}
	return s
}

// Notice says that a broker has checks for this proxy.
func (c *Checker) Notice(id brokerapi.ShardID) {
	c.mu.Lock()
	c.shardLocked(id).noticed = true
	c.mu.Unlock()
	c.ring()
}

// Up says that a broker can be asked, and knows nothing of this proxy.
func (c *Checker) Up(id brokerapi.ShardID) {
	c.mu.Lock()
	c.shardLocked(id).stale = true
	c.mu.Unlock()
	c.ring()
}

func (c *Checker) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (c *Checker) Run(ctx context.Context) error {
	ticker := time.NewTicker(c.o.Every)
	defer ticker.Stop()
	for {
		routes := c.o.Routes.Load()
		c.aim(routes)
		c.start(ctx)
		select {
		case <-ctx.Done():
			c.mu.Lock()
			c.ended = true
			c.mu.Unlock()
			c.work.Wait()
			return nil
		case <-c.wake:
		case <-c.o.Clients.ProducersChanged():
		case <-routes.Changed():
		case <-ticker.C:
		}
	}
}

// aim finds what each broker should know.
func (c *Checker) aim(routes *route.Snapshot) {
	want := map[brokerapi.ShardID][]brokerapi.TopicID{}
	for _, name := range c.o.Clients.ProducedTopics() {
		if t := routes.Topic([]byte(name)); t != nil {
			for _, p := range t.Placements {
				want[p.Shard] = append(want[p.Shard], t.ID)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range want {
		c.shardLocked(id)
	}
	for id, s := range c.shards {
		slices.Sort(want[id])
		s.want = want[id]
	}
}

// start starts the work that is to be done, one goroutine a broker at most.
func (c *Checker) start(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.shards {
		if !s.busy && !c.ended && (s.noticed || s.outdated()) {
			s.busy = true
			c.work.Go(func() { c.serve(ctx, id, s) })
		}
	}
}

// askTimeout bounds a call to a broker.
const askTimeout = 5 * time.Second

// serve tells a broker what it should know and fetches what it has.
func (c *Checker) serve(ctx context.Context, id brokerapi.ShardID, s *shard) {
	err := c.tell(ctx, id, s)
	if err == nil {
		err = c.fetch(ctx, id, s)
	}
	c.mu.Lock()
	s.busy = false
	again := err == nil && (s.noticed || s.outdated())
	c.mu.Unlock()
	if again {
		c.ring()
	}
	if err != nil && ctx.Err() == nil { // the ticker tries again
		c.o.Log.LogAttrs(ctx, slog.LevelDebug, "transactions cannot be checked now", slog.Uint64("shard", uint64(id)), slog.String("error", err.Error()))
	}
}

func (c *Checker) tell(ctx context.Context, id brokerapi.ShardID, s *shard) error {
	c.mu.Lock()
	want, outdated := s.want, s.outdated()
	s.told, s.stale = want, false // a connection that is new meanwhile makes it stale again
	c.mu.Unlock()
	if !outdated {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	b, _, err := c.o.Brokers.Broker(id)
	if err == nil {
		_, err = b.Producers(ctx, &brokerapi.ProducersRequest{Topics: want})
	}
	if err != nil {
		c.mu.Lock()
		s.stale = true
		c.mu.Unlock()
	}
	return err
}
