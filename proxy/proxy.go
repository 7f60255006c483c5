// Package proxy is the stateless tier: the port that clients use. It follows the controller for
// routes, reaches brokers through internal/brokerapi, and may die at any moment.
package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/proxy/admin"
	"github.com/perigee-mq/perigee/proxy/brokerconn"
	"github.com/perigee-mq/perigee/proxy/checks"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/ctl"
	"github.com/perigee-mq/perigee/proxy/edge"
	"github.com/perigee-mq/perigee/proxy/failover"
	"github.com/perigee-mq/perigee/proxy/isolation"
	"github.com/perigee-mq/perigee/proxy/longpoll"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/server"
)

// Options configures a Proxy. The zero value of a field means its default.
type Options struct {
	// Listener accepts clients. Required.
	Listener net.Listener
	// Controller is a connection to the controller. Required.
	Controller grpc.ClientConnInterface
	// Dial connects to brokers. Default: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Local is a broker in this process that is called directly; nil: all are reached by network.
	Local LocalBroker
	// Advertise is the address that routes name when a client named none, host:port. Required.
	Advertise string
	// AutoCreate makes topics and groups that clients name.
	AutoCreate bool
	// CertFile and KeyFile are a PEM certificate chain and its key. Default: a self-signed one.
	CertFile, KeyFile string
	// Limits bound requests.
	Limits server.Limits
	// Connections, ConnectionCalls (on one connection), Calls, HeaderBytes and RequestBytes bound what is open at the
	// client port; Handshake is how long a new connection has to speak HTTP/2: see edge.Options.
	Connections, ConnectionCalls, Calls, HeaderBytes, RequestBytes int
	Handshake                                                      time.Duration
	// Receives and ReceivesPerGroup bound the receives that wait, see longpoll.Options; KnownClients the clients
	// that are remembered, see clients.Options.
	Receives, ReceivesPerGroup, KnownClients int
	// Link configures the links to brokers. Default: that of link.Options.
	Link link.Options
	// FailoverWait is how long a call waits for the next master of a broker group, within its own time. Default 10 s;
	// negative: not at all.
	FailoverWait time.Duration
	// IsolateSlow is the least latency of sends that isolates a broker group, IsolateMost how long it is left alone at
	// most before it is tried again. Defaults: those of isolation.Options; a negative IsolateSlow: none is isolated.
	IsolateSlow, IsolateMost time.Duration
	// DrainDelay is how long a stop goes on serving while it says that it is not ready, so that load balancers
	// see that. Default: not at all.
	DrainDelay time.Duration
	// DrainTimeout bounds how long a stop waits for calls under way. Default 10 s.
	DrainTimeout time.Duration
	// Metrics is where instruments are registered; nil: nowhere.
	Metrics metric.Meter
	// HTTPAddr is where this process tells of itself, host:port, for the status of the cluster; empty: nowhere.
	HTTPAddr string
	// Release is this program's version, for messages to people.
	Release string
	// Log receives what an operator acts on. Default: discard.
	Log *slog.Logger
}

// Proxy is one running proxy.
type Proxy struct {
	o         Options
	routes    *route.Table
	ctl       *ctl.Client
	brokers   brokers
	clients   *clients.Table
	polls     *longpoll.Polls
	isolation *isolation.Table  // nil: none is isolated
	masters   *failover.Masters // nil: calls wait for none
	checks    *checks.Checker
	server    *server.Server
	edge      *edge.Server
	calls     *meters // nil: nobody looks
	ready     chan struct{}

	life     context.Context // of what is done beside, ends with Run
	end      context.CancelFunc
	besides  sync.WaitGroup
	draining atomic.Bool
}

// New wires a proxy. Nothing is served before Run.
func New(o Options) (*Proxy, error) {
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{o: o, routes: new(route.Table), ready: make(chan struct{})}
	p.life, p.end = context.WithCancel(context.Background())
	p.ctl = ctl.New(ctl.Options{Conn: o.Controller, Routes: p.routes, Release: o.Release, Address: o.Advertise, HTTPAddress: o.HTTPAddr, Log: o.Log})
	p.brokers = p.connect()
	p.clients = clients.New(clients.Options{MaxClients: o.KnownClients}, time.Now())
	p.checks = checks.New(checks.Options{Clients: p.clients, Routes: p.routes, Brokers: p.brokers, StoreHost: p.storeHost, Log: o.Log})
	if o.Local == nil && o.FailoverWait >= 0 { // the broker of this process leads, or the process ends
		p.masters = failover.New(failover.Options{Brokers: p.brokers, Wait: o.FailoverWait})
	}
	p.polls = longpoll.New(longpoll.Options{Brokers: p.brokers, MaxReceives: o.Receives, MaxPerGroup: o.ReceivesPerGroup, Patience: p.masters.Wait(), Log: o.Log})
	p.isolation = isolation.New(isolation.Options{Slow: o.IsolateSlow, Most: o.IsolateMost, Changed: p.isolated})
	handlers := server.New(server.Options{
		Routes: p.routes, Routed: p.ctl.Ready(), Brokers: p.brokers, Creator: p.creator(), Clients: p.clients, Polls: p.polls, Masters: p.masters, Isolation: p.isolation, Advertise: o.Advertise, Limits: o.Limits, Log: o.Log,
	})
	p.server = handlers
	var err error
	p.edge, err = edge.New(edge.Options{
		Service: service(handlers), Goodbye: server.Goodbye(), Register: p.register, CertFile: o.CertFile, KeyFile: o.KeyFile, Meter: p.meter(), Log: o.Log,
		Connections: o.Connections, Streams: o.ConnectionCalls, Calls: o.Calls, HeaderBytes: o.HeaderBytes, RequestBytes: o.RequestBytes, Handshake: o.Handshake,
	})
	if err == nil && o.Metrics != nil {
		err = register(o.Metrics, p)
	}
	return p, err
}

// creator makes names on first use, nil if that is off.
func (p *Proxy) creator() server.Creator {
	if !p.o.AutoCreate {
		return nil
	}
	return p.ctl
}

// register adds the administrative service to the client port.
func (p *Proxy) register(r grpc.ServiceRegistrar) {
	adminv1.RegisterAdminServiceServer(r, admin.New(admin.Options{
		Controller: p.ctl.Admin(), Routes: p.routes, Brokers: p.brokers, Release: p.o.Release,
	}))
}

// service binds the handlers to the calls of the messaging service. They are refused until there are routes.
func service(s *server.Server) edge.Service {
	return edge.Service{
		QueryRoute:                      s.Unary(server.RPCQueryRoute, s.QueryRoute),
		Heartbeat:                       s.Unary(server.RPCHeartbeat, s.Heartbeat),
		SendMessage:                     s.Unary(server.RPCSendMessage, s.SendMessage),
		QueryAssignment:                 s.Unary(server.RPCQueryAssignment, s.QueryAssignment),
		ReceiveMessage:                  s.Stream(server.RPCReceiveMessage, s.ReceiveMessage),
		AckMessage:                      s.Unary(server.RPCAckMessage, s.AckMessage),
		Telemetry:                       s.Duplex(s.Telemetry),
		PullMessage:                     s.Stream(server.RPCPullMessage, s.PullMessage),
		UpdateOffset:                    s.Unary(server.RPCUpdateOffset, s.UpdateOffset),
		GetOffset:                       s.Unary(server.RPCGetOffset, s.GetOffset),
		QueryOffset:                     s.Unary(server.RPCQueryOffset, s.QueryOffset),
		EndTransaction:                  s.Unary(server.RPCEndTransaction, s.EndTransaction),
		NotifyClientTermination:         s.Unary(server.RPCNotifyClientTermination, s.NotifyClientTermination),
		ChangeInvisibleDuration:         s.Unary(server.RPCChangeInvisibleDuration, s.ChangeInvisibleDuration),
		ForwardMessageToDeadLetterQueue: s.Unary(server.RPCForwardMessage, s.ForwardMessageToDeadLetterQueue),
		RecallMessage:                   s.Unary(server.RPCRecallMessage, s.RecallMessage),
		SyncLiteSubscription:            s.Unary(server.RPCSyncLiteSubscription, s.SyncLiteSubscription),
	}
}

// connect chooses how brokers are found.
func (p *Proxy) connect() brokers {
	up := make(chan struct{}, 1)
	events := brokerconn.Events{
		Ready: func(shard brokerapi.ShardID, r []brokerapi.Ready) { p.polls.Ready(shard, r) },
		Up: func(shard brokerapi.ShardID) {
			p.polls.Up(shard)
			p.masters.Changed(shard)
			p.checks.Up(shard)
			p.repeat(shard)
			select {
			case up <- struct{}{}:
			default:
			}
		},
		Down:   func(shard brokerapi.ShardID, _ error) { p.polls.Down(shard) },
		Notice: p.notice,
	}
	if p.o.Local != nil {
		return &local{broker: p.o.Local, name: p.o.Advertise, events: events}
	}
	return &remote{routes: p.routes, up: up, moved: p.moved, Pool: brokerconn.NewPool(brokerconn.Options{
		Name: p.o.Advertise, Release: p.o.Release, Cluster: p.ctl.Cluster, Events: events, Link: p.o.Link, Dial: p.o.Dial, Log: p.o.Log,
	})}
}

// Ready is closed when the proxy serves: it has routes and its local broker, if it has one, is up.
func (p *Proxy) Ready() <-chan struct{} { return p.ready }

var (
	errStarting = errors.New("the proxy has no routes yet: it waits for the controller")
	errDraining = errors.New("the proxy is stopping: send calls elsewhere")
)

// Healthy tells why this proxy should get no calls now, nil if it should.
func (p *Proxy) Healthy() error {
	if p.draining.Load() {
		return errDraining
	}
	select {
	case <-p.ready:
		return nil
	default:
		return errStarting
	}
}

// Run serves until ctx ends, then drains: it says that it is not ready and waits for DrainDelay, tells clients
// to go elsewhere, ends telemetry streams, answers receives that wait and calls under way.
func (p *Proxy) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	// What calls need goes on until they are drained.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return p.ctl.Run(work) })
	g.Go(func() error { return p.brokers.follow(work) })
	g.Go(func() error {
		return p.clients.Run(work, clients.Report{Brokers: p.brokers, Shards: p.shards, Log: p.o.Log})
	})
	g.Go(func() error { return p.checks.Run(work) })
	g.Go(func() error { return p.edge.Serve(p.o.Listener) })
	g.Go(func() error {
		if err := p.start(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	g.Go(func() error {
		defer stop()
		<-ctx.Done()
		p.drain(context.WithoutCancel(ctx))
		return nil
	})
	err := errors.Join(g.Wait(), p.brokers.Close())
	p.end()
	p.besides.Wait()
	return err
}

// start waits for what serving needs and then says so.
func (p *Proxy) start(ctx context.Context) error {
	select {
	case <-p.ctl.Ready():
	case <-ctx.Done():
		return nil
	}
	if err := p.brokers.start(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	p.edge.SetServing(true)
	close(p.ready)
	return nil
}

// storeHost is the address of the broker of a shard as clients are told: one in this process has none of
// its own.
func (p *Proxy) storeHost(shard brokerapi.ShardID) string {
	if sh := p.routes.Load().Shard(shard); sh != nil && sh.Address != "" {
		return sh.Address
	}
	return p.o.Advertise
}

// shards lists all shards.
func (p *Proxy) shards() []brokerapi.ShardID {
	var ids []brokerapi.ShardID
	for _, s := range p.routes.Load().Shards() {
		ids = append(ids, s.ID)
	}
	return ids
}

// delay serves on, if this proxy served at all, so that whoever looks at its health sees that it is not ready.
func (p *Proxy) delay() {
	select {
	case <-p.ready:
		<-time.After(p.o.DrainDelay)
	default:
	}
}

// drain stops taking calls and answers those that are under way.
func (p *Proxy) drain(ctx context.Context) {
	p.draining.Store(true)
	p.edge.SetServing(false)
	p.delay()
	ctx, cancel := context.WithTimeout(ctx, p.o.DrainTimeout)
	defer cancel()
	p.polls.Drain()
	p.server.Drain()
	p.edge.Drain(ctx)
}
