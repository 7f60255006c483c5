package edge

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Load is what a Server carries, and what it has refused.
type Load struct {
	Connections        int64 // open
	ConnectionsRefused int64 // closed at once, since too many were open
	HandshakesLate     int64 // connections closed since they did not begin to speak HTTP/2 in time, as far as this package sees
	Calls              int64 // open, of the messaging service
	CallsRefused       int64 // answered TOO_MANY_REQUESTS, since too many were open
}

// load counts connections and calls against their bounds.
type load struct {
	connections         tracked
	connectionsRefused  atomic.Int64
	calls, callsRefused atomic.Int64
	held                atomic.Int64 // refused receives that take their pause
}

// Load returns the figures of now.
func (s *Server) Load() Load {
	return Load{
		Connections: s.load.connections.open(time.Now()), ConnectionsRefused: s.load.connectionsRefused.Load(),
		HandshakesLate: s.sniffer.late.Load(), Calls: s.load.calls.Load(), CallsRefused: s.load.callsRefused.Load(),
	}
}

// bounded is a listener that closes connections beyond a number at once: whoever waits in the kernel's queue
// instead, waits without knowing why, and behind strangers.
//
// Connections come and go without a word to us: grpc-go saves a read buffer for each one that is a plain
// *net.TCPConn, so they are not wrapped. Those that are closed are found when somebody asks how many there
// are: at the bound, and now and then.
type bounded struct {
	net.Listener
	s *Server
}

// tracked are the connections that were open when somebody looked last, and those since.
type tracked struct {
	mu     sync.Mutex
	conns  []net.Conn
	since  int // accepted since the last look
	looked time.Time
}

const (
	lookAfter = 1024                   // connections accepted after which closed ones are forgotten
	lookEvery = 100 * time.Millisecond // how often at most, at the bound
)

// Accept returns the next connection within the bound.
func (b bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.s.load.connections.add(conn, b.s.o.Connections, time.Now()) {
			return conn, nil
		}
		b.s.load.connectionsRefused.Add(1)
		_ = conn.Close()
	}
}

// add takes a connection if there are fewer than most.
func (t *tracked) add(conn net.Conn, most int, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since >= lookAfter || len(t.conns) >= most && now.Sub(t.looked) >= lookEvery {
		t.forget(now)
	}
	if len(t.conns) >= most {
		return false
	}
	t.conns = append(t.conns, conn)
	t.since++
	return true
}

// forget drops connections that are closed.
func (t *tracked) forget(now time.Time) {
	t.conns = slices.DeleteFunc(t.conns, closedConn)
	t.since, t.looked = 0, now
}

// open counts the connections.
func (t *tracked) open(now time.Time) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now)
	return int64(len(t.conns))
}

// closedConn tells whether this side has closed a connection.
func closedConn(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}
