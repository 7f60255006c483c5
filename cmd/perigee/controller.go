package main

import (
	"net"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/perigee-mq/perigee/controller"
	"github.com/perigee-mq/perigee/internal/obs"
)

// controllerSettings are the settings of a controller.
type controllerSettings struct {
	logSettings   `koanf:",squash"`
	drainSettings `koanf:",squash"`
	DataDir       string `koanf:"data-dir" help:"directory of the controller's state"`
	Addr          string `koanf:"addr" help:"address for brokers and proxies"`
	HTTPAddr      string `koanf:"http-addr" help:"address for /metrics, /healthz and /readyz; empty: none"`
	RaftAddr      string `koanf:"raft-addr" help:"address for the other controllers"`
	Advertise     string `koanf:"advertise" help:"address that others use for this one, host:port; default: --addr"`
	NodeID        string `koanf:"id" help:"name of this controller among the controllers"`
}

func newController() *cobra.Command {
	s := &controllerSettings{logSettings: defaultLog(), drainSettings: defaultDrain(), Addr: "127.0.0.1:9876", RaftAddr: "127.0.0.1:9877", NodeID: "c1"}
	c := &cobra.Command{
		Use: "controller --data-dir DIR", Short: "Run a controller: topics, groups, broker groups, routes",
		Args: exactArgs(0, "no argument"),
		RunE: asServer(s.run),
	}
	return withSettings(c, s)
}

func (s *controllerSettings) run(c *cobra.Command) error {
	log, err := s.logger()
	if err != nil {
		return err
	}
	if s.DataDir == "" {
		return usageError("controller needs --data-dir: what it knows must outlive it")
	}
	if err := s.drainSettings.check(); err != nil {
		return err
	}
	ln, err := listen("--addr", s.Addr)
	if err != nil {
		return err
	}
	var http net.Listener // nil: none
	if s.HTTPAddr != "" {
		if http, err = listen("--http-addr", s.HTTPAddr); err != nil {
			return err
		}
	}
	metrics, err := obs.NewMetrics()
	if err != nil {
		return err
	}
	logStart(log, "controller", "addr", ln.Addr().String(), "raft_addr", s.RaftAddr, "data_dir", s.DataDir)
	ctl, err := controller.New(controller.Options{
		ID: s.NodeID, DataDir: s.DataDir, Listener: ln, RaftAddr: s.RaftAddr, AdvertiseAddr: advertise(s.Advertise, ln), DrainTimeout: s.DrainTimeout, Metrics: metrics.Meter("controller"), Release: version, Log: log,
	})
	if err != nil {
		return err
	}
	parts := []string{"addr=" + ln.Addr().String(), "raft=" + s.RaftAddr}
	g, ctx := errgroup.WithContext(c.Context())
	if http != nil {
		parts = append(parts, "http="+http.Addr().String())
	}
	g.Go(func() error {
		return beside(ctx, http, obs.NewMux(obs.Health{Release: version, Parts: []obs.Part{{Name: "controller", Ready: ctl.Healthy}}}, metrics), ctl.Run)
	})
	g.Go(func() error {
		announce(ctx, c.OutOrStdout(), ctl.Ready(), parts...)
		return nil
	})
	return g.Wait()
}

func advertise(given string, ln net.Listener) string {
	if given != "" {
		return given
	}
	return ln.Addr().String()
}
