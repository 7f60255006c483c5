// Package brokerconn is a proxy's connections to brokers: Conn is one broker over the network, Pool
// keeps one Conn for each shard of the routing table, Local is a broker in the same process.
//
// A shard changes its master, and each master has an epoch. A connection goes to the master of the highest epoch that the
// routes or a broker have told; a broker that leads a lower one is left, and not asked again.
//
// A connection that breaks comes back by itself. Meanwhile calls are answered Unavailable at once. What
// was armed is gone with the connection: its owner hears Down, and Up when it may ask again.
package brokerconn

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/link/brokerlink"
	"github.com/perigee-mq/perigee/internal/link/grpclink"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// Events are what brokers tell, with the shard that tells it. Functions must not block or close the
// connection; nil ones are not called. Up and Down of one shard alternate, beginning with Up.
type Events struct {
	// Ready passes on brokerapi.Events.Ready.
	Ready func(shard brokerapi.ShardID, ready []brokerapi.Ready)
	// Notice passes on brokerapi.Events.Notice.
	Notice func(shard brokerapi.ShardID, n brokerapi.Notice)
	// Up says that the shard's broker can be asked.
	Up func(shard brokerapi.ShardID)
	// Down says that it cannot: every call in flight is answered, what was armed is forgotten.
	Down func(shard brokerapi.ShardID, err error)
}

// Options configures connections. The zero value of a field means its default.
type Options struct {
	// Name is this proxy, for the logs of brokers.
	Name string
	// Release is this program's version, for messages to people.
	Release string
	// Cluster returns the id of the cluster that brokers must belong to. Required.
	Cluster func() string
	// Events are told of what happens.
	Events Events
	// Link configures the links.
	Link link.Options
	// HandshakeTimeout bounds one attempt to connect. Default 5 s.
	HandshakeTimeout time.Duration
	// BackoffMin and BackoffMax bound the pause between attempts, which doubles from one to the other
	// and varies by a fifth. Defaults 50 ms and 3 s.
	BackoffMin, BackoffMax time.Duration
	// Dial opens connections. Default: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Log receives what an operator acts on. Default: discard.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	set(&o.HandshakeTimeout, 5*time.Second)
	set(&o.BackoffMin, 50*time.Millisecond)
	set(&o.BackoffMax, 3*time.Second)
	if o.Link.Counters == nil {
		o.Link.Counters = &link.Counters{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func set(d *time.Duration, v time.Duration) {
	if *d <= 0 {
		*d = v
	}
}

// Conn is one broker over the network. It has one goroutine besides those of the link.
type Conn struct {
	o     Options
	shard brokerapi.ShardID
	name  string // of the shard
	log   *slog.Logger

	client atomic.Pointer[brokerlink.Client] // nil while down
	down   atomic.Pointer[mqerr.Error]       // what calls are told then
	epoch  atomic.Uint64                     // highest that a broker has told

	events  sync.Mutex // orders Up and Down
	mu      sync.Mutex // guards what follows, up to abort
	address string
	least   brokerapi.Epoch    // no broker of a lower epoch is asked
	leads   brokerapi.Epoch    // of the session under way, 0: it has not got that far
	abort   context.CancelFunc // ends the attempt or session under way
	kick    chan struct{}      // a token: try at once
	cancel  context.CancelFunc
	gone    chan struct{}

	switches *atomic.Int64 // sessions in a higher epoch than the one before
}

var _ brokerapi.Broker = (*Conn)(nil)

// Connect returns a connection to the broker of a shard. It connects in the background.
func Connect(o Options, shard brokerapi.ShardID, name, address string) *Conn {
	c := newConn(o, shard, name, address)
	c.start()
	return c
}

func newConn(o Options, shard brokerapi.ShardID, name, address string) *Conn {
	o = o.withDefaults()
	c := &Conn{
		o: o, shard: shard, name: name, address: address, kick: make(chan struct{}, 1), gone: make(chan struct{}), switches: new(atomic.Int64),
		log: o.Log.With(slog.String("shard", name)),
	}
	c.down.Store(mqerr.New(mqerr.Unavailable, "the broker of shard %s at %s is not connected yet", name, address))
	return c
}

func (c *Conn) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go c.run(ctx)
}

// Err is what calls are told now, nil while the broker can be asked.
func (c *Conn) Err() error {
	if c.client.Load() != nil {
		return nil
	}
	return c.down.Load()
}

// Epoch is the highest epoch that the broker has told when it was connected, 0 before.
func (c *Conn) Epoch() brokerapi.Epoch { return brokerapi.Epoch(c.epoch.Load()) }

// Close ends the connection: calls in flight are answered, later ones get Unavailable. It must not be
// called from an answer or an event.
func (c *Conn) Close() error {
	c.cancel()
	<-c.gone
	return nil
}

// run connects again and again.
func (c *Conn) run(ctx context.Context) {
	defer close(c.gone)
	pause := c.o.BackoffMin
	told := "" // the failure that was logged last
	for ctx.Err() == nil {
		was, err := c.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if was {
			pause, told = c.o.BackoffMin, ""
		}
		if text := err.Error(); text != told {
			told = text
			c.log.LogAttrs(ctx, slog.LevelWarn, "no connection to the broker, trying again: check that it runs and that its --advertise address can be reached from here", slog.String("error", text))
		}
		select {
		case <-ctx.Done():
		case <-c.kick:
			pause = c.o.BackoffMin
		case <-time.After(pause*4/5 + rand.N(pause*2/5+1)):
			pause = min(2*pause, c.o.BackoffMax)
		}
	}
	c.down.Store(mqerr.New(mqerr.Unavailable, "this connection to the broker of shard %s is closed", c.name))
}

// session connects once and stays until the link ends. It tells whether the broker could be asked.
func (c *Conn) session(ctx context.Context) (was bool, err error) {
	ctx, cancel, address := c.target(ctx)
	defer cancel()
	lost := func(err error) error {
		c.down.Store(mqerr.New(mqerr.Unavailable, "the broker of shard %s at %s cannot be reached: %w", c.name, address, err))
		return err
	}
	cc, err := c.dial(address)
	if err != nil {
		return false, lost(err)
	}
	defer func() { _ = cc.Close() }()
	t, peer, err := c.open(ctx, cancel, cc)
	if err == nil {
		if err = c.accept(address, peer); err != nil {
			_ = t.Close()
		}
	}
	if err != nil {
		return false, lost(err)
	}
	client := c.up(t, lost)
	c.log.LogAttrs(ctx, slog.LevelInfo, "broker connected", slog.String("address", address), slog.String("broker", peer.Name),
		slog.Uint64("epoch", peer.Epoch))
	select {
	case <-client.Done():
		err = client.Err()
	case <-ctx.Done():
		err = mqerr.New(mqerr.Unavailable, "another broker leads shard %s now", c.name)
	}
	_ = client.Close() // returns nil; waits for the last answer and Down
	return true, err
}

func (c *Conn) dial(address string) (*grpc.ClientConn, error) {
	opts := append(rpc.DialOptions(), grpclink.DialOptions()...)
	opts = append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: c.o.HandshakeTimeout}))
	if c.o.Dial != nil {
		opts = append(opts, grpc.WithContextDialer(c.o.Dial))
		address = "passthrough:///" + address
	}
	cc, err := grpc.NewClient(address, opts...)
	if err != nil {
		return nil, fmt.Errorf("the address %q: %w", address, err)
	}
	return cc, nil
}

// open does the handshake, within its time.
func (c *Conn) open(ctx context.Context, cancel func(), cc *grpc.ClientConn) (link.Transport, grpclink.Hello, error) {
	own := grpclink.Hello{Release: c.o.Release, Cluster: c.o.Cluster(), Name: c.o.Name}
	slow := time.AfterFunc(c.o.HandshakeTimeout, cancel)
	t, peer, err := grpclink.Open(ctx, cc, own)
	if !slow.Stop() {
		if err == nil {
			_ = t.Close()
		}
		return nil, peer, mqerr.New(mqerr.Unavailable, "no answer within %v", c.o.HandshakeTimeout)
	}
	return t, peer, err
}

// up starts the link and tells so; lost is called first thing when it has ended.
func (c *Conn) up(t link.Transport, lost func(error) error) *brokerlink.Client {
	c.events.Lock() // a link that ends at once must wait with Down
	defer c.events.Unlock()
	ev := brokerapi.Events{Down: func(err error) {
		c.events.Lock()
		defer c.events.Unlock()
		_ = lost(err)
		c.client.Store(nil)
		if c.o.Events.Down != nil {
			c.o.Events.Down(c.shard, err)
		}
	}}
	if c.o.Events.Ready != nil {
		ev.Ready = func(ready []brokerapi.Ready) { c.o.Events.Ready(c.shard, ready) }
	}
	if c.o.Events.Notice != nil {
		ev.Notice = func(n brokerapi.Notice) { c.o.Events.Notice(c.shard, n) }
	}
	client := brokerlink.NewClient(t, ev, c.o.Link)
	c.client.Store(client)
	if c.o.Events.Up != nil {
		c.o.Events.Up(c.shard)
	}
	return client
}
