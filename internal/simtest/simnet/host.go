package simnet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Host is a machine with one address. It runs one process at a time, which has a Stack.
type Host struct {
	n      *Network
	ip     netip.Addr
	stack  *Stack // nil: the machine is off, or no process runs
	off    bool   // the machine is off: nobody answers for it
	frozen bool
	lost   []*end // peers of streams of a process that lost its power: told when the machine is back
	port   uint16
}

// Freeze stops the process of a host: it reads nothing and what it writes does not leave. Streams to it can be made.
func (h *Host) Freeze() { h.freeze(true) }

// Thaw lets the process go on.
func (h *Host) Thaw() { h.freeze(false) }

func (h *Host) freeze(yes bool) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.frozen = yes
	h.n.wakeLocked()
}

// Boot starts a process on the host and returns its sockets. The one before must have ended.
func (h *Host) Boot() *Stack {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	s := &Stack{h: h, listeners: map[uint16]*listener{}, ends: map[*end]struct{}{}}
	h.stack, h.off = s, false
	for _, e := range h.lost { // whatever the peer sends now is answered with a reset
		e.in.putLocked(segment{end: syscall.ECONNRESET})
	}
	h.lost = nil
	h.n.wakeLocked()
	return s
}

// Stack is what a process has of the network.
type Stack struct {
	h         *Host
	dead      bool
	listeners map[uint16]*listener
	ends      map[*end]struct{}
}

// Kill ends the sockets of a process that was killed: its peers are told, after what was sent before.
func (s *Stack) Kill() { s.end(false) }

// Lose ends the sockets of a process whose machine has lost its power: nobody is told before the machine is back.
func (s *Stack) Lose() { s.end(true) }

func (s *Stack) end(power bool) {
	n := s.h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.dead {
		return
	}
	s.dead, s.h.off, s.h.frozen = true, power, false
	for _, l := range s.listeners {
		l.closeLocked()
	}
	for e := range s.ends {
		e.err = net.ErrClosed
		if power {
			s.h.lost = append(s.h.lost, e.peer)
		} else {
			e.out.putLocked(segment{end: syscall.ECONNRESET})
			e.in.gone = true
		}
		e.wakeLocked()
	}
	s.ends = map[*end]struct{}{}
	s.h.stack = nil
	n.wakeLocked()
}

func addrOf(ip netip.Addr, port uint16) *net.TCPAddr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, port))
}

// listener is a port of a process.
type listener struct {
	s      *Stack
	addr   *net.TCPAddr
	accept chan *end
	closed chan struct{}
	over   bool
}

// backlog is how many streams wait to be accepted.
const backlog = 128

// Listen opens a port; the host of the address does not matter.
func (s *Stack) Listen(addr string) (net.Listener, error) {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	n := s.h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.dead {
		return nil, syscall.ENETDOWN
	}
	if s.listeners[a.Port()] != nil {
		return nil, syscall.EADDRINUSE
	}
	l := &listener{s: s, addr: addrOf(s.h.ip, a.Port()), accept: make(chan *end, backlog), closed: make(chan struct{})}
	s.listeners[a.Port()] = l
	n.wakeLocked()
	return l, nil
}

// Accept returns the next stream.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case e := <-l.accept:
		return e, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Addr is where the port is.
func (l *listener) Addr() net.Addr { return l.addr }

// Close closes the port. Streams that nobody has accepted break.
func (l *listener) Close() error {
	n := l.s.h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.over {
		return net.ErrClosed
	}
	delete(l.s.listeners, uint16(l.addr.Port))
	l.closeLocked()
	return nil
}

func (l *listener) closeLocked() {
	l.over = true
	close(l.closed)
	for {
		select {
		case e := <-l.accept:
			e.closeLocked(syscall.ECONNRESET)
		default:
			return
		}
	}
}

// Dial makes a stream to an address, host:port with the number of the host.
func (s *Stack) Dial(ctx context.Context, addr string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for {
		c, wait, err := s.connect(to)
		if wait.moved != nil {
			select {
			case <-wait.moved:
				err = rest(ctx, wait.pause)
			case <-ctx.Done():
				err = ctx.Err()
			}
			if err == nil {
				continue
			}
		} else if late := rest(ctx, wait.pause); late != nil && err == nil { // the answer is under way
			err = errors.Join(late, c.Close())
		}
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: err}
		}
		return c, nil
	}
}

func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waiting is what somebody who dials waits for: a change if there is no stream and no error, and then a pause.
type waiting struct {
	moved chan struct{}
	pause time.Duration
}

// connect makes a stream if the other side can answer now.
func (s *Stack) connect(to netip.AddrPort) (*end, waiting, error) {
	n := s.h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	peer := n.hosts[to.Addr()]
	switch {
	case s.dead:
		return nil, waiting{}, syscall.ENETDOWN
	case peer == nil:
		return nil, waiting{}, syscall.EHOSTUNREACH
	case peer.off, n.wayLocked(s.h, peer).cut, n.wayLocked(peer, s.h).cut, s.h.frozen:
		return nil, waiting{n.moved, n.upToLocked(againMax)}, nil
	}
	trip := waiting{pause: n.delayLocked(s.h, peer) + n.delayLocked(peer, s.h)}
	if peer.stack == nil || peer.stack.listeners[to.Port()] == nil {
		return nil, trip, syscall.ECONNREFUSED
	}
	l := peer.stack.listeners[to.Port()]
	s.h.port = max(s.h.port+1, 40000)
	near, far := stream(s, peer.stack, addrOf(s.h.ip, s.h.port), l.addr)
	select {
	case l.accept <- far:
		return near, trip, nil
	default:
		near.breakLocked()
		return nil, trip, syscall.ECONNREFUSED
	}
}
