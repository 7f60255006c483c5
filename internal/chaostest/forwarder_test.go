package chaostest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// forwarder is a load balancer: it hands connections on to proxies that say on /readyz that they are ready, one after
// another. It asks them often enough for a proxy that says so for two seconds before it closes.
type forwarder struct {
	listener net.Listener
	addrs    []string // of the proxies, for clients
	http     []string // where they tell of themselves
	client   http.Client
	done     chan struct{}
	wg       sync.WaitGroup

	mu    sync.Mutex // guards what follows
	ready []bool
	turn  int
	conns map[net.Conn]bool
	ended bool
}

// askEvery is how often a forwarder looks at /readyz.
const askEvery = 200 * time.Millisecond

func newForwarder(addrs, httpAddrs []string) (*forwarder, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &forwarder{
		listener: ln, addrs: addrs, http: httpAddrs, client: http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
		done: make(chan struct{}), ready: make([]bool, len(addrs)), conns: map[net.Conn]bool{},
	}
	for i := range addrs {
		f.wg.Go(func() { f.watch(i) })
	}
	f.wg.Go(f.accept)
	return f, nil
}

// addr is where clients connect.
func (f *forwarder) addr() string { return f.listener.Addr().String() }

// watch follows the readiness of one proxy.
func (f *forwarder) watch(i int) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		resp, err := f.client.Get("http://" + f.http[i] + "/readyz")
		ok := err == nil && resp.StatusCode == http.StatusOK
		if err == nil {
			_ = resp.Body.Close()
		}
		f.mu.Lock()
		f.ready[i] = ok
		f.mu.Unlock()
		select {
		case <-f.done:
			return
		case <-tick.C:
		}
	}
}

func (f *forwarder) accept() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() { f.serve(c) })
	}
}

// pick is a proxy that is ready.
func (f *forwarder) pick() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range f.addrs {
		f.turn++
		if i := f.turn % len(f.addrs); f.ready[i] {
			return f.addrs[i], nil
		}
	}
	return "", fmt.Errorf("of %v none is ready", f.addrs)
}

// serve copies bytes in both directions until one side is done.
func (f *forwarder) serve(c net.Conn) {
	defer c.Close()
	addr, err := f.pick()
	if err != nil {
		return
	}
	p, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return
	}
	defer p.Close()
	if !f.keep(c, p) {
		return
	}
	defer f.forget(c, p)
	var wg sync.WaitGroup
	for _, pair := range [][2]net.Conn{{c, p}, {p, c}} {
		wg.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close() // and with it the other direction
			_ = pair[1].Close()
		})
	}
	wg.Wait()
}

func (f *forwarder) keep(conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		f.conns[c] = true
	}
	return !f.ended
}

func (f *forwarder) forget(conns ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		delete(f.conns, c)
	}
}

func (f *forwarder) end() {
	close(f.done)
	_ = f.listener.Close()
	f.mu.Lock()
	f.ended = true
	for c := range f.conns {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.wg.Wait()
}

// readies tells which proxies are ready.
func (f *forwarder) readies() []bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ready)
}
