// Package raft keeps the controller's state on several nodes, or on one: log, snapshots and transport
// around hashicorp/raft, and the state machine of controller/state behind it.
//
// A Node has one goroutine of its own, which follows the leadership, and those of the library. A
// storage error is final: the node stops with it (Failed), since what is on disk is then unknown.
//
//	DIR/LOCK        held while a process uses the directory
//	DIR/VERSION     format and node id (docs/format/controller.md)
//	DIR/raft.db     log and votes, bbolt
//	DIR/snapshots/  the last two snapshots
//	DIR/ballast     space for the day on which the disk is full
package raft

import (
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	hraft "github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
)

const (
	snapshotsKept = 2
	// A command is a few hundred bytes: a start reads at most this many, plus those of one check.
	snapshotEntries = 2048
	snapshotCheck   = 2 * time.Minute
	// The log reaches back beyond the older of the two snapshots, so that either is enough.
	trailingEntries = 4 * snapshotEntries
	// enqueueTimeout bounds the wait for a place in the library's queue.
	enqueueTimeout = 5 * time.Second
)

// Options configures Open.
type Options struct {
	// Dir is the data directory. It is created if it is missing.
	Dir string
	// ID names this node, for ever.
	ID string
	// Addr is where other nodes connect, host:port. Empty: a single node without a port.
	Addr string
	// Release is that of this binary, for the sentence that an older one says.
	Release string
	// Leading is called when this node has become the leader and its state is complete, and when it
	// no longer is; never twice with the same value. It may call Apply when it is told true.
	Leading func(bool)
	// Applied is called after each command with what it changed, in order, on the one goroutine that
	// applies commands. Restored is called when the whole state was replaced.
	Applied  func([]state.Event)
	Restored func(*state.State)
	// Log receives this package's records.
	Log *slog.Logger
}

// Node is one node of the controller's Raft cluster.
type Node struct {
	o       Options
	dir     *dir
	store   *store
	ballast *ballast
	closing chan struct{} // closed by Close
	machine *machine
	raft    *hraft.Raft
	failed  chan error
	notify  chan bool
	wg      sync.WaitGroup
}

// Open starts the node on its directory; a new directory becomes a cluster of one. Every error says
// what is wrong with the directory or the address.
func Open(o Options) (*Node, error) {
	d, err := openDir(o.Dir, o.ID, o.Release)
	if err != nil {
		return nil, err
	}
	n := &Node{o: o, dir: d, failed: make(chan error, 1), notify: make(chan bool, 8), closing: make(chan struct{})}
	if err := n.start(); err != nil {
		if n.store != nil {
			err = errors.Join(err, n.store.Close())
		}
		return nil, errors.Join(err, d.close())
	}
	n.wg.Go(n.follow)
	return n, nil
}

func (n *Node) start() error {
	logger := newLogger(n.o.Log)
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path: filepath.Join(n.o.Dir, "raft.db"),
		// The free list is found again by a scan at the start: one page less to write per command.
		BoltOptions: &bbolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
	})
	if err != nil {
		return mqerr.New(mqerr.Corrupt, "controller log %s: %w", filepath.Join(n.o.Dir, "raft.db"), err)
	}
	n.ballast = &ballast{fs: vfs.OS, dir: n.o.Dir, log: n.o.Log}
	n.ballast.keep()
	n.store = &store{BoltStore: bolt, fail: n.fail, ballast: n.ballast, closing: n.closing}
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
	addr, transport, err := newTransport(n.o, logger)
	if err != nil {
		return err
	}
	conf := config(n.o.ID)
	conf.Logger, conf.NotifyCh = logger, n.notify
	self := hraft.Server{ID: conf.LocalID, Address: addr}
	if !there {
		err = hraft.BootstrapCluster(conf, logs, n.store, snaps, transport, hraft.Configuration{Servers: []hraft.Server{self}})
	}
	if err == nil {
		err = n.dir.found()
	}
	if err == nil {
		n.machine = &machine{state: state.New(), release: n.o.Release, applied: n.o.Applied, restored: n.o.Restored, fail: n.fail}
		n.raft, err = hraft.NewRaft(conf, n.machine, logs, n.store, snaps, transport)
	}
	if err == nil {
		err = n.hurry(conf)
	}
	if cause := n.machineError(); cause != nil { // the library hides it, or falls back to an older snapshot
		err = cause
	}
	if err == nil {
		return nil
	}
	if n.raft != nil {
		return errors.Join(err, n.raft.Shutdown().Error())
	}
	return errors.Join(err, transport.Close())
}

// config returns the library's settings.
func config(id string) *hraft.Config {
	c := hraft.DefaultConfig()
	c.LocalID = hraft.ServerID(id)
	c.NoLegacyTelemetry = true
	c.SnapshotThreshold, c.SnapshotInterval, c.TrailingLogs = snapshotEntries, snapshotCheck, trailingEntries
	return c
}

// hurry makes a lone voter stand for election at once: it has nobody to wait for. The library looks
// at its timer again when the time-out is made shorter. (Time-outs that are short from the start
// would do as well, and would wake the leader a hundred times a second for ever.)
func (n *Node) hurry(conf *hraft.Config) error {
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil || len(f.Configuration().Servers) != 1 {
		return err
	}
	shorter := n.raft.ReloadableConfig()
	shorter.HeartbeatTimeout = conf.HeartbeatTimeout - time.Millisecond
	return n.raft.ReloadConfig(shorter)
}

// follow waits for leadership, makes the state complete with a barrier, and reports.
func (n *Node) follow() {
	told := false
	tell := func(v bool) {
		if told != v {
			told = v
			n.o.Leading(v)
		}
	}
	for leads := range n.notify {
		if !leads {
			tell(false)
			continue
		}
		if err := n.raft.Barrier(0).Error(); err != nil {
			continue // no longer the leader, or stopping: the channel says so too
		}
		if err := n.machineError(); err == nil {
			n.readdress()
			tell(true)
		}
	}
	tell(false)
}

// readdress tells the cluster this node's address if it has a new one.
func (n *Node) readdress() {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return
	}
	addr, id := n.raft.LeaderWithID()
	for _, s := range f.Configuration().Servers {
		if s.ID == id && s.Address != addr && string(id) == n.o.ID {
			if err := n.raft.AddVoter(id, addr, f.Index(), enqueueTimeout).Error(); err != nil {
				n.o.Log.Warn("the new address of this controller was not stored, others may look for it at the old one: it is tried again when it leads the next time", slog.String("address", string(addr)), slog.Any("error", err))
			}
		}
	}
}

func (n *Node) fail(err error) {
	select {
	case n.failed <- err:
	default: // the first one counts
	}
}

// Failed delivers an error that ends this node: storage that fails, or a log that a newer release wrote.
func (n *Node) Failed() <-chan error { return n.failed }

func (n *Node) machineError() error {
	if n.machine == nil {
		return nil
	}
	n.machine.mu.RLock()
	defer n.machine.mu.RUnlock()
	return n.machine.err
}

// Apply carries out a command on the cluster and returns its result; a refusal is an error too. An
// error of kind UnknownOutcome says that the command may still be carried out, DiskFull that this node's disk
// has no room for it and nothing was done.
func (n *Node) Apply(c state.Command) (state.Result, error) {
	if err := n.ballast.room(c); err != nil {
		return state.Result{}, err
	}
	b, err := state.EncodeCommand(c, n.o.Release)
	if err != nil {
		return state.Result{}, err
	}
	f := n.raft.Apply(b, enqueueTimeout)
	if err := f.Error(); err != nil {
		return state.Result{}, applyError(err)
	}
	switch r := f.Response().(type) {
	case state.Result:
		return r, r.Err
	case error:
		return state.Result{}, r
	default:
		return state.Result{}, mqerr.New(mqerr.Internal, "a command answered with %T", r)
	}
}

func applyError(err error) error {
	switch {
	case errors.Is(err, hraft.ErrNotLeader), errors.Is(err, hraft.ErrLeadershipTransferInProgress):
		return mqerr.New(mqerr.NotLeader, "this controller is not the leader")
	case errors.Is(err, hraft.ErrEnqueueTimeout):
		return mqerr.New(mqerr.Exhausted, "the controller is overloaded")
	case errors.Is(err, hraft.ErrRaftShutdown):
		return mqerr.New(mqerr.Draining, "this controller is stopping")
	}
	return mqerr.New(mqerr.UnknownOutcome, "the controller lost its leadership over this change: %w", err)
}

// View calls f with the state, which f must neither change nor keep. Topics, groups and shards in it
// may be kept.
func (n *Node) View(f func(*state.State)) {
	n.machine.mu.RLock()
	defer n.machine.mu.RUnlock()
	f(n.machine.state)
}

// Leader returns the id of the leader, empty if there is none.
func (n *Node) Leader() string {
	_, id := n.raft.LeaderWithID()
	return string(id)
}

// Stats returns the library's own figures.
func (n *Node) Stats() map[string]string { return n.raft.Stats() }

// Snapshot writes a snapshot now and shortens the log.
func (n *Node) Snapshot() error { return n.raft.Snapshot().Error() }

// Close stops the node and gives its directory back.
func (n *Node) Close() error {
	close(n.closing)
	err := n.raft.Shutdown().Error()
	close(n.notify) // Shutdown has waited for every goroutine that sends to it
	n.wg.Wait()
	return errors.Join(err, n.store.Close(), n.dir.close())
}
