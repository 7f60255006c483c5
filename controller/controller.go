// Package controller is the tier that knows topics, groups, broker groups and their masters.
//
// A Controller hosts a Raft node (controller/raft) with the state (controller/state), follows brokers
// and proxies (controller/registry, controller/liveness) and serves perigee.controller.v1
// (controller/server). Brokers and proxies go on without it: a restart of the controller ends their
// streams, they open them again, and nothing that they serve changes meanwhile.
package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/raft"
	"github.com/perigee-mq/perigee/controller/registry"
	"github.com/perigee-mq/perigee/controller/server"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/lease"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// Options configures New. The zero value of a field means its default.
type Options struct {
	// DataDir holds the controller's data. Needed.
	DataDir string
	// ID names this node for ever. Default "c1".
	ID string
	// Addr is where brokers and proxies connect, host:port. Default 127.0.0.1:9876.
	Addr string
	// Listener, if not nil, is used instead of Addr; Run closes it.
	Listener net.Listener
	// RaftAddr is where other controllers connect, host:port. Empty: a single node without that port.
	RaftAddr string
	// RaftAdvertise, Members, Join and Election are those of raft.Options: what others call RaftAddr, who
	// founds the cluster with this node, whether it joins one, and how long it bears silence of the leader.
	RaftAdvertise string
	Members       []raft.Member
	Join          bool
	Election      time.Duration
	// HTTPAddr is where others reach this node's metrics and health, for the status; empty: nowhere.
	HTTPAddr string
	// AdvertiseAddr is where others reach this node's Addr. Default: the address it listens on.
	AdvertiseAddr string
	// Dial connects to brokers and other controllers, RaftListen opens RaftAddr. Default: TCP.
	Dial       func(ctx context.Context, addr string) (net.Conn, error)
	RaftListen func(addr string) (net.Listener, error)
	// RaftStore opens what keeps the log and the votes. Default: a file in DataDir.
	RaftStore func() (raft.LogStore, error)
	// Boot is the boot-time clock that leases run on. Default: that of this machine.
	Boot func() time.Duration
	// Silence is how long a broker may say nothing before its master is marked. Default 3 s.
	Silence time.Duration
	// Lease is how long a master may count on being the only one after it was told so, at least 500 ms. Default 3 s.
	Lease time.Duration
	// FastFailover replaces a master whose stream has broken and that accepts no connection at once, without waiting
	// for the end of its lease.
	FastFailover bool
	// Peers bounds the connections of other processes, PeerCalls the calls that are open on one of them. Default 4096, 1024.
	Peers, PeerCalls int
	// Topics and Groups bound what the cluster may define while this node leads. Default: the most that are possible.
	Topics, Groups int
	// Metrics is where instruments are registered; nil: nowhere.
	Metrics metric.Meter
	// DrainTimeout bounds how long a stop waits for calls that go on. Default 3 s.
	DrainTimeout time.Duration
	// Release is that of this binary. Default "dev".
	Release string
	// Log receives this tier's records. Default: discard.
	Log *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Rand makes keys and the cluster's id. Default crypto/rand.
	Rand io.Reader
}

func (o Options) withDefaults() Options {
	text := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 3 * time.Second
	}
	if o.Peers <= 0 {
		o.Peers = 4096
	}
	if o.PeerCalls <= 0 {
		o.PeerCalls = 1024
	}
	text(&o.ID, "c1")
	text(&o.Addr, "127.0.0.1:9876")
	text(&o.Release, "dev")
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	return o
}

// LeaseMin is the shortest lease: a master gives it up lease.GuardDefault early, and something must be left.
const LeaseMin = 500 * time.Millisecond

func (o Options) validate() error {
	var faults []error
	if o.DataDir == "" {
		faults = append(faults, mqerr.New(mqerr.Invalid, "a controller needs a data directory"))
	}
	if len(o.ID) > 64 {
		faults = append(faults, mqerr.New(mqerr.Invalid, "the controller's id has more than 64 characters"))
	}
	if o.Lease != 0 && o.Lease < LeaseMin {
		faults = append(faults, mqerr.New(mqerr.Invalid, "a lease of %v is too short: at least %v", o.Lease, LeaseMin))
	}
	if o.Silence < 0 {
		faults = append(faults, mqerr.New(mqerr.Invalid, "the silence of brokers can't be negative"))
	}
	return errors.Join(faults...)
}

// Controller is one controller node. Run owns everything that it starts.
type Controller struct {
	o     Options
	ready chan struct{}
	once  sync.Once
	// health says "serving" once this node has caught up: it answers proxies then, whoever leads.
	health *rpc.Health
	peers  *rpc.Bound // connections

	// Run sets these before ready is closed.
	addr net.Addr
	node *raft.Node
	reg  *registry.Registry
}

// New checks the options. Nothing is opened before Run.
func New(o Options) (*Controller, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Controller{o: o, ready: make(chan struct{}), peers: rpc.NewBound(o.Peers), health: rpc.NewHealth(controllerv1.ControllerService_ServiceDesc.ServiceName)}
	if o.Metrics != nil {
		return c, c.register(o.Metrics)
	}
	return c, nil
}

// Ready is closed when the controller leads, or follows a leader, and serves. It stays open if Run fails.
func (c *Controller) Ready() <-chan struct{} { return c.ready }

// Addr returns where the controller listens. Only after Ready.
func (c *Controller) Addr() net.Addr { return c.addr }

// AdvertiseAddr returns where others reach the controller. Only after Ready.
func (c *Controller) AdvertiseAddr() string {
	if c.o.AdvertiseAddr != "" {
		return c.o.AdvertiseAddr
	}
	return c.addr.String()
}

// Run serves until ctx ends or something fails for good. A stop ends streams and waits first, then
// calls that go on, then the Raft node.
func (c *Controller) Run(ctx context.Context) (err error) {
	ln := c.o.Listener
	if ln == nil {
		if ln, err = net.Listen("tcp", c.o.Addr); err != nil {
			return mqerr.New(mqerr.Invalid, "controller address %s: %w", c.o.Addr, err)
		}
	}
	c.addr = ln.Addr()
	c.reg = registry.New(registry.Options{Silence: c.o.Silence, Lease: lease.Terms{Length: c.o.Lease}, FastFailover: c.o.FastFailover, Now: c.o.Now, Boot: c.o.Boot, Log: c.o.Log})
	node := make(chan *raft.Node, 1) // leadership may come before Open returns
	c.node, err = raft.Open(raft.Options{
		Dir: c.o.DataDir, ID: c.o.ID, Addr: c.o.RaftAddr, Advertise: c.o.RaftAdvertise, Members: c.o.Members, Join: c.o.Join, Election: c.o.Election,
		Listen: c.o.RaftListen, Dial: c.o.Dial, Store: c.o.RaftStore, Release: c.o.Release, Log: c.o.Log, Rand: c.o.Rand,
		Applied: c.reg.Applied, Restored: c.reg.Restore,
		Leading: func(leads bool) { n := <-node; node <- n; c.lead(n, leads) },
	})
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	node <- c.node
	return c.serve(ctx, ln)
}

// lead follows the leadership of this node.
func (c *Controller) lead(n *raft.Node, leads bool) {
	if !leads {
		c.reg.Stop()
		return
	}
	switch err := c.found(n); {
	case mqerr.Is(err, mqerr.NotLeader), mqerr.Is(err, mqerr.UnknownOutcome):
		c.o.Log.Info("this controller lost the lead while it set the new cluster up: whoever leads next goes on", slog.Any("error", err))
		return
	case err != nil:
		c.o.Log.Error("the new cluster could not be set up, so this controller serves nothing: check its disk and start it again", slog.Any("error", err))
		return
	}
	c.reg.Start()
	c.serving()
}

// serving says that calls are answered.
func (c *Controller) serving() {
	c.health.SetServing(true)
	c.once.Do(func() { close(c.ready) })
}

// found gives a new cluster its id and its first key.
func (c *Controller) found(n *raft.Node) error {
	cluster := ""
	n.View(func(s *state.State) { cluster = s.Cluster() })
	if cluster != "" {
		return nil
	}
	var id state.UUID
	init := state.Init{NowMS: c.o.Now().UnixMilli()}
	for _, b := range [][]byte{id[:], init.Key[:]} {
		if _, err := io.ReadFull(c.o.Rand, b); err != nil {
			return err
		}
	}
	init.Cluster = id.String()
	_, err := n.Apply(init)
	return err
}

func (c *Controller) serve(ctx context.Context, ln net.Listener) error {
	srv := server.New(server.Options{ID: c.o.ID, Node: c.node, Registry: c.reg, Release: c.o.Release, Dial: c.o.Dial, Now: c.o.Now, Log: c.o.Log, TopicsMax: c.o.Topics, GroupsMax: c.o.Groups})
	g := grpc.NewServer(append(rpc.ServerOptions(c.o.Log),
		grpc.MaxConcurrentStreams(uint32(c.o.PeerCalls)),
		grpc.ChainUnaryInterceptor(srv.Interceptor()),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))...)
	srv.RegisterWith(g)
	c.health.Register(g)

	gate := rpc.NewGate(ln, c.peers)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() { c.keep(ctx) })
	wg.Go(func() { srv.Elections(ctx) })
	wg.Go(func() { srv.Relay(ctx) })
	wg.Go(func() { c.announce(ctx, srv) })
	wg.Go(func() {
		if c.reg.AwaitKnown(ctx) == nil {
			c.serving()
		}
	})
	wg.Go(func() {
		if err := g.Serve(gate); err != nil {
			cancel(mqerr.New(mqerr.Internal, "controller address %v: %w", ln.Addr(), err))
		}
	})
	var err error
	select {
	case err = <-c.node.Failed():
	case <-ctx.Done():
		if err = context.Cause(ctx); errors.Is(err, ctx.Err()) {
			err = nil // asked to stop
		}
	}
	cancel(nil)
	c.health.End()
	if c.node.Leader() == c.o.ID {
		_ = c.node.Transfer("") // alone, or nobody takes it: others find out by themselves
	}
	c.reg.Close()
	gate.Shut()
	c.drain(g)
	srv.Wait()
	wg.Wait()
	return errors.Join(err, srv.Close(), c.node.Close())
}

// drain lets calls finish for a while.
func (c *Controller) drain(g *grpc.Server) {
	t := time.AfterFunc(c.o.DrainTimeout, g.Stop)
	defer t.Stop()
	g.GracefulStop()
}
