package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perigee-mq/perigee/broker"
	"github.com/perigee-mq/perigee/controller"
	"github.com/perigee-mq/perigee/controller/raft"
	"github.com/perigee-mq/perigee/internal/memory"
	"github.com/perigee-mq/perigee/internal/nodes"
	"github.com/perigee-mq/perigee/internal/obs"
	"github.com/perigee-mq/perigee/proxy"
)

// The cluster of dev --cluster.
const (
	devControllers = 3
	devReplicas    = 3
	devProxies     = 2
	devSegments    = 4 // a log has files of this part of --segment-bytes: there are six of them
)

var devGroups = []string{"a", "b"}

// devCluster is a cluster whose members share one process. They meet as processes of their own would, over TCP; only the
// controllers speak to each other in memory, since their addresses must stay the same.
type devCluster struct {
	s     *devSettings
	dir   string
	log   *slog.Logger
	guard *memory.Guard
	pipes pipes

	controllers, founders, followers, proxies []*member
	addrs                                     []string // of the controllers
	grpc                                      []string // of the proxies
	conns                                     []*nodes.Conn
	rest                                      []net.Listener // to be closed if it does not run
}

// runCluster runs a cluster until the command is told to end.
func (s *devSettings) runCluster(c *cobra.Command, dir string, log *slog.Logger) error {
	d := &devCluster{s: s, dir: dir, log: log}
	defer d.close()
	if err := d.wire(); err != nil {
		return err
	}
	logStart(log, "dev", "cluster", true, "grpc_addr", d.grpc[0], "data_dir", dir)
	return d.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
}

// wire makes all members. Nothing runs yet.
func (d *devCluster) wire() error {
	metrics, err := obs.NewMetrics()
	if err != nil {
		return err
	}
	if d.guard, err = d.s.guard(metrics.Meter("process"), d.log); err != nil {
		return err
	}
	var members []raft.Member
	for i := range devControllers {
		id := fmt.Sprint("c", i+1)
		members = append(members, raft.Member{ID: id, Addr: id + ".dev:1"})
	}
	d.pipes.open(members)
	for i := range members {
		if err := d.controller(i, members); err != nil {
			return err
		}
	}
	for i := range devProxies {
		if err := d.proxy(i, metrics); err != nil {
			return err
		}
	}
	for id := 1; id <= devReplicas; id++ {
		for _, group := range devGroups {
			if err := d.broker(group, uint32(id)); err != nil {
				return err
			}
		}
	}
	return nil
}

// listen opens a port of a member.
func (d *devCluster) listen(what, addr string) (net.Listener, error) {
	ln, err := listen(what, addr)
	if err == nil {
		d.rest = append(d.rest, ln)
	}
	return ln, err
}

// anyPort is for what nobody has to know.
const anyPort = "127.0.0.1:0"

func (d *devCluster) controller(i int, members []raft.Member) error {
	addr := anyPort
	if i == 0 {
		addr = d.s.ControllerAddr
	}
	ln, err := d.listen("--controller-addr", addr)
	if err != nil {
		return err
	}
	m, err := d.member(members[i].ID, anyPort)
	if err != nil {
		return err
	}
	ctl, err := controller.New(controller.Options{
		ID: members[i].ID, DataDir: filepath.Join(d.dir, members[i].ID), Listener: ln, AdvertiseAddr: reachable(ln.Addr().String()), RaftAddr: members[i].Addr, RaftAdvertise: members[i].Addr, Members: members,
		Dial: d.pipes.dial, RaftListen: d.pipes.listen, HTTPAddr: m.http.Addr().String(), FastFailover: true, Topics: d.s.MaxTopics, Groups: d.s.MaxGroups, DrainTimeout: d.s.DrainTimeout, Metrics: m.metrics.Meter("controller"), Release: version, Log: m.log,
	})
	if err != nil {
		return err
	}
	d.addrs = append(d.addrs, reachable(ln.Addr().String()))
	m.serve(ctl.Run, ctl.Ready(), obs.Health{Release: version, Parts: []obs.Part{{Name: "controller", Ready: ctl.Healthy}}})
	d.controllers = append(d.controllers, m)
	return nil
}

func (d *devCluster) broker(group string, id uint32) error {
	m, err := d.member(fmt.Sprintf("%s%d", group, id), anyPort)
	if err != nil {
		return err
	}
	ln, err := d.listen("a broker's port", anyPort)
	if err != nil {
		return err
	}
	conn, err := d.connect()
	if err != nil {
		return err
	}
	eo := d.s.engine()
	boundEngine(d.guard, &eo)
	s := d.s
	b := broker.New(broker.Options{
		DataDir: filepath.Join(d.dir, m.name), Group: group, ID: id, FS: dataFS, Listener: ln, Controller: conn, DrainTimeout: s.DrainTimeout,
		SegmentBytes: int64(s.SegmentBytes) / devSegments, DropRate: int64(s.RetentionRate), DuplicateWindow: s.window(), DuplicateBytes: int64(s.DuplicateMemory), SkipDamage: s.OnDamage == "skip", Engine: eo,
		Metrics: m.metrics.Meter("broker"), MetricsLimit: s.MetricsLimit, HTTPAddr: m.http.Addr().String(), Release: version, Log: m.log,
	})
	m.serve(b.Run, b.Ready(), obs.Health{Release: version, Live: b.Live, Parts: []obs.Part{brokerPart(b)}})
	if id == 1 {
		d.founders = append(d.founders, m)
	} else {
		d.followers = append(d.followers, m)
	}
	return nil
}

func (d *devCluster) proxy(i int, process *obs.Metrics) error {
	limits, err := d.s.limits()
	if err != nil {
		return err
	}
	boundProxy(d.guard, &limits)
	m, err := d.member(fmt.Sprint("proxy", i+1), above(d.s.HTTPAddr, 2*i))
	if err != nil {
		return err
	}
	if i == 0 {
		m.metrics = process
	}
	ln, err := d.listen("--grpc-addr", above(d.s.GRPCAddr, 2*i))
	if err != nil {
		return err
	}
	conn, err := d.connect()
	if err != nil {
		return err
	}
	s := d.s
	po := proxy.Options{
		Listener: ln, Controller: conn, Advertise: s.advertised(ln), AutoCreate: s.AutoCreate, CertFile: s.TLSCert, KeyFile: s.TLSKey, Limits: limits,
		DrainDelay: s.DrainDelay, DrainTimeout: s.DrainTimeout, Metrics: m.metrics.Meter("proxy"), HTTPAddr: m.http.Addr().String(), Release: version, Log: m.log,
	}
	if i > 0 {
		po.Advertise = ln.Addr().String()
	}
	s.edgeBounds.apply(&po)
	p, err := proxy.New(po)
	if err != nil {
		return err
	}
	d.grpc = append(d.grpc, ln.Addr().String())
	m.serve(p.Run, p.Ready(), obs.Health{Release: version, Parts: []obs.Part{{Name: "proxy", Ready: p.Healthy}}})
	d.proxies = append(d.proxies, m)
	return nil
}

// above is the address some ports above one; any port stays any.
func above(addr string, n int) string {
	host, port, err := net.SplitHostPort(addr)
	if p, e := strconv.Atoi(port); err == nil && e == nil && p > 0 {
		return net.JoinHostPort(host, strconv.Itoa(p+n))
	}
	return addr
}

func (d *devCluster) connect() (*nodes.Conn, error) {
	conn, err := dialController(d.addrs)
	if err == nil {
		d.conns = append(d.conns, conn)
	}
	return conn, err
}

func (d *devCluster) close() {
	for _, c := range d.conns {
		_ = c.Close()
	}
	for _, ln := range d.rest {
		_ = ln.Close() // closed before, if it ran
	}
}

// clusterHints are lines to paste into another terminal to see masters change.
func clusterHints(program, controller string) []string {
	at := ""
	if controller != defaultCluster().Controller[0] {
		at = " --controller " + quoted(controller)
	}
	return []string{
		"try: " + quoted(program) + " cluster status" + at,
		"try: " + quoted(program) + " cluster elect " + devGroups[0] + at,
	}
}

// run starts all, says so, and stops all in the reverse order.
func (d *devCluster) run(ctx context.Context, out, errs interface{ Write([]byte) (int, error) }) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var tiers []*tier
	begin := func(members ...*member) bool {
		t := begin(ctx, fail, members)
		tiers = append(tiers, t)
		return t.ready(ctx)
	}
	go func() { fail(d.guard.Run(ctx)) }()
	if begin(d.controllers...) && begin(d.founders...) && begin(d.followers...) && begin(d.proxies...) {
		fmt.Fprintln(out, "ready grpc="+d.grpc[0]+" grpc2="+d.grpc[1]+" http="+d.proxies[0].http.Addr().String()+" controller="+strings.Join(d.addrs, ","))
		if d.s.AutoCreate {
			for _, line := range hints(os.Args[0], d.grpc[0]) {
				fmt.Fprintln(errs, line)
			}
		}
		for _, line := range clusterHints(os.Args[0], d.addrs[0]) {
			fmt.Fprintln(errs, line)
		}
		tellMasters(ctx, d.conns[0], errs)
	}
	<-ctx.Done()
	var err error
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = cause
	}
	for i := range tiers {
		err = errors.Join(err, tiers[len(tiers)-1-i].stop())
	}
	return err
}

// masterPause is the time until controllers are asked again after a stream has broken.
const masterPause = 100 * time.Millisecond
