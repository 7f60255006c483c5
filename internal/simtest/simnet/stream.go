package simnet

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// segment is a part of what is under way, or the end of it.
type segment struct {
	at   time.Time // when it comes, if the way is open
	data []byte
	end  error // nil: data
}

// half is one direction of a stream.
type half struct {
	n        *Network
	from, to *Host
	queue    []segment
	size     int       // bytes in queue
	last     time.Time // when the last segment comes: nothing overtakes it
	gone     bool      // nobody reads any more
	change   chan struct{}
}

func (h *half) wakeLocked() {
	close(h.change)
	h.change = make(chan struct{})
}

// putLocked sends a segment.
func (h *half) putLocked(s segment) {
	s.at = time.Now().Add(h.n.delayLocked(h.from, h.to))
	if s.at.Before(h.last) {
		s.at = h.last
	}
	h.last = s.at
	h.queue = append(h.queue, s)
	h.size += len(s.data)
	h.wakeLocked()
}

// headLocked returns the first segment if it has come. If not, at is when to look again, zero if only a change helps.
func (h *half) headLocked(now time.Time) (s *segment, at time.Time) {
	if len(h.queue) == 0 {
		return nil, time.Time{}
	}
	open, at := h.n.openLocked(h.from, h.to, now)
	if !open {
		return nil, at
	}
	if s = &h.queue[0]; now.Before(s.at) {
		return nil, s.at
	}
	return s, at
}

// end is one side of a stream. It implements net.Conn.
type end struct {
	n               *Network
	stack           *Stack
	host            *Host
	peer            *end
	in, out         *half
	local, remote   *net.TCPAddr
	err             error // what calls get: the stream is over on this side
	readBy, writeBy time.Time
}

var _ net.Conn = (*end)(nil)

// stream makes a stream.
func stream(from, to *Stack, local, remote *net.TCPAddr) (near, far *end) {
	n := from.h.n
	there := &half{n: n, from: from.h, to: to.h, change: make(chan struct{})}
	back := &half{n: n, from: to.h, to: from.h, change: make(chan struct{})}
	near = &end{n: n, stack: from, host: from.h, in: back, out: there, local: local, remote: remote}
	far = &end{n: n, stack: to, host: to.h, in: there, out: back, local: remote, remote: local, peer: near}
	near.peer = far
	from.ends[near], to.ends[far] = struct{}{}, struct{}{}
	return near, far
}

func (e *end) wakeLocked() {
	e.in.wakeLocked()
	e.out.wakeLocked()
}

// awaitLocked waits for a change of one direction, until a time if that is not zero, and takes the lock again.
func (e *end) awaitLocked(h *half, until, by time.Time) error {
	if !by.IsZero() {
		if !time.Now().Before(by) {
			return os.ErrDeadlineExceeded
		}
		if until.IsZero() || by.Before(until) {
			until = by
		}
	}
	change := h.change
	e.n.mu.Unlock()
	defer e.n.mu.Lock()
	if until.IsZero() {
		<-change
		return nil
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-change:
	case <-t.C:
	}
	return nil
}

// Read implements net.Conn.
func (e *end) Read(b []byte) (int, error) {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	for {
		if e.err != nil {
			return 0, e.fault("read", e.err)
		}
		s, at := e.in.headLocked(time.Now())
		if s == nil {
			if err := e.awaitLocked(e.in, at, e.readBy); err != nil {
				return 0, e.fault("read", err)
			}
			continue
		}
		if s.end != nil { // stays for later reads
			if errors.Is(s.end, io.EOF) {
				return 0, io.EOF
			}
			return 0, e.fault("read", s.end)
		}
		k := copy(b, s.data)
		e.in.size -= k
		if s.data = s.data[k:]; len(s.data) == 0 {
			e.in.queue = e.in.queue[1:]
		}
		e.in.wakeLocked()
		return k, nil
	}
}

// Write implements net.Conn.
func (e *end) Write(b []byte) (wrote int, err error) {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	for len(b) > 0 {
		there, _ := e.n.openLocked(e.host, e.peer.host, time.Now())
		back, _ := e.n.openLocked(e.peer.host, e.host, time.Now())
		switch {
		case e.err != nil:
			return wrote, e.fault("write", e.err)
		case e.out.gone && there && back: // the refusal has to come back, and then so does the end for those who read
			return wrote, e.fault("write", syscall.EPIPE)
		case e.out.size >= bufferBytes:
			if err := e.awaitLocked(e.out, time.Time{}, e.writeBy); err != nil {
				return wrote, e.fault("write", err)
			}
			continue
		}
		k := min(len(b), bufferBytes-e.out.size)
		e.out.putLocked(segment{data: append([]byte(nil), b[:k]...)})
		wrote, b = wrote+k, b[k:]
	}
	return wrote, nil
}

func (e *end) fault(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: e.local, Addr: e.remote, Err: err}
}

// Close implements net.Conn.
func (e *end) Close() error {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	if e.err != nil {
		return e.fault("close", e.err)
	}
	e.closeLocked(io.EOF)
	return nil
}

// closeLocked ends this side and tells the other, which reads what was sent before.
func (e *end) closeLocked(how error) {
	e.err = net.ErrClosed
	e.out.putLocked(segment{end: how})
	e.in.gone = true
	delete(e.stack.ends, e)
	e.wakeLocked()
}

// breakLocked ends both sides at once.
func (e *end) breakLocked() {
	for _, s := range []*end{e, e.peer} {
		if s.err == nil {
			s.err = syscall.ECONNRESET
		}
		delete(s.stack.ends, s)
		s.wakeLocked()
	}
}

// LocalAddr implements net.Conn.
func (e *end) LocalAddr() net.Addr { return e.local }

// RemoteAddr implements net.Conn.
func (e *end) RemoteAddr() net.Addr { return e.remote }

// SetDeadline implements net.Conn.
func (e *end) SetDeadline(t time.Time) error { return e.by(t, true, true) }

// SetReadDeadline implements net.Conn.
func (e *end) SetReadDeadline(t time.Time) error { return e.by(t, true, false) }

// SetWriteDeadline implements net.Conn.
func (e *end) SetWriteDeadline(t time.Time) error { return e.by(t, false, true) }

func (e *end) by(t time.Time, read, write bool) error {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	if read {
		e.readBy = t
	}
	if write {
		e.writeBy = t
	}
	e.wakeLocked()
	return nil
}
