package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/perigee-mq/perigee/internal/obs"
)

// drainSettings say how a process stops; docs/start-stop.md has the order.
type drainSettings struct {
	DrainTimeout time.Duration `koanf:"drain-timeout" help:"how long a stop waits for calls under way; then they are cut off"`
}

// edgeDrainSettings are those of processes with a proxy in them.
type edgeDrainSettings struct {
	drainSettings `koanf:",squash"`
	DrainDelay    time.Duration `koanf:"drain-delay" help:"how long a proxy that stops goes on serving while /readyz says no, so that load balancers see it"`
}

func defaultDrain() drainSettings { return drainSettings{DrainTimeout: 10 * time.Second} }

func defaultEdgeDrain(delay time.Duration) edgeDrainSettings {
	return edgeDrainSettings{drainSettings: defaultDrain(), DrainDelay: delay}
}

func (s drainSettings) check() error {
	if s.DrainTimeout <= 0 {
		return usageError("--drain-timeout %v: use a time above 0", s.DrainTimeout)
	}
	return nil
}

func (s edgeDrainSettings) check() error {
	if s.DrainDelay < 0 {
		return usageError("--drain-delay %v: use 0 or more", s.DrainDelay)
	}
	return s.drainSettings.check()
}

// beside runs what a process is for, and its HTTP port beside it until that has ended: while it stops, the
// port says so. A nil listener is no port.
func beside(ctx context.Context, ln net.Listener, pages http.Handler, run func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g.Go(func() error {
		defer end()
		return run(ctx)
	})
	if ln != nil {
		g.Go(func() error { return obs.ServeHTTP(over, ln, pages) })
	}
	return g.Wait()
}
