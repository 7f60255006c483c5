package main

import (
	"cmp"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/perigee-mq/perigee/internal/obs"
	"github.com/perigee-mq/perigee/proxy"
)

// proxySettings are the settings of a proxy.
type proxySettings struct {
	logSettings       `koanf:",squash"`
	memorySettings    `koanf:",squash"`
	edgeSettings      `koanf:",squash"`
	edgeDrainSettings `koanf:",squash"`
	windowSettings    `koanf:",squash"`
	unsentSettings    `koanf:",squash"`
	FailoverWait      time.Duration `koanf:"failover-wait" help:"how long a call waits for the next master of a broker group, within the time that its client gives it; 0: not at all"`
	IsolateSlow       time.Duration `koanf:"isolate-slow" help:"sends that may choose keep away from a broker group that takes longer than this, and five times as long as the best one, or fails most of them; 0: from none"`
	IsolateMax        time.Duration `koanf:"isolate-max" help:"how long a broker group that is kept away from is left alone at most before it is tried again; it begins with 1s"`
	Controller        []string      `koanf:"controller" help:"addresses of the controllers"`
}

func newProxy() *cobra.Command {
	s := &proxySettings{logSettings: defaultLog(), edgeSettings: defaultEdge(), edgeDrainSettings: defaultEdgeDrain(2 * time.Second), windowSettings: defaultWindows(), unsentSettings: defaultUnsent(), FailoverWait: 10 * time.Second, IsolateSlow: 500 * time.Millisecond, IsolateMax: 30 * time.Second, Controller: []string{}}
	c := &cobra.Command{
		Use: "proxy --controller ADDR", Short: "Run a proxy: the port that clients use",
		Args: exactArgs(0, "no argument"),
		RunE: asServer(s.run),
	}
	return withSettings(c, s)
}

func (s *proxySettings) run(c *cobra.Command) error {
	log, err := s.logger()
	if err != nil {
		return err
	}
	if s.FailoverWait < 0 || s.FailoverWait > time.Minute {
		return usageError("--failover-wait %v: use 0 to 1m", s.FailoverWait)
	}
	if s.IsolateSlow < 0 || s.IsolateMax < time.Second {
		return usageError("--isolate-slow %v --isolate-max %v: use 0 or more, and 1s or more", s.IsolateSlow, s.IsolateMax)
	}
	if err := errors.Join(s.edgeDrainSettings.check(), s.windowSettings.check(), s.unsentSettings.check()); err != nil {
		return err
	}
	limits, err := s.limits()
	if err != nil {
		return err
	}
	conn, err := dialController(s.Controller)
	if err != nil {
		return err
	}
	defer conn.Close()
	ln, err := listen("--grpc-addr", s.GRPCAddr)
	if err != nil {
		return err
	}
	http, err := listen("--http-addr", s.HTTPAddr)
	if err != nil {
		return err
	}
	logStart(log, "proxy", "grpc_addr", ln.Addr().String(), "http_addr", http.Addr().String())
	metrics, err := obs.NewMetrics()
	if err != nil {
		return err
	}
	guard, err := s.guard(metrics.Meter("process"), log)
	if err != nil {
		return err
	}
	boundProxy(guard, &limits)
	po := proxy.Options{
		Listener: ln, Controller: conn, Advertise: s.advertised(ln), AutoCreate: s.AutoCreate, CertFile: s.TLSCert, KeyFile: s.TLSKey, Limits: limits,
		IsolateSlow: cmp.Or(s.IsolateSlow, -1), IsolateMost: s.IsolateMax, FailoverWait: cmp.Or(s.FailoverWait, -1), DrainDelay: s.DrainDelay, DrainTimeout: s.DrainTimeout, Metrics: metrics.Meter("proxy"), HTTPAddr: http.Addr().String(), Release: version, Log: log,
	}
	s.edgeBounds.apply(&po)
	s.windowSettings.apply(&po.Link)
	s.unsentSettings.apply(&po.Link)
	p, err := proxy.New(po)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(c.Context())
	g.Go(func() error { return guard.Run(ctx) })
	g.Go(func() error {
		return beside(ctx, http, obs.NewMux(obs.Health{Release: version, Parts: []obs.Part{{Name: "proxy", Ready: p.Healthy}}}, metrics), p.Run)
	})
	g.Go(func() error {
		announce(ctx, c.OutOrStdout(), p.Ready(), "grpc="+ln.Addr().String(), "http="+http.Addr().String())
		return nil
	})
	return g.Wait()
}
