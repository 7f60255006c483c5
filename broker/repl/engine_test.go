package repl

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// replicaOf is a node with a whole broker engine.
type replicaOf struct {
	*node
	store  *store.Store
	engine *engine.Engine
	index  *replica.Index
}

func newReplica(t *testing.T, w *network, id quorum.Replica) *replicaOf {
	t.Helper()
	n := &node{t: t, id: id, net: w, fs: memfs.New(), self: Self{Release: "test", ClusterID: "c1", Shard: 7, Member: quorum.Member{Replica: id, Inc: 1}}}
	st, err := store.Open(store.Options{FS: n.fs, Dir: "data", SegmentBytes: 1 << 20, QueueFileBytes: 64 << 10})
	require.NoError(t, err)
	e, err := engine.Open(engine.Options{Store: st, Standby: true, Clock: bubbleClock{}})
	require.NoError(t, err)
	n.log = st.Log()
	n.listen()
	x, err := e.Epochs()
	require.NoError(t, err)
	return &replicaOf{node: n, store: st, engine: e, index: x}
}

func (r *replicaOf) begin(t *testing.T) {
	t.Helper()
	f, err := NewFollower(FollowerOptions{
		Self: r.self, CommitLog: r.log, Index: r.index, Views: r.engine, Promised: r.epoch, DialOptions: []grpc.DialOption{r.net.dialer(address(r.id))},
		Promise: func(e record.Epoch) error { return r.store.Promise(e, 1) },
	})
	require.NoError(t, err)
	r.follower = f
	r.run(f.Run)
}

// promote makes a replica the master.
func (r *replicaOf) promote(t *testing.T, v quorum.View) {
	t.Helper()
	require.NoError(t, r.rest())
	_, err := r.engine.Begin(engine.Identity{Epoch: v.Epoch, Incarnation: 1, SetVersion: v.Version})
	require.NoError(t, err)
	r.leader, err = NewLeader(LeaderOptions{
		Self: r.self, CommitLog: r.log, Index: r.index, View: v, Clock: bubbleClock{}, Confirm: r.engine.Applied(), Confirmed: r.engine.Confirm,
		Propose: func(context.Context, quorum.Proposal) (quorum.Outcome, quorum.View) {
			return quorum.Unknown, quorum.View{}
		},
	})
	require.NoError(t, err)
	r.run(r.leader.Run)
	r.service.Lead(r.leader)
}

func (r *replicaOf) end(t *testing.T) {
	t.Helper()
	if r.follower != nil { // a master's engine is closed first: it waits for the followers
		require.NoError(t, r.rest())
	}
	_, err := r.engine.Close()
	require.NoError(t, err)
	require.NoError(t, r.rest())
	r.server.Stop()
	require.NoError(t, <-r.served)
	require.NoError(t, r.store.Close())
}

// TestEngines: messages that an engine has answered are there, in the same places, when another replica leads.
func TestEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork()
		a, b, c := newReplica(t, w, 1), newReplica(t, w, 2), newReplica(t, w, 3)
		b.begin(t)
		c.begin(t)
		a.promote(t, view(1, 1, a.node, b.node, c.node))
		served := make(chan error, 1)
		go func() { served <- a.engine.Serve(a.leader) }()
		synctest.Wait()
		require.Empty(t, served, "the EPOCH record is nowhere else")
		for _, r := range []*replicaOf{b, c} {
			require.NoError(t, r.follower.Follow(1, a.self.Member, address(1)))
		}
		require.NoError(t, <-served)
		require.NoError(t, a.engine.Define(t.Context(), &engine.Definitions{Topics: []topic.Definition{{ID: 1, Name: "t", Queues: 1, Version: 1}}, Full: true, Version: 1}))
		proxy, err := a.engine.Attach("p", brokerapi.Events{})
		require.NoError(t, err)
		send := func(i int) error {
			done := make(chan error, 1)
			proxy.Send(&brokerapi.SendRequest{Topic: 1, Messages: []brokerapi.Message{{Type: brokerapi.Normal, ID: fmt.Appendf(nil, "id-%d", i), Body: make([]byte, 1000)}}},
				func(r *brokerapi.SendReply, err error) {
					if err == nil && int(r.Results[0].Offset) != i {
						err = fmt.Errorf("message %d got offset %d", i, r.Results[0].Offset)
					}
					done <- err
				})
			return <-done
		}
		began := time.Now()
		for i := range 1500 {
			require.NoError(t, send(i))
		}
		require.Zero(t, time.Since(began), "no answer waits for a timer")
		require.NoError(t, proxy.Close())
		a.end(t)

		b.promote(t, view(2, 2, b.node, c.node))
		require.NoError(t, c.follower.Follow(2, b.self.Member, address(2)))
		require.NoError(t, b.engine.Serve(b.leader))
		proxy, err = b.engine.Attach("p", brokerapi.Events{})
		require.NoError(t, err)
		queues, err := proxy.DescribeTopic(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, brokerapi.QueueOffset(1500), queues[0].Max)
		require.NoError(t, send(1500))
		require.NoError(t, proxy.Close())
		_, err = b.engine.Close()
		require.NoError(t, err)
		end := b.log.Written()
		require.Equal(t, end, c.log.Written(), "a master that stops waits for the others")
		require.True(t, bytes.Equal(content(t, b.log, end), content(t, c.log, end)))
		b.end(t)
		c.end(t)
	})
}
