package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// peers are the connections to other controllers, by address.
type peers struct {
	dial func(ctx context.Context, addr string) (net.Conn, error)

	mu     sync.Mutex
	conns  map[string]*grpc.ClientConn
	closed bool
}

// peersMax is how many connections are kept: addresses change seldom.
const peersMax = 32

// conn returns a connection that is up. Unavailable: nothing was sent.
func (p *peers) conn(ctx context.Context, addr string) (*grpc.ClientConn, error) {
	c, err := p.get(addr)
	if err != nil {
		return nil, err
	}
	for {
		switch state := c.GetState(); state {
		case connectivity.Ready:
			return c, nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return nil, mqerr.New(mqerr.Unavailable, "the controller at %s cannot be reached", addr)
		default:
			c.Connect()
			if !c.WaitForStateChange(ctx, state) {
				return nil, mqerr.New(mqerr.Unavailable, "the controller at %s does not answer", addr)
			}
		}
	}
}

func (p *peers) get(addr string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, mqerr.New(mqerr.Draining, "this controller is stopping")
	}
	if c := p.conns[addr]; c != nil {
		return c, nil
	}
	if len(p.conns) >= peersMax {
		for a, c := range p.conns {
			_ = c.Close()
			delete(p.conns, a)
			break
		}
	}
	c, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(p.dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(rpc.MessageBytesMax)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, mqerr.New(mqerr.Invalid, "controller address %q: %w", addr, err)
	}
	if p.conns == nil {
		p.conns = map[string]*grpc.ClientConn{}
	}
	p.conns[addr] = c
	return c, nil
}

func (p *peers) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var faults []error
	for _, c := range p.conns {
		faults = append(faults, c.Close())
	}
	return errors.Join(faults...)
}
