package repl

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

const logDir = "log"

// bubbleClock is the clock of a bubble of synctest, or of the machine.
type bubbleClock struct{}

func (bubbleClock) Wall() int64  { return time.Now().UnixMilli() }
func (bubbleClock) Lease() int64 { return time.Now().UnixMilli() }

// views stand for those of an engine: they check what they are given.
type views struct {
	n       *node
	applied atomic.Int64
	delay   atomic.Int64 // of each Apply, ns
}

func (v *views) Applied() record.Pos { return record.Pos(v.applied.Load()) }

func (v *views) Apply(to record.Pos) error {
	if d := v.delay.Load(); d > 0 {
		time.Sleep(time.Duration(d))
	}
	for r := v.n.log.Chunks(v.Applied()); r.Pos() < to; {
		c, err := r.Next(to, 64<<10)
		if err != nil {
			return err
		}
		v.applied.Store(int64(c.End))
	}
	return nil
}

// node is one replica.
type node struct {
	t        testing.TB
	id       quorum.Replica
	self     Self
	net      *network
	fs       *memfs.FS
	segments int64
	log      *commitlog.Log
	epoch    record.Epoch // promised
	views    *views
	service  *Service
	server   *grpc.Server
	served   chan error

	follower *Follower
	leader   *Leader
	batch    *commitlog.Batch
	stop     context.CancelFunc
	ended    chan error
	options  func(*FollowerOptions)
}

func address(id quorum.Replica) string { return fmt.Sprintf("node-%d", id) }

// newNode returns a node that is open and plays no role.
func newNode(t testing.TB, w *network, id quorum.Replica, fs *memfs.FS) *node {
	n := &node{
		t: t, id: id, net: w, fs: fs, segments: 64 << 10,
		self: Self{Release: "test", ClusterID: "c1", Shard: 7, Member: quorum.Member{Replica: id}},
	}
	n.open(1)
	return n
}

// open starts the node's process as an incarnation.
func (n *node) open(inc quorum.Incarnation) {
	n.t.Helper()
	n.self.Member.Inc = inc
	log, err := commitlog.Open(commitlog.Options{FS: n.fs, Dir: logDir, SegmentBytes: n.segments})
	require.NoError(n.t, err)
	_, err = log.Recover(log.First(), func(record.Record) error { return nil })
	require.NoError(n.t, err)
	n.log = log
	n.views = &views{n: n}
	n.listen()
}

// listen opens the node's port.
func (n *node) listen() {
	n.service = &Service{}
	n.server = grpc.NewServer(append(rpc.ServerOptions(slog.New(slog.DiscardHandler)), grpc.ForceServerCodecV2(rpc.NewCodec()), grpc.WaitForHandlers(true))...)
	replicationv1.RegisterReplicationServiceServer(n.server, n.service)
	l := n.net.listen(address(n.id))
	n.served = make(chan error, 1)
	go func() { n.served <- n.server.Serve(l) }()
}

// close ends the node's process, whatever it does.
func (n *node) close() {
	n.t.Helper()
	require.NoError(n.t, n.rest())
	n.server.Stop()
	require.NoError(n.t, <-n.served)
	require.NoError(n.t, n.log.Close())
}

// rest ends the role.
func (n *node) rest() error {
	if n.stop == nil {
		return nil
	}
	n.stop()
	err := <-n.ended
	n.service.Follow(n.epoch, "")
	n.stop, n.follower, n.leader = nil, nil, nil
	return err
}

func (n *node) run(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	n.stop, n.ended = cancel, ended
	go func() { ended <- run(ctx) }()
}

// follow makes the node a follower, of nobody yet.
func (n *node) follow() *Follower {
	n.t.Helper()
	x, err := readIndex(n.log)
	require.NoError(n.t, err)
	o := FollowerOptions{
		Self: n.self, CommitLog: n.log, Index: x, Views: n.views, Promised: n.epoch, DialOptions: []grpc.DialOption{n.net.dialer(address(n.id))},
		Promise: func(e record.Epoch) error { n.epoch = e; return nil },
		Log:     slog.New(slog.DiscardHandler),
	}
	if n.options != nil {
		n.options(&o)
	}
	n.follower, err = NewFollower(o)
	require.NoError(n.t, err)
	n.run(n.follower.Run)
	return n.follower
}

// lead makes the node the master of a view's epoch.
func (n *node) lead(v quorum.View, change func(*LeaderOptions)) *Leader {
	n.t.Helper()
	require.NoError(n.t, n.rest())
	x, err := readIndex(n.log)
	require.NoError(n.t, err)
	n.epoch = v.Epoch
	o := LeaderOptions{
		Self: n.self, CommitLog: n.log, Index: x, View: v, Log: slog.New(slog.DiscardHandler), Clock: bubbleClock{}, Confirm: n.views.Applied(),
		Propose: func(context.Context, quorum.Proposal) (quorum.Outcome, quorum.View) {
			return quorum.Unknown, quorum.View{}
		},
	}
	if change != nil {
		change(&o)
	}
	n.leader, err = NewLeader(o)
	require.NoError(n.t, err)
	n.run(n.leader.Run)
	n.service.Lead(n.leader)
	n.batch = n.log.NewBatch()
	start := record.EpochStart{Epoch: v.Epoch, Incarnation: uint64(n.self.Member.Inc)}
	body := make([]byte, record.EpochStartSize(&start))
	record.PutEpochStart(body, &start)
	n.put(record.TypeEpoch, body)
	require.NoError(n.t, n.log.Sync())
	n.leader.Grown()
	return n.leader
}

// put writes one record.
func (n *node) put(kind record.Type, bodies ...[]byte) {
	n.t.Helper()
	n.batch.Reset()
	for i, body := range bodies {
		h := record.Header{Type: kind, Epoch: n.epoch, Time: time.Now().UnixMilli()}
		if i+1 < len(bodies) {
			h.Flags = record.FlagMore
		}
		_, to := n.batch.Begin(h, len(body))
		copy(to, body)
		n.batch.Seal()
	}
	require.NoError(n.t, n.log.Write(n.batch))
	n.leader.Grown()
}

// write writes a batch of records, of which no other has the same bytes.
func (n *node) write(rng *rand.Rand, count, size int) {
	bodies := make([][]byte, count)
	for i := range bodies {
		b := make([]byte, 16+rng.IntN(size))
		binary.LittleEndian.PutUint64(b, uint64(n.epoch))
		binary.LittleEndian.PutUint64(b[8:], rng.Uint64())
		bodies[i] = b
	}
	n.put(record.TypeMsg, bodies...)
}

func (n *node) flush() {
	n.t.Helper()
	require.NoError(n.t, n.log.Sync())
	n.leader.Grown()
}

// view makes a controller's view of nodes, the first of which is the master.
func view(epoch record.Epoch, version uint64, set ...*node) quorum.View {
	v := quorum.View{Epoch: epoch, Version: version, MinISR: min(2, len(set))}
	for _, n := range set {
		v.Set = append(v.Set, n.self.Member)
	}
	v.Master, v.Replicas = v.Set[0], v.Set
	return v
}

// inSync waits until a follower has all that its master has.
func inSync(t testing.TB, f *Follower, end record.Pos) {
	t.Helper()
	eventually(t, "in sync", func() bool {
		s, ok := f.Status()
		return ok && s.State == follower.InSync && s.Durable == end
	})
}

// eventually waits for something, a minute at most.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !ok(); {
		if !time.Now().Before(until) {
			t.Fatalf("it never came to that: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// content is a log's bytes up to a position: its records, with those that only fill files up.
func content(t testing.TB, log *commitlog.Log, to record.Pos) []byte {
	t.Helper()
	var all []byte
	for r := log.Chunks(log.First()); r.Pos() < to; {
		c, err := r.Next(to, 1<<20)
		require.NoError(t, err)
		all = append(all, c.Bytes...)
	}
	return all
}

// sameLogs compares two logs record by record and file by file.
func sameLogs(t testing.TB, a, b *node) {
	t.Helper()
	require.Equal(t, a.log.Written(), b.log.Written())
	require.True(t, bytes.Equal(content(t, a.log, a.log.Written()), content(t, b.log, b.log.Written())), "logs of %d and %d differ", a.id, b.id)
	names, err := a.fs.List(logDir)
	require.NoError(t, err)
	n := 0
	for _, name := range names {
		if len(name) != 20 {
			continue
		}
		ours, err := vfs.ReadFile(a.fs, logDir+"/"+name)
		require.NoError(t, err)
		if len(bytes.Trim(ours, "\x00")) == 0 {
			continue // made for later
		}
		theirs, err := vfs.ReadFile(b.fs, logDir+"/"+name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(ours, theirs), "%s of %d and %d differs", name, a.id, b.id)
		n++
	}
	require.Positive(t, n)
}
