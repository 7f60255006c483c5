package raft

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"time"

	hraft "github.com/hashicorp/raft"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
)

// electionDefault is shorter than the library's second, so that a new leader answers within two seconds of
// the death of the old one: a follower looks every one to two of these times whether the leader has been
// silent for one, and gives its vote only when it has found that itself; then a candidate may have to wait for
// one more. Heartbeats take no fdatasync, so a slow disk makes none late.
const (
	electionDefault = 300 * time.Millisecond
	electionMin     = 50 * time.Millisecond
)

// complete fills in defaults and refuses what can't be meant.
func (o *Options) complete() error {
	if o.Election == 0 {
		o.Election = electionDefault
	}
	if o.SnapshotEntries == 0 {
		o.SnapshotEntries = snapshotEntries
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Listen == nil {
		o.Listen = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if o.Store == nil {
		dir := o.Dir
		o.Store = func() (LogStore, error) { return openBolt(dir) }
	}
	if o.Applied == nil {
		o.Applied = func(state.Version, []state.Event) {}
	}
	if o.Restored == nil {
		o.Restored = func(*state.State) {}
	}
	if o.Election < electionMin {
		return mqerr.New(mqerr.Invalid, "an election time of %v: use %v or more", o.Election, electionMin)
	}
	if o.Join && len(o.Members) > 0 {
		return mqerr.New(mqerr.Invalid, "a controller either founds a cluster with initial members or joins one")
	}
	if (o.Join || len(o.Members) > 0) && o.Addr == "" {
		return mqerr.New(mqerr.Invalid, "a controller needs a raft address to belong to a cluster")
	}
	if len(o.Members) == 0 {
		return nil
	}
	seen := map[string]bool{}
	for _, m := range o.Members {
		if err := state.CheckControllerID(m.ID); err != nil {
			return err
		}
		if m.Addr == "" || seen[m.ID] || seen["="+m.Addr] {
			return mqerr.New(mqerr.Invalid, "initial member %q has no address, or its id or address is there twice", m.ID)
		}
		seen[m.ID], seen["="+m.Addr] = true, true
	}
	own := slices.IndexFunc(o.Members, func(m Member) bool { return m.ID == o.ID })
	if own < 0 {
		return mqerr.New(mqerr.Invalid, "controller %q is none of the initial members: add it to the list, or start it with one of their ids", o.ID)
	}
	if o.Advertise == "" {
		o.Advertise = o.Members[own].Addr
	}
	return nil
}

func (n *Node) start() error {
	if err := n.dir.identify(n.o.Rand); err != nil {
		return mqerr.New(mqerr.Invalid, "controller directory %s: %w", n.o.Dir, err)
	}
	logger := newLogger(n.o.Log)
	kept, err := n.o.Store()
	if err != nil {
		return mqerr.New(mqerr.Corrupt, "controller log %s: %w", filepath.Join(n.o.Dir, "raft.db"), err)
	}
	n.ballast = &ballast{fs: vfs.OS, dir: n.o.Dir, log: n.o.Log}
	n.ballast.keep()
	n.store = &store{LogStore: kept, fail: n.fail, ballast: n.ballast, closing: n.closing}
	n.store.opening.Store(true)
	logs, err := hraft.NewLogCache(512, n.store)
	if err != nil {
		return err
	}
	snaps, err := hraft.NewFileSnapshotStoreWithLogger(n.o.Dir, snapshotsKept, logger)
	if err != nil {
		return mqerr.New(mqerr.Corrupt, "controller snapshots in %s: %w", n.o.Dir, err)
	}
	there, err := hraft.HasExistingState(logs, n.store, snaps)
	if err != nil {
		return mqerr.New(mqerr.Corrupt, "controller log in %s: %w", n.o.Dir, err)
	}
	if n.dir.v.Founded && !there {
		return mqerr.New(mqerr.Corrupt, "controller directory %s has lost its raft.db and snapshots: restore them, or start with a new directory (and lose every topic, group and registration)", n.o.Dir)
	}
	if !there {
		n.dir.v.Founding = foundingOf(n.o.Members)
	}
	addr, transport, err := newTransport(n.o, n, logger)
	if err != nil {
		return err
	}
	n.addr = string(addr)
	conf := config(n.o)
	conf.Logger, conf.NotifyCh = logger, n.notify
	if !there && !n.o.Join {
		err = hraft.BootstrapCluster(conf, logs, n.store, snaps, transport, founders(n.o, addr))
	}
	// A directory that joins has no log before it is taken in: losing it until then loses nothing.
	if err == nil && (there || !n.o.Join) {
		err = n.dir.found()
	}
	n.store.opening.Store(false)
	if err == nil {
		n.machine = &machine{state: state.New(), release: n.o.Release, applied: n.o.Applied, restored: n.o.Restored, fail: n.fail, learn: n.learn}
		n.raft, err = hraft.NewRaft(conf, n.machine, logs, n.store, snaps, transport)
	}
	if err == nil {
		err = n.hurry(conf)
	}
	if cause := n.machineError(); cause != nil { // the library hides it, or falls back to an older snapshot
		err = cause
	}
	if err == nil {
		n.compare(there)
		return nil
	}
	if n.raft != nil {
		return errors.Join(err, n.raft.Shutdown().Error())
	}
	return errors.Join(err, transport.Close())
}

// founders is the configuration with which a new cluster begins.
func founders(o Options, own hraft.ServerAddress) (c hraft.Configuration) {
	for _, m := range o.Members {
		c.Servers = append(c.Servers, hraft.Server{ID: hraft.ServerID(m.ID), Address: hraft.ServerAddress(m.Addr)})
	}
	if len(c.Servers) == 0 {
		c.Servers = []hraft.Server{{ID: hraft.ServerID(o.ID), Address: own}}
	}
	return c
}

// compare says so if a directory has another list of members than the one that is given.
func (n *Node) compare(there bool) {
	if !there || len(n.o.Members) == 0 {
		return
	}
	voters, err := n.Voters()
	if err != nil {
		return
	}
	var have []Member
	for _, v := range voters {
		have = append(have, v.Member)
	}
	if foundingOf(have) != foundingOf(n.o.Members) {
		n.o.Log.Info("the initial members are not looked at any more: this controller goes by the members that its directory names; change them with `perigee cluster members`", slog.Any("members", have))
	}
}

// config returns the library's settings.
func config(o Options) *hraft.Config {
	c := hraft.DefaultConfig()
	c.LocalID = hraft.ServerID(o.ID)
	c.NoLegacyTelemetry = true
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = o.Election, o.Election, o.Election*4/5
	c.SnapshotThreshold, c.SnapshotInterval, c.TrailingLogs = o.SnapshotEntries, snapshotCheck, trailing*o.SnapshotEntries
	return c
}

// hurry makes a lone voter stand for election at once: it has nobody to wait for. The library looks
// at its timer again when the time-out is made shorter. (Time-outs that are short from the start
// would do as well, and would wake the leader a hundred times a second for ever.)
func (n *Node) hurry(conf *hraft.Config) error {
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil || len(f.Configuration().Servers) != 1 || f.Configuration().Servers[0].ID != conf.LocalID {
		return err
	}
	shorter := n.raft.ReloadableConfig()
	shorter.HeartbeatTimeout = conf.HeartbeatTimeout - time.Millisecond
	return n.raft.ReloadConfig(shorter)
}
