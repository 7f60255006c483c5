// Package edge is the proxy's client port: it carries the calls of proxy/call over grpc-go.
//
// The messaging service passes as bytes: a codec that hands frames through, a service description
// written by hand, one goroutine per call, which is grpc-go's own. Every other service on the port
// (health, reflection, admin) uses the usual generated code, with interceptors for recovery,
// authentication and logging. TLS and plain text share the port; the first byte of a connection
// tells which it is. Nothing outside this package and proxy/admin knows grpc.
package edge

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // requests may be compressed
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/perigee-mq/perigee/internal/rpc"
)

// Options configures a Server. The zero value of a field means its default.
type Options struct {
	Service Service
	// Goodbye is the last message of duplex calls that Drain ends. Default: none.
	Goodbye []byte
	// Register adds further services to the port. They run behind the interceptors.
	Register func(grpc.ServiceRegistrar)
	// Auth decides about calls of the further services, by full method name. Its error is a gRPC
	// status. Default: everybody may call.
	Auth func(ctx context.Context, method string) (context.Context, error)

	// CertFile and KeyFile are a PEM certificate chain and its key. They are read again when their
	// content changes. Default: a self-signed certificate made at the start.
	CertFile, KeyFile string
	// Hosts are further names and addresses in the self-signed certificate.
	Hosts []string
	// Handshake is how long a new connection may take until it speaks HTTP/2. Default 10 s.
	Handshake time.Duration
	// Idle is how long a connection without calls is kept. Default 120 s.
	Idle time.Duration
	// RequestBytes is the largest request. Default 130 MiB.
	RequestBytes int
	// HeaderBytes is the largest set of request headers, counted as HTTP/2 does. Default 16 KiB.
	HeaderBytes int
	// Streams is how many calls a connection may have open. Default 10,000.
	Streams int
	// Connections is how many connections may be open; more are closed at once. Default 20,000.
	Connections int
	// Calls is how many calls of the messaging service may be open on all of them. Default 200,000.
	Calls int
	// Workers are goroutines kept for calls, so that their stacks need not grow again. Default 64.
	Workers int
	// Meter returns what measures the calls of a method of the messaging service. Default: nothing does.
	Meter func(method string) Meter
	Log   *slog.Logger // default: discard
}

func (o Options) withDefaults() Options {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&o.RequestBytes, 130<<20)
	def(&o.HeaderBytes, 16<<10)
	def(&o.Streams, 10_000)
	def(&o.Connections, 20_000)
	def(&o.Calls, 200_000)
	def(&o.Workers, 64)
	if o.Handshake == 0 {
		o.Handshake = 10 * time.Second
	}
	if o.Idle == 0 {
		o.Idle = 120 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Server serves the client port. Besides grpc-go's goroutines it has one per open telemetry stream.
type Server struct {
	o        Options
	grpc     *grpc.Server
	health   *rpc.Health
	sniffer  *sniffer
	turns    turns
	load     load
	draining chan struct{} // closed: duplex calls end
	forced   chan struct{} // closed: nobody waits any more
	drain    sync.Once
	duplexes sync.WaitGroup // handlers of duplex calls
}

// New returns a server that is not serving yet.
func New(o Options) (*Server, error) {
	o = o.withDefaults()
	certs, err := newCertificates(o)
	if err != nil {
		return nil, err
	}
	s := &Server{o: o, draining: make(chan struct{}), forced: make(chan struct{}), sniffer: newSniffer(certs.config(), o.Handshake)}
	s.grpc = grpc.NewServer(append(s.interceptors(),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.Creds(s.sniffer),
		grpc.ConnectionTimeout(o.Handshake),
		grpc.MaxRecvMsgSize(o.RequestBytes),
		grpc.MaxHeaderListSize(uint32(o.HeaderBytes)),
		grpc.MaxConcurrentStreams(uint32(o.Streams)),
		grpc.InTapHandle(s.turns.take),
		grpc.NumStreamWorkers(uint32(o.Workers)),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: o.Idle, Time: time.Minute, Timeout: 20 * time.Second}),
		// C++ clients ping every 60 s without calls, others more often; the library's own minimum of
		// 5 minutes would cut them off.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.StaticStreamWindowSize(1<<20),
		grpc.StaticConnWindowSize(1<<20),
	)...)
	s.grpc.RegisterService(s.describe(o.Service), nil)
	if o.Register != nil {
		o.Register(s.grpc)
	}
	s.health = rpc.NewHealth(slices.Sorted(maps.Keys(s.grpc.GetServiceInfo()))...)
	s.health.Register(s.grpc)
	reflection.Register(s.grpc)
	return s, nil
}

// Serve accepts connections until Drain. It closes the listener.
func (s *Server) Serve(ln net.Listener) error {
	return s.grpc.Serve(bounded{ln, s})
}

// SetServing tells the health service whether this proxy wants calls, for each service of the port and under
// the empty name. A new server does not.
func (s *Server) SetServing(yes bool) { s.health.SetServing(yes) }

// Drain ends the service: it reports not serving, accepts no more, tells every client by GOAWAY, ends duplex
// calls after a goodbye, and waits for the other calls until ctx ends; then it cuts them off. Receives that
// wait must be answered by their handlers.
func (s *Server) Drain(ctx context.Context) {
	s.health.End()
	s.sniffer.shut()
	s.drain.Do(func() { close(s.draining) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.o.Log.LogAttrs(ctx, slog.LevelWarn, "calls were cut off at the stop, their callers do not know the outcome and try again; a longer --drain-timeout lets more of them end")
		close(s.forced)
		s.sniffer.cutOff()
		s.grpc.Stop()
		<-done
	}
	s.duplexes.Wait()
}
