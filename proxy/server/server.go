// Package server holds the handlers of the public messaging service, one file per RPC: read the few
// fields that are needed from the request bytes, check them in the order of the reference server,
// call one part, append the reply.
package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/failover"
	"github.com/perigee-mq/perigee/proxy/isolation"
	"github.com/perigee-mq/perigee/proxy/longpoll"
	"github.com/perigee-mq/perigee/proxy/route"
)

// Brokers finds the broker that leads a shard.
type Brokers interface {
	// Broker returns the broker and the highest epoch seen of its shard. The error is of kind
	// Unavailable when the shard has no reachable master now.
	Broker(shard brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error)
}

// Creator makes topics and groups on first use. It is nil when automatic creation is off.
type Creator interface {
	// EnsureTopic returns once the topic is in the routing table.
	EnsureTopic(ctx context.Context, name string) error
	// EnsureGroup returns once the group is in the routing table.
	EnsureGroup(ctx context.Context, name string) error
}

// Options configures a Server. Limits default to those of the reference server.
type Options struct {
	Routes *route.Table
	// Routed is closed once Routes holds the controller's first update. Nil: it does.
	Routed  <-chan struct{}
	Brokers Brokers
	Creator Creator // nil: unknown names are refused
	Clients *clients.Table
	Polls   *longpoll.Polls
	// Isolation keeps sends away from slow broker groups. Nil: it does not.
	Isolation *isolation.Table
	// Masters lets calls wait for the next master of a broker group. Nil: none waits.
	Masters *failover.Masters
	// Advertise is the address that routes name when a client named no endpoints, host:port.
	Advertise string
	Limits    Limits
	Now       func() time.Time // default time.Now
	Log       *slog.Logger     // default: discard
}

// Server answers the public messaging service. It is stateless but for caches: any proxy can answer
// any call.
type Server struct {
	o        Options
	sends    sync.Pool // of *send
	receives receives  // shared by ReceiveMessage calls
	pulls    pulls     // PullMessage calls that wait
	lites    liteSets  // what lite consumers subscribe to
}

// Unread tells how many bytes wait for slow readers, and how many calls were refused because of them.
func (s *Server) Unread() (bytes, refused int64) {
	return s.receives.unsent.Load(), s.receives.refused.Load()
}

// New returns a server.
func New(o Options) *Server {
	return &Server{o: o.withDefaults()}
}
