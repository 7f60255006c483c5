package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/perigee-mq/perigee/broker"
	"github.com/perigee-mq/perigee/controller"
	"github.com/perigee-mq/perigee/internal/memory"
	"github.com/perigee-mq/perigee/internal/obs"
	"github.com/perigee-mq/perigee/proxy"
)

// devSettings are the settings of dev.
type devSettings struct {
	logSettings        `koanf:",squash"`
	memorySettings     `koanf:",squash"`
	storeSettings      `koanf:",squash"`
	edgeSettings       `koanf:",squash"`
	edgeDrainSettings  `koanf:",squash"`
	definitionSettings `koanf:",squash"`
	DataDir            string `koanf:"data-dir" help:"directory for everything; default: a temporary one, removed at the end"`
	Cluster            bool   `koanf:"cluster" help:"run a cluster in the process: three controllers, two broker groups of three replicas with files of a quarter of --segment-bytes, two proxies; the second proxy's ports are two above the first's"`
	ControllerAddr     string `koanf:"controller-addr" help:"with --cluster: address of the first controller, for perigee cluster"`
}

// devGroup is the broker group of a dev process.
const devGroup = "dev"

func newDev() *cobra.Command {
	s := &devSettings{logSettings: defaultLog(), storeSettings: defaultStore(64 << 20), edgeSettings: defaultEdge(), edgeDrainSettings: defaultEdgeDrain(0), definitionSettings: defaultDefinitions(), ControllerAddr: defaultCluster().Controller[0]}
	s.AutoCreate = true
	c := &cobra.Command{
		Use: "dev", Short: "Run a whole service in one process, without configuration",
		Long: "Runs controller, broker and proxy in one process on loopback addresses.\n\n" +
			"With --auto-create (the default) a topic or group that a client names is created on first use: the topic takes every\n" +
			"type of message, the group is unordered.\n\nWith --cluster it is a cluster, of which each member could be a process of its own. A line tells of every change of\n" +
			"a broker group's master; `perigee cluster elect` makes one.",
		Args: exactArgs(0, "no argument"),
		RunE: asServer(s.run),
	}
	return withSettings(c, s)
}

func (s *devSettings) run(c *cobra.Command) error {
	log, err := s.logger()
	if err != nil {
		return err
	}
	if err := errors.Join(s.storeSettings.check(), s.edgeDrainSettings.check(), s.definitionSettings.check()); err != nil {
		return err
	}
	dir, remove, err := s.directory(c)
	if err != nil {
		return err
	}
	defer remove()
	if s.Cluster {
		return s.runCluster(c, dir, log)
	}
	ln, err := listen("--grpc-addr", s.GRPCAddr)
	if err != nil {
		return err
	}
	http, err := listen("--http-addr", s.HTTPAddr)
	if err != nil {
		return err
	}
	logStart(log, "dev", "grpc_addr", ln.Addr().String(), "http_addr", http.Addr().String(), "data_dir", dir)
	d, err := s.wire(dir, ln, log)
	if err != nil {
		return err
	}
	defer d.conn.Close()
	g, ctx := errgroup.WithContext(c.Context())
	g.Go(func() error { return d.guard.Run(ctx) })
	g.Go(func() error { return beside(ctx, http, obs.NewMux(d.health(), d.metrics), d.run) })
	g.Go(func() error {
		announce(ctx, c.OutOrStdout(), d.proxy.Ready(), "grpc="+ln.Addr().String(), "http="+http.Addr().String())
		if ctx.Err() == nil && s.AutoCreate {
			for _, line := range hints(os.Args[0], ln.Addr().String()) {
				fmt.Fprintln(c.ErrOrStderr(), line)
			}
		}
		return nil
	})
	return g.Wait()
}

// directory is where everything is kept, and what to do with it at the end.
func (s *devSettings) directory(c *cobra.Command) (string, func(), error) {
	if s.DataDir != "" {
		return s.DataDir, func() {}, os.MkdirAll(s.DataDir, 0o755)
	}
	dir, err := os.MkdirTemp("", "perigee-dev-")
	if err != nil {
		return "", nil, err
	}
	fmt.Fprintf(c.ErrOrStderr(), "keeping data in %s until the end; --data-dir keeps it for good\n", dir)
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// devParts are the three tiers in one process. The tiers speak gRPC over a pipe in memory; proxy and
// broker meet through brokerapi.
type devParts struct {
	controller *controller.Controller
	broker     *broker.Broker
	proxy      *proxy.Proxy
	conn       *grpc.ClientConn
	metrics    *obs.Metrics
	guard      *memory.Guard
}

// pipeBytes is the size of the in-memory pipe's buffer.
const pipeBytes = 256 << 10

func (s *devSettings) wire(dir string, ln net.Listener, log *slog.Logger) (*devParts, error) {
	limits, err := s.limits()
	if err != nil {
		return nil, err
	}
	pipe := bufconn.Listen(pipeBytes)
	conn, err := grpc.NewClient("passthrough:///controller", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		return nil, err
	}
	d := &devParts{conn: conn}
	if d.metrics, err = obs.NewMetrics(); err != nil {
		return nil, err
	}
	if d.guard, err = s.guard(d.metrics.Meter("process"), log); err != nil {
		return nil, err
	}
	boundProxy(d.guard, &limits)
	eo := s.engine()
	boundEngine(d.guard, &eo)
	if d.controller, err = controller.New(controller.Options{
		ID: "dev", Topics: s.MaxTopics, Groups: s.MaxGroups, DataDir: filepath.Join(dir, "controller"), Listener: pipe, DrainTimeout: s.DrainTimeout, Metrics: d.metrics.Meter("controller"), Release: version, Log: log.With("tier", "controller"),
	}); err != nil {
		return nil, err
	}
	d.broker = broker.New(broker.Options{
		DataDir: filepath.Join(dir, "broker"), Group: devGroup, ID: 1, FS: dataFS, Advertise: s.advertised(ln), Controller: conn, DrainTimeout: s.DrainTimeout,
		SegmentBytes: int64(s.SegmentBytes), DropRate: int64(s.RetentionRate), DuplicateWindow: s.window(), DuplicateBytes: int64(s.DuplicateMemory), SkipDamage: s.OnDamage == "skip", Engine: eo, Metrics: d.metrics.Meter("broker"), MetricsLimit: s.MetricsLimit, Release: version, Log: log.With("tier", "broker"),
	})
	po := proxy.Options{
		Listener: ln, Controller: conn, Local: d.broker, Advertise: s.advertised(ln), AutoCreate: s.AutoCreate, CertFile: s.TLSCert, KeyFile: s.TLSKey, Limits: limits,
		DrainDelay: s.DrainDelay, DrainTimeout: s.DrainTimeout, Metrics: d.metrics.Meter("proxy"), Release: version, Log: log.With("tier", "proxy"),
	}
	s.edgeBounds.apply(&po)
	d.proxy, err = proxy.New(po)
	return d, err
}

// run runs the tiers and stops them in the reverse order of their start.
func (d *devParts) run(ctx context.Context) error {
	ctlCtx, stopCtl := context.WithCancel(context.WithoutCancel(ctx))
	brokerCtx, stopBroker := context.WithCancel(ctlCtx)
	proxyCtx, stopProxy := context.WithCancel(brokerCtx)
	ended := make(chan error, 3)
	start := func(run func(context.Context) error, ctx context.Context, then func()) {
		go func() { err := run(ctx); then(); ended <- err }()
	}
	start(d.controller.Run, ctlCtx, stopProxy)
	start(d.broker.Run, brokerCtx, func() { stopProxy(); stopCtl() })
	start(d.proxy.Run, proxyCtx, stopBroker)
	stop := context.AfterFunc(ctx, stopProxy)
	defer stop()
	defer stopCtl()
	return errors.Join(<-ended, <-ended, <-ended)
}

// health is what the HTTP port says of the tiers.
func (d *devParts) health() obs.Health {
	return obs.Health{Release: version, Live: d.broker.Live, Parts: []obs.Part{
		{Name: "controller", Ready: d.controller.Healthy}, brokerPart(d.broker), {Name: "proxy", Ready: d.proxy.Healthy},
	}}
}
