package rpc

import (
	"net"
	"sync"
	"sync/atomic"
)

// Bound counts connections against a number. More are closed at once: who waited in the kernel's queue instead
// would not know why.
type Bound struct {
	most          int64
	open, refused atomic.Int64
}

// NewBound returns a bound of most connections at a time.
func NewBound(most int) *Bound { return &Bound{most: int64(most)} }

// Open is how many connections there are.
func (b *Bound) Open() int64 { return b.open.Load() }

// Refused is how many connections were closed since there were too many.
func (b *Bound) Refused() int64 { return b.refused.Load() }

// enter counts a connection that may be there.
func (b *Bound) enter() bool {
	if b.open.Add(1) <= b.most {
		return true
	}
	b.open.Add(-1)
	b.refused.Add(1)
	return false
}

// Gate is a listener with a bound that can end the connections of strangers: those that have not said enough to
// speak HTTP/2. A gRPC server that stops waits for them before it tells anybody.
type Gate struct {
	net.Listener
	bound *Bound

	mu     sync.Mutex
	fresh  map[*stranger]struct{} // connections that may be strangers
	closed bool
}

// NewGate returns a gate before l. Gates may share a bound.
func NewGate(l net.Listener, b *Bound) *Gate {
	return &Gate{Listener: l, bound: b, fresh: map[*stranger]struct{}{}}
}

// Accept waits for the next connection within the bound.
func (g *Gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	for err == nil && !g.bound.enter() {
		_ = c.Close()
		c, err = g.Listener.Accept()
	}
	if err != nil {
		return nil, err
	}
	s := &stranger{Conn: c, gate: g}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = c.Close()
	}
	g.fresh[s] = struct{}{}
	return s, nil
}

// Shut ends the connections of strangers, now and from now on.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for s := range g.fresh {
		_ = s.Conn.Close() // its server is told, and closes it too
	}
}

func (g *Gate) forget(s *stranger) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.fresh, s)
}

// helloBytes is what a client of HTTP/2 says first: 24 bytes, and the head of its settings.
const helloBytes = 24 + 9

// stranger is a connection that counts what it says until that is enough.
type stranger struct {
	net.Conn
	gate  *Gate
	said  int // by the one goroutine that reads
	known atomic.Bool
	over  atomic.Bool // closed
}

// Read reads from the connection.
func (s *stranger) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if !s.known.Load() {
		if s.said += n; s.said >= helloBytes {
			s.known.Store(true)
			s.gate.forget(s)
		}
	}
	return n, err
}

// Close closes the connection.
func (s *stranger) Close() error {
	s.gate.forget(s)
	if !s.over.Swap(true) {
		s.gate.bound.open.Add(-1)
	}
	return s.Conn.Close()
}
