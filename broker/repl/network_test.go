package repl

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
)

// network connects nodes in memory. A node that is away can be reached by nobody; one that is deaf reads nothing from
// its connections.
type network struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	away      map[string]bool
	conns     []*conn
}

// conn is a connection from one node to another.
type conn struct {
	net.Conn
	from, to string
	deaf     chan struct{} // holds a token while nothing is read
	closed   chan struct{}
	once     sync.Once
}

func (c *conn) Read(b []byte) (int, error) {
	select {
	case c.deaf <- struct{}{}:
		<-c.deaf
	case <-c.closed:
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Read(b)
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func newNetwork() *network {
	return &network{listeners: map[string]*bufconn.Listener{}, away: map[string]bool{}}
}

func (w *network) listen(address string) *bufconn.Listener {
	l := bufconn.Listen(256 << 10)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners[address] = l
	return l
}

func (w *network) dialer(from string) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
		w.mu.Lock()
		l, away := w.listeners[to], w.away[to] || w.away[from]
		w.mu.Unlock()
		if l == nil || away {
			return nil, errors.New("no way to " + to)
		}
		raw, err := l.DialContext(ctx)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, from: from, to: to, deaf: make(chan struct{}, 1), closed: make(chan struct{})}
		w.mu.Lock()
		w.conns = append(slices.DeleteFunc(w.conns, func(c *conn) bool {
			select {
			case <-c.closed:
				return true
			default:
				return false
			}
		}), c)
		w.mu.Unlock()
		return c, nil
	})
}

// cut ends all connections of a node.
func (w *network) cut(node string) {
	w.mu.Lock()
	conns := slices.Clone(w.conns)
	w.mu.Unlock()
	for _, c := range conns {
		if c.from == node || c.to == node {
			_ = c.Close()
		}
	}
}

func (w *network) setAway(node string, away bool) {
	w.mu.Lock()
	w.away[node] = away
	w.mu.Unlock()
	if away {
		w.cut(node)
	}
}

// deafen stops what a node reads from its master, and returns how to go on.
func (w *network) deafen(node string) (hear func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var held []*conn
	for _, c := range w.conns {
		if c.from != node {
			continue
		}
		select {
		case c.deaf <- struct{}{}:
			held = append(held, c)
		case <-c.closed:
		default:
		}
	}
	return func() {
		for _, c := range held {
			<-c.deaf
		}
	}
}
