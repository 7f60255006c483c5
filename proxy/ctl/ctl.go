// Package ctl is the proxy's client of the controller: it keeps the routing table up to date and has
// topics and groups made.
//
// A proxy whose controller is away goes on with the table that it has; the watch is opened again in
// the background, and its first update replaces the topics and groups as a whole.
package ctl

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/proxy/route"
)

// ProtocolVersion is the version of the controller's protocol that this release speaks.
const ProtocolVersion = 1

// Pauses between tries to watch, and how long making a topic or group may take.
const (
	retryFirst = 20 * time.Millisecond
	retryMax   = 250 * time.Millisecond // a new leader leads within a second or two
	tellAfter  = time.Second            // how long there may be no news before the log says so
	putTimeout = 5 * time.Second
)

// Options configures a Client.
type Options struct {
	// Conn leads to the controller. It should find the right node by itself.
	Conn grpc.ClientConnInterface
	// Routes is the table to keep up to date.
	Routes *route.Table
	// Release is that of this binary. Address and HTTPAddress are what this proxy advertises; they are
	// shown in the cluster's status.
	Release, Address, HTTPAddress string
	Log                           *slog.Logger // default: discard
}

// Client follows the controller. It has no goroutine but Run's caller.
type Client struct {
	o     Options
	rpc   controllerv1.ControllerServiceClient
	ready chan struct{}
	first sync.Once
	puts  singleflight.Group

	mu      sync.Mutex
	cluster string // id told by the first update
	seen    seen
}

// New returns a client. Nothing is asked before Run.
func New(o Options) *Client {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{o: o, rpc: controllerv1.NewControllerServiceClient(o.Conn), ready: make(chan struct{})}
}

// Ready is closed when the table holds the first snapshot.
func (c *Client) Ready() <-chan struct{} { return c.ready }

// Admin returns the controller's calls for administration. Their errors are gRPC statuses unless the
// connection was made with rpc.DialOptions.
func (c *Client) Admin() controllerv1.ControllerServiceClient { return c.rpc }

// Cluster returns the cluster's id, empty before Ready.
func (c *Client) Cluster() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cluster
}

// Run follows the controller until ctx ends. It returns an error only if the controller refuses this
// proxy for good before it has told any routes: a wrong version, a wrong cluster.
func (c *Client) Run(ctx context.Context) error {
	pause, told := retryFirst, ""
	since := time.Now() // when there was news, or one began to wait for it
	for {
		updates, err := c.watch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !c.isReady() && final(err) {
			return err
		}
		if updates > 0 {
			pause, told, since = retryFirst, "", time.Now()
		}
		if text := err.Error(); text != told && time.Since(since) >= tellAfter {
			told = text
			c.o.Log.LogAttrs(ctx, slog.LevelWarn, "no news from the controller: the routes stay as they are until it is back",
				slog.String("error", text))
		}
		if !sleep(ctx, pause) {
			return nil
		}
		pause = min(2*pause, retryMax)
	}
}

func (c *Client) isReady() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// watch applies the updates of one stream and returns how many there were and why it ended.
func (c *Client) watch(ctx context.Context) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := c.lastSeen()
	stream, err := c.rpc.Watch(ctx, &controllerv1.WatchRequest{
		SeenVersion: seen.version, SeenIndex: seen.index,
		Hello:   &controllerv1.Hello{Version: ProtocolVersion, Release: c.o.Release, ClusterId: c.Cluster()},
		Address: c.o.Address, HttpAddress: c.o.HTTPAddress,
	})
	if err != nil {
		return 0, rpc.FromStatus(err)
	}
	for n := 0; ; n++ {
		m, err := stream.Recv()
		if err != nil {
			return n, rpc.FromStatus(err)
		}
		if n == 0 {
			if err := c.greet(m); err != nil {
				return n, err
			}
		}
		if err := c.look(m); err != nil {
			return n, err
		}
		c.o.Routes.Apply(update(m))
		c.first.Do(func() { close(c.ready) })
	}
}

// seen is how far the controllers are that told this proxy something. Nothing that is older counts.
type seen struct{ version, index uint64 }

func (c *Client) lastSeen() seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// look refuses an update that goes back: of a controller that is behind another one. (A release that does
// not know of indexes has but one node.)
func (c *Client) look(m *controllerv1.WatchUpdate) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := seen{m.GetDefinitions().GetVersion(), m.GetIndex()}
	if now.index != 0 && (now.index < c.seen.index || now.version < c.seen.version) {
		return mqerr.New(mqerr.Unavailable, "the controller is behind one that was asked before (entry %d, version %d; seen were %d, %d): another one is asked", now.index, now.version, c.seen.index, c.seen.version)
	}
	c.seen = now
	return nil
}

// greet checks the first update of a stream: who answers, and that it is a whole table.
func (c *Client) greet(m *controllerv1.WatchUpdate) error {
	h := m.GetHello()
	if v := h.GetVersion(); v != ProtocolVersion {
		return mqerr.New(mqerr.Unsupported, "the controller (release %q) speaks version %d of its protocol, this proxy (release %q) version %d: run the same release on both",
			h.GetRelease(), v, c.o.Release, ProtocolVersion)
	}
	if !m.GetDefinitions().GetFull() {
		return mqerr.New(mqerr.Internal, "the controller's first update is not a whole table")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cluster != "" && h.GetClusterId() != c.cluster {
		return mqerr.New(mqerr.Denied, "the controller belongs to cluster %s, this proxy to %s: give it its own controller's address", h.GetClusterId(), c.cluster)
	}
	c.cluster = h.GetClusterId()
	return nil
}

// final reports whether trying again cannot help.
func final(err error) bool {
	return mqerr.Is(err, mqerr.Unsupported) || mqerr.Is(err, mqerr.Denied)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d/2 + rand.N(d)) // not all at once
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
