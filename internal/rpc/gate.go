package rpc

import (
	"net"
	"sync"
	"sync/atomic"
)

// Gate is a listener that can end the connections of strangers: those that have not said enough to speak
// HTTP/2. A gRPC server that stops waits for them before it tells anybody.
type Gate struct {
	net.Listener

	mu     sync.Mutex
	fresh  map[*stranger]struct{} // connections that may be strangers
	closed bool
}

// NewGate returns a gate before l.
func NewGate(l net.Listener) *Gate { return &Gate{Listener: l, fresh: map[*stranger]struct{}{}} }

// Accept waits for the next connection.
func (g *Gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
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
		_ = s.Conn.Close()
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
	return s.Conn.Close()
}
