package main

import (
	"errors"
	"net"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/perigee-mq/perigee/broker"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/obs"
	"github.com/perigee-mq/perigee/internal/vfs"
)

// brokerSettings are the settings of a broker.
type brokerSettings struct {
	logSettings    `koanf:",squash"`
	memorySettings `koanf:",squash"`
	storeSettings  `koanf:",squash"`
	drainSettings  `koanf:",squash"`
	linksSettings  `koanf:",squash"`
	DataDir        string   `koanf:"data-dir" help:"directory of the broker's log"`
	Addr           string   `koanf:"addr" help:"address for proxies"`
	HTTPAddr       string   `koanf:"http-addr" help:"address for /metrics, /healthz and /readyz; empty: none"`
	Advertise      string   `koanf:"advertise" help:"address that proxies use, host:port; default: --addr"`
	Group          string   `koanf:"group" help:"name of the broker group"`
	ID             uint32   `koanf:"id" help:"number of this replica in its group, from 1"`
	Controller     []string `koanf:"controller" help:"addresses of the controllers"`

	replicaSettings `koanf:",squash"`
}

// dataFS holds the data of brokers. Tests put one with faults here.
var dataFS = vfs.OS

func newBroker() *cobra.Command {
	s := &brokerSettings{logSettings: defaultLog(), storeSettings: defaultStore(1 << 30), drainSettings: defaultDrain(), linksSettings: defaultLinks(), replicaSettings: defaultReplica(), Addr: "127.0.0.1:10911", ID: 1, Controller: []string{}}
	c := &cobra.Command{
		Use: "broker --data-dir DIR --group NAME --controller ADDR", Short: "Run a broker: one log and its views",
		Args: exactArgs(0, "no argument"),
		RunE: asServer(s.run),
	}
	return withSettings(c, s)
}

func (s *brokerSettings) run(c *cobra.Command) error {
	log, err := s.logger()
	if err != nil {
		return err
	}
	switch {
	case s.DataDir == "":
		return usageError("broker needs --data-dir: messages must outlive it")
	case s.Group == "":
		return usageError("broker needs --group, the name of its broker group")
	case s.ID == 0:
		return usageError("--id counts from 1")
	}
	if err := errors.Join(s.storeSettings.check(), s.drainSettings.check(), s.linksSettings.check(), s.replicaSettings.check()); err != nil {
		return err
	}
	conn, err := dialController(s.Controller)
	if err != nil {
		return err
	}
	defer conn.Close()
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
	logStart(log, "broker", "addr", ln.Addr().String(), "group", s.Group, "id", s.ID, "data_dir", s.DataDir)
	metrics, err := obs.NewMetrics()
	if err != nil {
		return err
	}
	guard, err := s.guard(metrics.Meter("process"), log)
	if err != nil {
		return err
	}
	eo := s.engine()
	boundEngine(guard, &eo)
	lo := link.Options{}
	s.windowSettings.apply(&lo)
	bo := broker.Options{
		Link: lo, LinksMax: s.MaxLinks, PeersMax: s.MaxPeerConnections, DataDir: s.DataDir, Group: s.Group, ID: s.ID, FS: dataFS, Listener: ln, Advertise: advertise(s.Advertise, ln), Controller: conn, DrainTimeout: s.DrainTimeout,
		SegmentBytes: int64(s.SegmentBytes), DropRate: int64(s.RetentionRate), DuplicateWindow: s.window(), DuplicateBytes: int64(s.DuplicateMemory), SkipDamage: s.OnDamage == "skip", Engine: eo, Metrics: metrics.Meter("broker"), MetricsLimit: s.MetricsLimit, HTTPAddr: httpAddr(http), Release: version, Log: log,
	}
	s.replicaSettings.apply(&bo)
	b := broker.New(bo)
	parts := []string{"addr=" + ln.Addr().String()}
	if http != nil {
		parts = append(parts, "http="+http.Addr().String())
	}
	g, ctx := errgroup.WithContext(c.Context())
	g.Go(func() error { return guard.Run(ctx) })
	g.Go(func() error {
		return beside(ctx, http, obs.NewMux(obs.Health{Release: version, Live: b.Live, Parts: []obs.Part{brokerPart(b)}}, metrics), b.Run)
	})
	g.Go(func() error {
		announce(ctx, c.OutOrStdout(), b.Ready(), parts...)
		return nil
	})
	return g.Wait()
}

// engine returns the engine's options of the settings.
func (s storeSettings) engine() engine.Options {
	o := engine.Options{
		Async: s.Flush == "async", FlushInterval: s.FlushInterval, CheckpointInterval: s.CheckpointInterval, CheckpointBytes: int64(s.CheckpointBytes), CheckpointBehind: int64(s.CheckpointBehind),
		Txn: s.options(),
	}
	s.querySettings.apply(&o)
	s.liteSettings.apply(&o)
	s.spaceSettings.apply(&o)
	s.retentionSettings.apply(&o)
	s.inFlightSettings.apply(&o)
	o.PullsWaiting, o.PendingRequests = s.PullsWaiting, s.MaxRequests
	return o
}
