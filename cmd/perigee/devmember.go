package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc/test/bufconn"

	"github.com/perigee-mq/perigee/controller/raft"
	"github.com/perigee-mq/perigee/internal/obs"
)

// member is what would be a process of its own elsewhere.
type member struct {
	name    string
	log     *slog.Logger
	metrics *obs.Metrics
	http    net.Listener

	run    func(context.Context) error
	ready  <-chan struct{}
	health obs.Health
}

// member makes one that serves pages at an address.
func (d *devCluster) member(name, http string) (*member, error) {
	m := &member{name: name, log: d.log.With("member", name)}
	var err error
	if m.metrics, err = obs.NewMetrics(); err != nil {
		return nil, err
	}
	m.http, err = d.listen("--http-addr", http)
	return m, err
}

func (m *member) serve(run func(context.Context) error, ready <-chan struct{}, health obs.Health) {
	m.run, m.ready, m.health = run, ready, health
}

// tier is members that start and stop together.
type tier struct {
	members []*member
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu  sync.Mutex
	err error
}

// begin starts members. One that ends by itself ends all the others of the process.
func begin(ctx context.Context, fail context.CancelCauseFunc, members []*member) *tier {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t := &tier{members: members, cancel: cancel}
	for _, m := range members {
		t.wg.Go(func() {
			err := beside(own, m.http, obs.NewMux(m.health, m.metrics), m.run)
			if err != nil {
				err = fmt.Errorf("%s: %w", m.name, err)
			}
			if own.Err() == nil {
				fail(errors.Join(err, fmt.Errorf("%s has ended", m.name)))
				return
			}
			if !cancelled(err) {
				t.mu.Lock()
				defer t.mu.Unlock()
				t.err = errors.Join(t.err, err)
			}
		})
	}
	return t
}

// ready waits until all serve; false: ctx ended before.
func (t *tier) ready(ctx context.Context) bool {
	for _, m := range t.members {
		select {
		case <-m.ready:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// stop ends the members in order.
func (t *tier) stop() error {
	t.cancel()
	t.wg.Wait()
	return t.err
}

// pipes connect the controllers of one process in memory.
type pipes map[string]*bufconn.Listener

func (p *pipes) open(members []raft.Member) {
	*p = pipes{}
	for _, m := range members {
		(*p)[m.Addr] = bufconn.Listen(pipeBytes)
	}
}

func (p *pipes) listen(addr string) (net.Listener, error) {
	if ln := (*p)[addr]; ln != nil {
		return ln, nil
	}
	return nil, fmt.Errorf("%s is no controller of this process", addr)
}

// dial connects to a controller in memory, to anybody else by TCP.
func (p *pipes) dial(ctx context.Context, addr string) (net.Conn, error) {
	if ln := (*p)[addr]; ln != nil {
		return ln.DialContext(ctx)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}
