package raft

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	hraft "github.com/hashicorp/raft"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

const (
	peerConnections = 3
	peerTimeout     = 10 * time.Second
	// inFlight turns the library's pipelines off: when a node refuses an entry, as one does that was started again, the sender of a
	// pipeline may wait for ever for a reader that has gone. Heartbeats go on then, entries do not, and the leader cannot be stopped.
	inFlight = 1
	// greetTimeout bounds a greeting; strangersMax is how many may be without one at a time.
	greetTimeout = 3 * time.Second
	strangersMax = 64
)

// closer is what every transport of the library can do.
type closer interface {
	hraft.Transport
	hraft.WithClose
}

// newTransport returns the transport and this node's address on it.
func newTransport(o Options, n greeter, logger hclog.Logger) (hraft.ServerAddress, closer, error) {
	if o.Addr == "" {
		addr, t := hraft.NewInmemTransport(hraft.ServerAddress("local:" + o.ID))
		return addr, t, nil
	}
	ln, err := o.Listen(o.Addr)
	if err != nil {
		return "", nil, mqerr.New(mqerr.Invalid, "raft address %s: %w", o.Addr, err)
	}
	name := o.Advertise
	if name == "" {
		name = ln.Addr().String()
	}
	t := hraft.NewNetworkTransportWithConfig(&hraft.NetworkTransportConfig{
		Stream: newPort(ln, name, n, o.Dial, o.Log), MaxPool: peerConnections, Timeout: peerTimeout, Logger: peerLogger{logger}, MaxRPCsInFlight: inFlight,
	})
	return hraft.ServerAddress(name), t, nil
}

// greeter is a node as connections see it. greet answers with what the node says to a peer, and an error
// if it wants nothing to do with it; refused learns that a peer thinks so.
type greeter interface {
	greeting() greeting
	judge(greeting) error
	refused(error)
}

// port is the port for other controllers: connections that have greeted. It has a goroutine that accepts,
// and one for each connection that has not greeted yet.
type port struct {
	ln   net.Listener
	name string
	n    greeter
	dial dialer
	log  *slog.Logger
	good chan net.Conn
	slot chan struct{} // a token for each stranger
	done chan struct{}
	once sync.Once
	wg   sync.WaitGroup
	err  error // why Accept failed; before good is closed

	mu   sync.Mutex         // guards the rest
	told map[string]bool    // refusals that were logged
	open map[*peer]struct{} // connections that have greeted; nil after Close
}

func newPort(ln net.Listener, name string, n greeter, dial dialer, log *slog.Logger) *port {
	p := &port{ln: ln, name: name, n: n, dial: dial, log: log, good: make(chan net.Conn), slot: make(chan struct{}, strangersMax), done: make(chan struct{}), told: map[string]bool{}, open: map[*peer]struct{}{}}
	p.wg.Go(p.accept)
	return p
}

func (p *port) accept() {
	defer close(p.good)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := p.ln.Accept()
		if err != nil {
			p.err = err
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select { // out of descriptors, perhaps: the library waits in the same way
			case <-time.After(100 * time.Millisecond):
				continue
			case <-p.done:
				return
			}
		}
		select {
		case p.slot <- struct{}{}:
		default: // too many strangers: peers try again
			_ = conn.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-p.slot }()
			p.welcome(conn)
		})
	}
}

// welcome greets whoever has connected, and hands the connection on.
func (p *port) welcome(conn net.Conn) {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-p.done:
			_ = conn.SetDeadline(time.Unix(1, 0)) // ends the reading
		case <-stop:
		}
	}()
	_ = conn.SetDeadline(time.Now().Add(greetTimeout))
	g, err := readGreeting(conn)
	if err == nil {
		err = p.n.judge(g)
	}
	answer := p.n.greeting()
	if err != nil {
		p.log.Debug("a connection at the raft port was refused", slog.String("from", conn.RemoteAddr().String()), slog.Any("error", err))
		if !mqerr.Is(err, mqerr.Invalid) || g.ID != "" { // a controller
			answer.Refused = err.Error()
			_, answer.Gone = errors.AsType[goneError](err)
			_ = writeGreeting(conn, answer)
			p.tell(err)
		}
		_ = conn.Close()
		return
	}
	if err := writeGreeting(conn, answer); err != nil {
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	kept, err := p.keep(conn)
	if err != nil {
		return
	}
	select {
	case p.good <- kept:
	case <-p.done:
		_ = kept.Close()
	}
}

// tell logs a refusal once.
func (p *port) tell(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if text := err.Error(); !p.told[text] && len(p.told) < strangersMax {
		p.told[text] = true
		p.log.Warn("another controller is not spoken to", slog.String("reason", text))
	}
}

// Accept returns the next connection that has greeted.
func (p *port) Accept() (net.Conn, error) {
	conn, ok := <-p.good
	if !ok {
		return nil, p.err
	}
	return conn, nil
}

// peer is a connection that ends with the port: the library forgets those that it has.
type peer struct {
	net.Conn
	p *port
}

// Close closes the connection.
func (c *peer) Close() error {
	c.p.mu.Lock()
	delete(c.p.open, c)
	c.p.mu.Unlock()
	return c.Conn.Close()
}

func (p *port) keep(conn net.Conn) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	c := &peer{conn, p}
	p.open[c] = struct{}{}
	return c, nil
}

// Close ends the port with all its connections, and waits for those who greet.
func (p *port) Close() (err error) {
	p.once.Do(func() {
		close(p.done)
		err = p.ln.Close()
		p.wg.Wait()
		p.mu.Lock()
		open := p.open
		p.open = nil
		p.mu.Unlock()
		for c := range open {
			_ = c.Conn.Close()
		}
	})
	return err
}

// Addr is what others call this node.
func (p *port) Addr() net.Addr { return named(p.name) }

// named is an address as it was given.
type named string

func (named) Network() string  { return "tcp" }
func (n named) String() string { return string(n) }

// Dial connects to another node and greets it.
func (p *port) Dial(addr hraft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	conn, g, err := greet(p.dial, string(addr), p.n.greeting(), min(timeout, greetTimeout))
	if err != nil {
		return nil, err
	}
	err = answered(g)
	if err == nil {
		if err = p.n.judge(g); err == nil {
			return p.keep(conn)
		}
	} else {
		p.n.refused(err)
	}
	p.tell(err)
	return nil, errors.Join(err, conn.Close())
}

// dialer connects to an address.
type dialer = func(context.Context, string) (net.Conn, error)

// greet connects to an address and returns what is answered to a greeting.
func greet(dial dialer, addr string, own greeting, timeout time.Duration) (net.Conn, greeting, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := dial(ctx, addr)
	if err != nil {
		return nil, greeting{}, err
	}
	_ = conn.SetDeadline(time.Now().Add(timeout))
	err = writeGreeting(conn, own)
	var g greeting
	if err == nil {
		g, err = readGreeting(conn)
	}
	if err != nil {
		return nil, greeting{}, errors.Join(err, conn.Close())
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, g, nil
}
