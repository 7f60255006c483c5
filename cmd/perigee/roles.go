package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/perigee-mq/perigee/internal/cfg"
	"github.com/perigee-mq/perigee/internal/memory"
	"github.com/perigee-mq/perigee/internal/nodes"
	"github.com/perigee-mq/perigee/proxy/server"
)

// storeSettings are the settings of processes with a broker in them.
type storeSettings struct {
	querySettings      `koanf:",squash"`
	txnSettings        `koanf:",squash"`
	pullSettings       `koanf:",squash"`
	liteSettings       `koanf:",squash"`
	dedupSettings      `koanf:",squash"`
	metricsSettings    `koanf:",squash"`
	spaceSettings      `koanf:",squash"`
	retentionSettings  `koanf:",squash"`
	inFlightSettings   `koanf:",squash"`
	SegmentBytes       cfg.Bytes     `koanf:"segment-bytes" help:"size of one file of the commit log"`
	Flush              string        `koanf:"flush" help:"when a message counts as stored, for topics that do not say: sync (after fdatasync) or async (after the write)"`
	FlushInterval      time.Duration `koanf:"flush-interval" help:"longest time that asynchronously flushed data waits for fdatasync"`
	CheckpointInterval time.Duration `koanf:"checkpoint-interval" help:"time between checkpoints of the views"`
	CheckpointBytes    cfg.Bytes     `koanf:"checkpoint-bytes" help:"log written between checkpoints of the views, at most"`
	CheckpointBehind   cfg.Bytes     `koanf:"checkpoint-behind" help:"log behind the newest checkpoint from which on messages are refused, when checkpoints fail: it bounds what a start after a crash reads"`
	OnDamage           string        `koanf:"on-damage" help:"what a start does about damaged or missing records of the log: refuse, or skip (go on without them; perigee debug repair shows first what would be lost)"`
}

func defaultStore(segment cfg.Bytes) storeSettings {
	return storeSettings{
		querySettings:     defaultQuery(),
		txnSettings:       defaultTxn(),
		pullSettings:      pullSettings{PullsWaiting: 16384, MaxRequests: 65536},
		liteSettings:      defaultLite(),
		dedupSettings:     defaultDedup(),
		metricsSettings:   defaultMetrics(),
		spaceSettings:     defaultSpace(),
		retentionSettings: defaultRetention(),
		SegmentBytes:      segment, Flush: "sync", FlushInterval: 500 * time.Millisecond, CheckpointInterval: 30 * time.Second, CheckpointBytes: 64 << 20, CheckpointBehind: 16 << 30, OnDamage: "refuse",
		inFlightSettings: defaultInFlight(),
	}
}

func (s storeSettings) check() error {
	if s.Flush != "sync" && s.Flush != "async" {
		return usageError("--flush %q: use sync or async", s.Flush)
	}
	if s.OnDamage != "refuse" && s.OnDamage != "skip" {
		return usageError("--on-damage %q: use refuse or skip", s.OnDamage)
	}
	if err := s.txnSettings.check(); err != nil {
		return err
	}
	if err := s.pullSettings.check(); err != nil {
		return err
	}
	if err := s.liteSettings.check(); err != nil {
		return err
	}
	if err := s.inFlightSettings.check(); err != nil {
		return err
	}
	if err := s.dedupSettings.check(); err != nil {
		return err
	}
	if err := s.metricsSettings.check(); err != nil {
		return err
	}
	if err := s.spaceSettings.check(); err != nil {
		return err
	}
	if err := s.retentionSettings.check(); err != nil {
		return err
	}
	return s.querySettings.check()
}

// edgeSettings are the settings of processes with a proxy in them.
type edgeSettings struct {
	liteEdgeSettings `koanf:",squash"`
	edgeBounds       `koanf:",squash"`
	requestBounds    `koanf:",squash"`
	GRPCAddr         string        `koanf:"grpc-addr" help:"address for clients: gRPC, TLS and plain text"`
	HTTPAddr         string        `koanf:"http-addr" help:"address for /metrics, /healthz and /readyz"`
	Advertise        string        `koanf:"advertise" help:"address that routes name when a client named none, host:port; default: --grpc-addr"`
	AutoCreate       bool          `koanf:"auto-create" help:"create topics and groups that clients name"`
	TLSCert          string        `koanf:"tls-cert" help:"PEM file with the certificate chain; default: a self-signed one"`
	TLSKey           string        `koanf:"tls-key" help:"PEM file with the key of --tls-cert"`
	MaxDelay         time.Duration `koanf:"max-delay" help:"the furthest delivery time of a message from now; more is refused, unless its topic has a --max-delay of its own"`
}

func defaultEdge() edgeSettings {
	return edgeSettings{liteEdgeSettings: defaultLiteEdge(), edgeBounds: defaultEdgeBounds(), requestBounds: defaultRequestBounds(), GRPCAddr: "127.0.0.1:8081", HTTPAddr: "127.0.0.1:8082", MaxDelay: 40 * 24 * time.Hour}
}

// limits are those of the requests of clients.
func (s edgeSettings) limits() (server.Limits, error) {
	if s.MaxDelay <= 0 {
		return server.Limits{}, usageError("--max-delay %v: use a time above 0", s.MaxDelay)
	}
	if err := errors.Join(s.edgeBounds.check(), s.requestBounds.check(), s.liteEdgeSettings.check()); err != nil {
		return server.Limits{}, err
	}
	l := server.Limits{DelayMax: s.MaxDelay, LiteQuota: s.LiteQuota, LiteTopicSize: s.LiteNameSize}
	s.requestBounds.apply(&l)
	return l, nil
}

func (s edgeSettings) advertised(ln net.Listener) string {
	if s.Advertise != "" {
		return s.Advertise
	}
	return ln.Addr().String()
}

// listen opens a port, with an error that says which one.
func listen(what, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, usageError("%s is empty: write host:port, port 0 for any", what) // net.Listen would take every interface
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: choose another address or end the process that has it", what, err)
	}
	return ln, nil
}

// dialController returns a connection that finds a controller among addresses, now and after a
// failure.
func dialController(addrs []string) (*nodes.Conn, error) {
	if len(addrs) == 0 {
		return nil, usageError("--controller is missing: name at least one controller, host:port")
	}
	c, err := nodes.New(addrs)
	if err != nil {
		return nil, usageError("--controller: %w", err)
	}
	return c, nil
}

// asServer makes a command's work that of a server process: run goes on until it is told to end, and
// ending then is a success, also if it had not begun to serve.
func asServer(run func(*cobra.Command) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		defer untilSignal(c)()
		signal.Ignore(syscall.SIGPIPE) // who reads the log may go away: that ends no server
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(memory.GCPercent)
		}
		err := run(c)
		if c.Context().Err() != nil && cancelled(err) {
			return nil
		}
		return err
	}
}

// announce prints the line that says where a process listens, once it is ready.
func announce(ctx context.Context, w io.Writer, ready <-chan struct{}, parts ...string) {
	select {
	case <-ready:
		_, _ = fmt.Fprintln(w, "ready "+strings.Join(parts, " ")) // nobody has to read it
	case <-ctx.Done():
	}
}

// logStart is the one line that a start leaves in the log.
func logStart(log *slog.Logger, role string, attrs ...any) {
	log.Info("starting", append([]any{"role", role, "version", version}, attrs...)...)
}
