package link

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// side is what client and server do differently.
type side interface {
	// frame handles one frame on the reader goroutine. An error ends the link.
	frame(h head, payload []byte) error
	// events appends at most limit bytes of events and tells whether there are more. The mutex is held.
	events(dst []byte, limit int) ([]byte, bool)
	// copied is told which replies are in a packet entirely. The mutex is held.
	copied(replies []*message)
	// quiet is called when nothing can be sent. It tells whether that has changed now, or ends the link
	// with an error. The mutex is held.
	quiet() (bool, error)
	// due takes what is overdue, returns how to complete it (nil: nothing) and when to ask again (zero:
	// never). The mutex is held.
	due(now time.Time) (complete func(), next time.Time)
	// end completes everything. It is the last call, on the reader goroutine.
	end(err error)
}

// conn is one side of a link.
type conn struct {
	t    Transport
	o    Options
	n    *Counters
	side side

	mu    sync.Mutex
	work  sync.Cond // something may be sent, or the link has ended
	out   outbox
	held  [Classes]int64 // credit that messages from the peer hold here
	began bool           // the peer's first frame has come
	err   error          // why the link has ended, nil while it works
	next  time.Time      // when the keeper wakes

	heard atomic.Bool   // a packet came since the keeper looked
	alarm chan struct{} // wakes the keeper
	done  chan struct{} // closed when err is set
	gone  chan struct{} // closed when all goroutines have ended
}

func (c *conn) init(t Transport, o Options, s side) {
	o = o.withDefaults()
	c.t, c.o, c.n, c.side = t, o, o.Counters, s
	c.work.L = &c.mu
	c.alarm, c.done, c.gone = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	c.out.window = &c.o.Window
	for i, w := range c.o.Window {
		c.out.owedMin[i] = max(1, w/4)
	}
}

// start starts the goroutines.
func (c *conn) start() {
	var helpers sync.WaitGroup
	helpers.Go(c.write)
	helpers.Go(c.keep)
	go func() {
		defer close(c.gone)
		c.fail(c.read())
		helpers.Wait()
		c.side.end(c.err)
	}()
}

// Done is closed when the link has ended, before its calls are completed.
func (c *conn) Done() <-chan struct{} { return c.done }

// Err is why the link has ended, nil while it works.
func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Wait returns when the link has ended, everything is completed and its goroutines are gone.
func (c *conn) Wait() { <-c.gone }

// fail ends the link. The first error counts.
func (c *conn) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		close(c.done)
		c.work.Broadcast()
	}
	c.mu.Unlock()
	if first {
		_ = c.t.Close() // what it says adds nothing to err
	}
}

func (c *conn) write() {
	for {
		packet := newPacket()
		c.mu.Lock()
		packet, err := c.gather(packet)
		done, frames := c.out.done, c.out.frames
		c.out.done = nil
		c.mu.Unlock()
		if err == nil {
			c.n.PacketsOut.Add(1)
			c.n.FramesOut.Add(frames)
			c.n.BytesOut.Add(int64(len(packet)))
			err = c.t.Send(packet)
		}
		for _, m := range done {
			if m.sent != nil {
				m.sent(err == nil)
			}
		}
		if err != nil {
			c.fail(closed(err))
			return
		}
	}
}

// gather waits until there is something to send, and fills the packet with it. The mutex is held.
func (c *conn) gather(packet []byte) ([]byte, error) {
	for {
		if c.err != nil {
			return nil, c.err
		}
		if packet = c.out.fill(packet, c.side.events); len(packet) > 0 {
			c.side.copied(c.out.done)
			return packet, nil
		}
		again, err := c.side.quiet()
		if err != nil {
			return nil, err
		}
		if !again {
			c.work.Wait()
			// Whoever runs now and is about to send shares the packet: fewer, larger writes.
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		}
	}
}

func (c *conn) read() error {
	for {
		packet, err := c.t.Recv()
		if err != nil {
			return closed(err)
		}
		c.heard.Store(true)
		c.n.PacketsIn.Add(1)
		c.n.BytesIn.Add(int64(len(packet)))
		for len(packet) > 0 {
			h, payload, rest, err := nextFrame(packet)
			if err == nil {
				err = c.dispatch(h, payload)
			}
			if err != nil {
				return err
			}
			c.n.FramesIn.Add(1)
			packet = rest
		}
	}
}

// closed turns an error of the transport into one of ours.
func closed(err error) error {
	var e *mqerr.Error
	switch {
	case errors.As(err, &e):
		return err
	case errors.Is(err, io.EOF):
		return mqerr.New(mqerr.Unavailable, "link: the peer has closed it")
	}
	return mqerr.New(mqerr.Unavailable, "link: %w", err)
}

// dispatch handles the frames that both sides have, and leaves the others to the side.
func (c *conn) dispatch(h head, payload []byte) error {
	c.mu.Lock()
	if c.began == (h.kind == kindWindow) {
		c.mu.Unlock()
		return broken("a frame of kind %d: the first frame and no other tells the windows", h.kind)
	}
	switch h.kind {
	case kindWindow:
		c.began = true
		for i := range Classes {
			c.out.credit[i] = int64(le32(payload, 4*i))
		}
	case kindCredit:
		if h.id >= Classes {
			c.mu.Unlock()
			return broken("credit for class %d", h.id)
		}
		c.out.credit[h.id] += int64(le32(payload, 0))
	case kindPing:
		c.out.pong = true
	case kindPong:
	default:
		c.mu.Unlock()
		return c.side.frame(h, payload)
	}
	c.work.Signal()
	c.mu.Unlock()
	return nil
}

// take accounts for a message of the peer that begins. The mutex is held.
func (c *conn) take(class Class, size int) error {
	if size > MessageMax {
		return broken("a message of %d bytes, at most %d are allowed", size, MessageMax)
	}
	if c.held[class]+c.out.owed[class] >= c.o.Window[class] {
		return broken("a message of class %d beyond its credit", class)
	}
	c.held[class] += charge(size)
	return nil
}

// giveBack returns the credit of a message of the peer. The mutex is held.
func (c *conn) giveBack(class Class, size int) {
	c.held[class] -= charge(size)
	c.out.owed[class] += charge(size)
	if c.out.owed[class] >= c.out.owedMin[class] {
		c.work.Signal()
	}
}

// keep wakes for deadlines and for the keepalive.
func (c *conn) keep() {
	patience := newPatience(c.o.KeepAlive, time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-c.alarm:
		case <-timer.C:
		}
		now := time.Now()
		if !now.Before(patience.next) {
			sign, ask, dead := patience.look(now, c.heard.Swap(false))
			if dead {
				c.fail(mqerr.New(mqerr.Unavailable, "link: nothing came from the peer for %v", 2*c.o.KeepAlive))
				return
			}
			if sign {
				c.signOfLife(ask)
			}
		}
		timer.Reset(time.Until(c.wakeAt(patience.next, now)))
	}
}

// signOfLife gives the peer one, and asks for one if the peer is silent. It is given in every KeepAlive, whatever
// else has gone since the last: a peer that sends much may hear nothing else, its ping stands behind what it
// has sent, and its patience ends two KeepAlives after it heard something, so signs that far apart would race with it.
func (c *conn) signOfLife(ask bool) {
	c.mu.Lock()
	c.out.ping = c.out.ping || ask
	c.out.pong = c.out.pong || !ask
	c.work.Signal()
	c.mu.Unlock()
}

// wakeAt completes what is overdue and says when the keeper must wake.
func (c *conn) wakeAt(look, now time.Time) time.Time {
	c.mu.Lock()
	complete, at := c.side.due(now)
	next := look
	if !at.IsZero() && at.Before(look) {
		next = at
	}
	c.next = next
	c.mu.Unlock()
	if complete != nil {
		complete()
	}
	return next
}

// wakeBy makes sure that the keeper wakes at t at the latest. The mutex is held.
func (c *conn) wakeBy(t time.Time) {
	if t.Before(c.next) {
		c.next = t
		select {
		case c.alarm <- struct{}{}:
		default:
		}
	}
}
