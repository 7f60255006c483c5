package edge

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// strangers are connections that may not speak HTTP/2 yet. grpc-go's stop waits for them, before it tells
// anybody else; each has a deadline of its own, the patience.
type strangers struct {
	patience time.Duration
	late     atomic.Int64 // connections closed in this package's part of the handshake, since they took longer

	mu      sync.Mutex
	closed  bool
	unknown map[net.Conn]struct{} // in the handshake of this package
	young   []youngConn           // connections that began within the patience, the oldest first
}

type youngConn struct {
	conn net.Conn
	at   time.Time
}

// enter takes a new connection; false: no more are taken.
func (s *strangers) enter(conn net.Conn, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.unknown == nil {
		s.unknown = map[net.Conn]struct{}{}
	}
	s.unknown[conn] = struct{}{}
	n := 0
	for n < len(s.young) && now.Sub(s.young[n].at) > s.patience {
		s.young[n].conn = nil
		n++
	}
	s.young = append(s.young[n:], youngConn{conn, now})
	return true
}

// known says that a connection went through the handshake, or failed there.
func (s *strangers) known(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unknown, conn)
}

// shut ends the connections of which nothing is known, now and from now on.
func (s *strangers) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for conn := range s.unknown {
		_ = conn.Close()
	}
}

// cutOff ends all connections that may still be in grpc-go's part of the handshake. Others end with them:
// it is for the moment in which every call is cut off.
func (s *strangers) cutOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, y := range s.young {
		_ = y.conn.Close()
	}
}
