// Package server serves the links of proxies: each stream of LinkService is one session with the
// broker, opened by a handshake in which both sides state version, cluster and name.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	brokerv1 "github.com/perigee-mq/perigee/api/perigee/broker/v1"
	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/link/brokerlink"
	"github.com/perigee-mq/perigee/internal/link/grpclink"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// Leader is a broker that leads.
type Leader struct {
	Connector brokerapi.Connector
	// ClusterID is the cluster that the broker belongs to.
	ClusterID string
	// Shard and Epoch are what the broker leads.
	Shard brokerapi.ShardID
	Epoch brokerapi.Epoch
}

// Options configures a Server. The zero value of a field means its default.
type Options struct {
	// Leader is what serves the links. Without a Connector it is given to Begin later; links wait for it.
	Leader
	// RestTimeout bounds how long a new link waits for Begin while another replica is known to lead. Default 1 s.
	RestTimeout time.Duration
	// Release is this program's version, for messages to people.
	Release string
	// Name is the broker's group and replica, for the logs of proxies.
	Name string
	// LinksMax bounds the links at a time. Default 1024.
	LinksMax int
	// ConnectionsMax bounds the connections at a time: those of proxies, and of replicas that follow. Default 4096.
	ConnectionsMax int
	// HandshakeTimeout bounds the wait for a proxy's hello, and that of a proxy for Begin. Default 10 s.
	HandshakeTimeout time.Duration
	// Link configures the links.
	Link link.Options
	// Replication serves the followers of this broker's log on the same port, nil: nobody does. They are served from
	// the start on and still while links are drained, so that what waits for them gets its answer.
	Replication replicationv1.ReplicationServiceServer
	// Log receives what an operator acts on. Default: discard.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.LinksMax <= 0 {
		o.LinksMax = 1024
	}
	if o.ConnectionsMax <= 0 {
		o.ConnectionsMax = 4096
	}
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = 10 * time.Second
	}
	if o.RestTimeout <= 0 {
		o.RestTimeout = time.Second
	}
	if o.Link.Counters == nil {
		o.Link.Counters = &link.Counters{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Server accepts links. Serve may be called for several listeners.
type Server struct {
	brokerv1.UnimplementedLinkServiceServer
	o      Options
	g      *grpc.Server
	health *rpc.Health

	refused atomic.Int64 // links that were too many
	bound   *rpc.Bound   // on connections

	mu       sync.Mutex
	leader   *Leader       // nil: this broker does not lead
	begun    chan struct{} // closed: leader is set
	rests    bool          // another replica is known to lead
	links    map[*brokerlink.Server]struct{}
	quiet    chan struct{} // not nil: Rest waits for it to be closed, when no link is left
	gates    []*rpc.Gate   // of the listeners
	opening  int           // streams in their handshake
	draining bool
	drained  chan struct{}  // closed when draining begins
	idle     chan struct{}  // closed when draining and no link is left
	ends     sync.WaitGroup // sessions being closed
}

// New returns a server.
func New(o Options) *Server {
	o = o.withDefaults()
	s := &Server{
		o: o, bound: rpc.NewBound(o.ConnectionsMax), links: map[*brokerlink.Server]struct{}{}, idle: make(chan struct{}), begun: make(chan struct{}), drained: make(chan struct{}),
		health: rpc.NewHealth(brokerv1.LinkService_ServiceDesc.ServiceName),
	}
	opts := append(rpc.ServerOptions(o.Log), grpclink.ServerOptions()...)
	s.g = grpc.NewServer(append(opts, grpc.MaxConcurrentStreams(16), grpc.WaitForHandlers(true))...)
	brokerv1.RegisterLinkServiceServer(s.g, s)
	if o.Replication != nil {
		replicationv1.RegisterReplicationServiceServer(s.g, o.Replication)
	}
	s.health.Register(s.g)
	if o.Connector != nil {
		s.Begin(o.Leader)
	}
	return s
}

// Begin says what leads, so that links are served: after New, if that was not told, and after Rest.
func (s *Server) Begin(l Leader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader, s.rests = &l, false
	close(s.begun)
}

// SetServing says to grpc.health.v1 whether this broker wants links. A new server does not.
func (s *Server) SetServing(yes bool) { s.health.SetServing(yes) }

// Serve accepts proxies on l, which it closes at the end. It returns nil after Drain.
func (s *Server) Serve(l net.Listener) error {
	gate := rpc.NewGate(l, s.bound)
	s.mu.Lock()
	s.gates = append(s.gates, gate)
	s.mu.Unlock()
	err := s.g.Serve(gate)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Counters counts what passed all links.
func (s *Server) Counters() *link.Counters { return s.o.Link.Counters }

// Refused is how many links were refused since there were too many.
func (s *Server) Refused() int64 { return s.refused.Load() }

// Connections counts the connections of other processes.
func (s *Server) Connections() *rpc.Bound { return s.bound }

// Links is how many links there are.
func (s *Server) Links() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.links)
}

// Link serves one proxy.
func (s *Server) Link(stream grpc.BidiStreamingServer[brokerv1.LinkRequest, brokerv1.LinkResponse]) error {
	if err := s.enter(); err != nil {
		return err
	}
	leader, err := s.awaitBegin(stream.Context())
	if err != nil {
		s.leave(nil)
		return err
	}
	peer, err := s.greet(stream, leader)
	if err != nil {
		s.leave(nil)
		s.o.Log.LogAttrs(stream.Context(), slog.LevelWarn, "proxy refused: check that its --controller is that of this broker and that both run releases that know each other", slog.String("proxy", peer.Name), slog.String("error", err.Error()))
		return err
	}
	l, err := s.begin(stream, leader, peer)
	if err != nil {
		return err
	}
	log := s.o.Log.With(slog.String("proxy", peer.Name), slog.String("proxy_release", peer.Release))
	log.LogAttrs(stream.Context(), slog.LevelInfo, "proxy connected")
	<-l.Done()
	err = l.Err()
	log.LogAttrs(stream.Context(), slog.LevelInfo, "proxy disconnected", slog.String("reason", err.Error()))
	s.ends.Go(l.Wait) // what it waits for ends when this handler has returned
	s.leave(l)
	if mqerr.Is(err, mqerr.Invalid) || mqerr.Is(err, mqerr.Draining) {
		return err
	}
	return nil // the proxy has gone: nobody is there to be told
}

// enter counts a stream in, if there is room.
func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return mqerr.New(mqerr.Draining, "broker %s is going away", s.o.Name)
	case len(s.links)+s.opening >= s.o.LinksMax:
		s.refused.Add(1)
		return mqerr.New(mqerr.Exhausted, "broker %s has %d links already", s.o.Name, s.o.LinksMax)
	}
	s.opening++
	return nil
}

// awaitBegin waits for the broker to lead: a proxy that comes during its start, or before it knows that it was elected,
// is served as soon as it can be.
func (s *Server) awaitBegin(ctx context.Context) (*Leader, error) {
	s.mu.Lock()
	leader, begun, rests := s.leader, s.begun, s.rests
	s.mu.Unlock()
	if leader != nil {
		return leader, nil
	}
	patience := s.o.HandshakeTimeout
	if rests {
		patience = min(patience, s.o.RestTimeout)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-begun:
		return s.awaitBegin(ctx)
	case <-s.drained:
		return nil, mqerr.New(mqerr.Draining, "broker %s is going away", s.o.Name)
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
	}
	if rests {
		return nil, mqerr.New(mqerr.NotLeader, "broker %s follows another replica", s.o.Name)
	}
	return nil, mqerr.New(mqerr.Unavailable, "broker %s is starting: its /readyz says how far it is", s.o.Name)
}

// greet does the handshake. A proxy that says nothing is given up; its goroutine ends with the stream.
func (s *Server) greet(stream grpc.BidiStreamingServer[brokerv1.LinkRequest, brokerv1.LinkResponse], leader *Leader) (grpclink.Hello, error) {
	own := grpclink.Hello{
		Release: s.o.Release, Cluster: leader.ClusterID, Name: s.o.Name, Shard: uint32(leader.Shard), Epoch: uint64(leader.Epoch),
	}
	type greeting struct {
		peer grpclink.Hello
		err  error
	}
	done := make(chan greeting, 1)
	s.ends.Go(func() {
		peer, err := grpclink.Accept(stream, own)
		done <- greeting{peer, err}
	})
	timer := time.NewTimer(s.o.HandshakeTimeout)
	defer timer.Stop()
	select {
	case g := <-done:
		return g.peer, g.err
	case <-timer.C:
		return grpclink.Hello{}, mqerr.New(mqerr.Timeout, "no hello within %v", s.o.HandshakeTimeout)
	}
}

// begin starts the link of a proxy that was greeted.
func (s *Server) begin(stream grpc.ServerStream, leader *Leader, peer grpclink.Hello) (*brokerlink.Server, error) {
	l, err := brokerlink.NewServer(grpclink.NewServerTransport(stream), leader.Connector, peer.Name, s.o.Link)
	if err != nil {
		s.leave(nil)
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	s.links[l] = struct{}{}
	if s.draining || s.leader != leader {
		l.Drain()
	}
	return l, nil
}

// leave counts a stream out: a link, or one that did not get that far.
func (s *Server) leave(l *brokerlink.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l == nil {
		s.opening--
	} else {
		delete(s.links, l)
	}
	s.quietLocked()
}

// quietLocked tells Drain and Rest when nothing is left.
func (s *Server) quietLocked() {
	if s.quiet != nil && len(s.links) == 0 {
		close(s.quiet)
		s.quiet = nil
	}
	if !s.draining || len(s.links)+s.opening > 0 {
		return
	}
	select {
	case <-s.idle:
	default:
		close(s.idle)
	}
}
