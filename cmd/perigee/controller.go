package main

import (
	"errors"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/perigee-mq/perigee/controller"
	"github.com/perigee-mq/perigee/controller/raft"
	"github.com/perigee-mq/perigee/internal/lease"
	"github.com/perigee-mq/perigee/internal/obs"
)

// controllerSettings are the settings of a controller.
type controllerSettings struct {
	logSettings        `koanf:",squash"`
	drainSettings      `koanf:",squash"`
	peerSettings       `koanf:",squash"`
	definitionSettings `koanf:",squash"`
	MaxPeerCalls       int           `koanf:"max-peer-calls" help:"calls that may be open on one connection of another process of the cluster; more wait there"`
	DataDir            string        `koanf:"data-dir" help:"directory of the controller's state"`
	Addr               string        `koanf:"addr" help:"address for brokers and proxies"`
	HTTPAddr           string        `koanf:"http-addr" help:"address for /metrics, /healthz and /readyz; empty: none"`
	RaftAddr           string        `koanf:"raft-addr" help:"address for the other controllers"`
	Advertise          string        `koanf:"advertise" help:"address that brokers, proxies and other controllers use for --addr, host:port; default: --addr"`
	RaftAdvertise      string        `koanf:"raft-advertise" help:"address that other controllers use for --raft-addr, host:port; default: this one's in --initial-members, else --raft-addr"`
	NodeID             string        `koanf:"id" help:"name of this controller among the controllers"`
	Members            []string      `koanf:"initial-members" help:"who founds a new cluster together, the same list on each of them: ID=RAFTADDR,...; a directory that has state does not look at it"`
	Join               bool          `koanf:"join" help:"a new directory waits until 'perigee cluster members add' takes this controller into a cluster"`
	Election           time.Duration `koanf:"election-timeout" help:"how long a controller bears silence of the leader before it stands for election; a leader that reaches no majority steps down within it"`
	Lease              time.Duration `koanf:"lease" help:"how long a broker that leads its group may count on being the only one after a controller has said so; one that is not heard from is replaced after that"`
	FastFailover       bool          `koanf:"fast-failover" help:"replace a broker that leads its group at once when its stream breaks and it accepts no connection, without waiting for the end of its lease: what is stored is as safe, only answers that are no records may come from two"`
}

func newController() *cobra.Command {
	s := &controllerSettings{logSettings: defaultLog(), drainSettings: defaultDrain(), peerSettings: defaultPeers(), definitionSettings: defaultDefinitions(), MaxPeerCalls: 1024, Addr: "127.0.0.1:9876", RaftAddr: "127.0.0.1:9877", NodeID: "c1", Members: []string{}, Election: 300 * time.Millisecond, Lease: lease.LengthDefault}
	c := &cobra.Command{
		Use: "controller --data-dir DIR", Short: "Run a controller: topics, groups, broker groups, routes",
		Long: "Runs a controller. Alone it is a whole cluster's memory of topics, groups and broker groups; three, started with one\n" +
			"list of --initial-members, go on when one of them is lost. A controller that runs alone becomes three with --join and\n" +
			"`perigee cluster members add`.",
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
	if err := errors.Join(s.drainSettings.check(), s.peerSettings.check(), s.definitionSettings.check()); err != nil {
		return err
	}
	if s.MaxPeerCalls < 16 {
		return usageError("--max-peer-calls %d: use 16 or more", s.MaxPeerCalls)
	}
	members, err := s.members()
	if err != nil {
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
		ID: s.NodeID, DataDir: s.DataDir, Listener: ln, RaftAddr: s.RaftAddr, RaftAdvertise: s.RaftAdvertise, Members: members, Join: s.Join, Election: s.Election, HTTPAddr: httpAddr(http), Lease: s.Lease, FastFailover: s.FastFailover, Peers: s.MaxPeerConnections, PeerCalls: s.MaxPeerCalls, Topics: s.MaxTopics, Groups: s.MaxGroups,
		AdvertiseAddr: advertise(s.Advertise, ln), DrainTimeout: s.DrainTimeout, Metrics: metrics.Meter("controller"), Release: version, Log: log,
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

// members are the founders of a new cluster.
func (s *controllerSettings) members() (out []raft.Member, err error) {
	for _, text := range s.Members {
		m, err := memberOf(text)
		if err != nil {
			return nil, usageError("--initial-members %q: %w", text, err)
		}
		out = append(out, m)
	}
	if s.Election < 50*time.Millisecond {
		return nil, usageError("--election-timeout %v: use 50ms or more", s.Election)
	}
	if s.Lease < controller.LeaseMin {
		return nil, usageError("--lease %v: use %v or more", s.Lease, controller.LeaseMin)
	}
	return out, nil
}

// memberOf reads ID=HOST:PORT.
func memberOf(text string) (m raft.Member, err error) {
	id, addr, ok := strings.Cut(strings.TrimSpace(text), "=")
	if host, port, err := net.SplitHostPort(addr); !ok || id == "" || err != nil || host == "" || port == "" {
		return m, errors.New("write ID=HOST:PORT, with the controller's --id and --raft-addr")
	}
	return raft.Member{ID: id, Addr: addr}, nil
}

func httpAddr(ln net.Listener) string {
	if ln == nil {
		return ""
	}
	return ln.Addr().String()
}

func advertise(given string, ln net.Listener) string {
	if given != "" {
		return given
	}
	return ln.Addr().String()
}
