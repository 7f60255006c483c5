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
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	hraft "github.com/hashicorp/raft"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

const (
	snapshotsKept = 2
	// A command is a few hundred bytes: a start reads at most this many, plus those of one check.
	snapshotEntries = 2048
	snapshotCheck   = 2 * time.Minute
	// The log reaches back beyond the older of the two snapshots, so that either is enough: by so many
	// times the entries of a snapshot.
	trailing = 4
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
	// Advertise is what others call this node at, host:port. Default: the address of this node in Members,
	// or the one on which it listens.
	Advertise string
	// Members are the nodes that found the cluster together, this one among them; each of them is started
	// with the same list. Empty: this node alone. A directory that has a log does not look at it.
	Members []Member
	// Join makes a new directory wait until a cluster takes the node in.
	Join bool
	// Election is how long a follower bears silence before it stands for election, and about how long an
	// election may take; a leader that reaches no majority steps down within it. Default 300 ms, at least 50 ms.
	Election time.Duration
	// SnapshotEntries is how many entries make a new snapshot. Default 2048. The log keeps four times as many; a
	// node that is further behind gets the snapshot.
	SnapshotEntries uint64
	// Listen and Dial open the port for other nodes and connect to theirs. Default: TCP.
	Listen func(addr string) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
	// Store opens what keeps the log and the votes. Default: a file in Dir.
	Store func() (LogStore, error)
	// Rand names a new directory. Default crypto/rand.
	Rand io.Reader
	// Release is that of this binary, for the sentence that an older one says.
	Release string
	// Leading is called when this node has become the leader and its state is complete, and when it
	// no longer is; never twice with the same value. It may call Apply when it is told true.
	Leading func(bool)
	// Applied is called after each command with its index and what it changed, in order, on the one goroutine that
	// applies commands. Restored is called when the whole state was replaced.
	Applied  func(state.Version, []state.Event)
	Restored func(*state.State)
	// Log receives this package's records.
	Log *slog.Logger
}

// Node is one node of the controller's Raft cluster.
type Node struct {
	o        Options
	dir      *dir
	addr     string // for other nodes
	store    *store
	ballast  *ballast
	closing  chan struct{} // closed by Close
	barriers sync.Mutex    // held while a barrier is under way
	machine  *machine
	raft     *hraft.Raft
	failed   chan error
	notify   chan bool
	seen     chan hraft.Observation
	away     atomic.Int64
	wg       sync.WaitGroup
	idMu     sync.Mutex // guards dir.v
}

// Open starts the node on its directory; a new directory becomes a cluster of one. Every error says
// what is wrong with the directory or the address.
func Open(o Options) (*Node, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	d, err := openDir(o.Dir, o.ID, o.Release)
	if err != nil {
		return nil, err
	}
	n := &Node{o: o, dir: d, failed: make(chan error, 1), notify: make(chan bool, 8), seen: make(chan hraft.Observation, 64), closing: make(chan struct{})}
	if err := n.start(); err != nil {
		if n.store != nil {
			err = errors.Join(err, n.store.Close())
		}
		return nil, errors.Join(err, d.close())
	}
	n.wg.Go(n.follow)
	n.observe()
	n.wg.Go(n.belong)
	return n, nil
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
		if n.barrier() != nil {
			continue // no longer the leader, or stopping: the channel says so too
		}
		if err := n.machineError(); err == nil {
			n.readdress()
			tell(true)
		}
	}
	tell(false)
}

// barrier waits until everything that was committed before is applied. It is over before the library shuts down, which
// leaves what is between its goroutines then without an answer.
func (n *Node) barrier() error {
	n.barriers.Lock()
	defer n.barriers.Unlock()
	select {
	case <-n.closing:
		return hraft.ErrRaftShutdown
	default:
		return n.raft.Barrier(0).Error() // ends with the lead at the latest
	}
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
	n.barriers.Lock() // no barrier is under way, and none begins
	err := n.raft.Shutdown().Error()
	n.barriers.Unlock()
	close(n.notify) // Shutdown has waited for every goroutine that sends to it
	n.wg.Wait()
	return errors.Join(err, n.store.Close(), n.dir.close())
}
