// Package nodes is a connection to one of several controllers, whichever answers.
//
// Every controller carries out every call, or hands it on to the leader, so a call goes to the node in use
// until that one fails; then to the next. A broker's session is with the leader alone: another node refuses
// it and names the leader, which is in use from then on. Nobody is found out of turn: who looks for a node
// waits a moment that differs from process to process, so that a new leader is not overrun.
//
// A Conn has no goroutine but those of its gRPC connections.
package nodes

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

const (
	// reachWait is how long a connection may take before the next node is tried.
	reachWait = time.Second
	// pauseFirst and pauseMax are between two rounds over all nodes.
	pauseFirst = 20 * time.Millisecond
	pauseMax   = 250 * time.Millisecond
	// patience bounds a call without a deadline.
	patience = 5 * time.Second
	// hintsMax is how many nodes are known that were not in the list.
	hintsMax = 8
)

// repeatable are the calls that may be made once more when their outcome is unknown: the answer is by what
// is there then.
var repeatable = []string{
	controllerv1.ControllerService_PutTopic_FullMethodName, controllerv1.ControllerService_PutGroup_FullMethodName,
	controllerv1.ControllerService_EnsureTopic_FullMethodName, controllerv1.ControllerService_Status_FullMethodName,
	controllerv1.ClusterService_Node_FullMethodName,
}

// Conn is safe for concurrent use. It implements grpc.ClientConnInterface.
type Conn struct {
	listed int // addresses that were given
	more   []grpc.DialOption

	mu     sync.Mutex // guards the rest
	addrs  []string   // the given ones, and behind them those that were named by nodes
	at     int        // the one in use
	conns  map[string]*grpc.ClientConn
	closed bool
}

// New returns a connection to the controllers at addrs, host:port each. Nothing is connected yet. It begins
// with any of them, so that proxies spread. Options are added to those of its connections.
func New(addrs []string, options ...grpc.DialOption) (*Conn, error) {
	c := &Conn{more: options, conns: map[string]*grpc.ClientConn{}}
	for _, a := range addrs {
		a = strings.TrimSpace(a)
		if _, _, err := net.SplitHostPort(a); err != nil {
			return nil, mqerr.New(mqerr.Invalid, "%q: write host:port", a)
		}
		if !slices.Contains(c.addrs, a) {
			c.addrs = append(c.addrs, a)
		}
	}
	if len(c.addrs) == 0 {
		return nil, mqerr.New(mqerr.Invalid, "name at least one controller, host:port")
	}
	c.listed = len(c.addrs)
	c.at = rand.IntN(c.listed)
	return c, nil
}

// Close ends all connections.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var faults []error
	for _, one := range c.conns {
		faults = append(faults, one.Close())
	}
	return errors.Join(faults...)
}

// Addr is the address of the node in use.
func (c *Conn) Addr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addrs[c.at]
}

// current returns the connection to the node in use, and how many nodes there are.
func (c *Conn) current() (addr string, conn *grpc.ClientConn, nodes int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	addr = c.addrs[c.at]
	if c.closed {
		return addr, nil, 0, mqerr.New(mqerr.Draining, "this process is stopping")
	}
	if conn = c.conns[addr]; conn == nil {
		if conn, err = dial(addr, c.more); err != nil {
			return addr, nil, 0, err
		}
		c.conns[addr] = conn
	}
	return addr, conn, len(c.addrs), nil
}

func dial(addr string, more []grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("dns:///"+addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(rpc.MessageBytesMax)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}, MinConnectTimeout: reachWait,
		}),
	}, more...)...)
}

// leave takes another node into use if from is the one: the leader that it named, or the next.
func (c *Conn) leave(from, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.addrs[c.at] != from || leader == from {
		return
	}
	if leader == "" {
		c.at = (c.at + 1) % len(c.addrs)
		return
	}
	if c.at = slices.Index(c.addrs, leader); c.at >= 0 {
		return
	}
	if len(c.addrs) >= c.listed+hintsMax { // the oldest one that was only named
		gone := c.addrs[c.listed]
		c.addrs = slices.Delete(c.addrs, c.listed, c.listed+1)
		if conn := c.conns[gone]; conn != nil {
			delete(c.conns, gone)
			_ = conn.Close()
		}
	}
	c.addrs = append(c.addrs, leader)
	c.at = len(c.addrs) - 1
}

// reach returns a connection that is up, trying the nodes one after another until ctx ends.
func (c *Conn) reach(ctx context.Context) (string, *grpc.ClientConn, error) {
	pause := pauseFirst
	for tried := 1; ; tried++ {
		addr, conn, nodes, err := c.current()
		if err != nil {
			return addr, nil, err
		}
		if up(ctx, conn) {
			return addr, conn, nil
		}
		c.leave(addr, "")
		if tried%nodes != 0 && ctx.Err() == nil {
			continue
		}
		if !rest(ctx, pause) {
			return addr, nil, mqerr.New(mqerr.Unavailable, "the controller cannot be reached, %s was the last address tried", addr)
		}
		pause = min(2*pause, pauseMax)
	}
}

// up waits for a connection to be ready, not for long.
func up(ctx context.Context, conn *grpc.ClientConn) bool {
	ctx, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	failed := false
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return true
		case connectivity.Shutdown:
			return false
		case connectivity.TransientFailure:
			if failed { // an older failure does not count
				return false
			}
			conn.ResetConnectBackoff()
		case connectivity.Connecting:
			failed = true
		case connectivity.Idle:
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

// rest pauses for about d.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
