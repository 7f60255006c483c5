package ctl

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

func shardProto() *controllerv1.Shard {
	return &controllerv1.Shard{
		Id: 5, Epoch: 7, Master: 2, MasterIncarnation: 12, SyncStateSet: []uint32{1, 2}, SetVersion: 9, MinIsr: 2, CommitMode: controllerv1.CommitMode_COMMIT_MODE_MEMORY,
		Replicas: []*controllerv1.Replica{{Id: 1, Incarnation: 11, Address: "a:1"}, {Id: 2, Incarnation: 12, Address: "b:1"}, {Id: 3, Incarnation: 13, Address: "c:1", Learner: true}},
	}
}

// TestShardAndLease: the broker hears of its group and of leases; a lease counts from the heartbeat that it answers,
// and only in the epoch that this process leads.
func TestShardAndLease(t *testing.T) {
	f, c := start(t)
	var boot atomic.Int64
	boot.Store(int64(100 * time.Second))
	views := make(chan ShardView, 4)
	s := NewSession(c, 5, 2, Term{Incarnation: 11, Epoch: 7})
	s.Follows, s.Changed = true, func(v ShardView) { views <- v }
	s.Report = func() *controllerv1.ReplicaReport { return &controllerv1.ReplicaReport{WrittenEnd: 77} }
	s.Lease.Now = func() time.Duration { return time.Duration(boot.Load()) }
	s.Lead(7, &logger{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })

	first := f.until(t, isHello)
	require.EqualValues(t, 1, first.GetNumber())
	require.EqualValues(t, 7, first.GetEpoch())
	require.EqualValues(t, 77, first.GetReport().GetWrittenEnd())
	require.True(t, first.GetFollows())
	require.False(t, s.Lease.Valid())

	boot.Add(int64(2 * time.Second)) // the answer takes its time
	f.script <- step{update: &controllerv1.BrokerUpdate{Shard: shardProto(), HandOver: true, Lease: &controllerv1.Lease{Number: 1, Epoch: 7, LengthMs: 3000}}}
	v := next(t, views)
	require.True(t, v.HandOver)
	require.Equal(t, quorum.Memory, v.Mode)
	require.Equal(t, "b:1", v.Master)
	require.Equal(t, map[quorum.Replica]string{1: "a:1", 2: "b:1", 3: "c:1"}, v.Addrs)
	require.Equal(t, []quorum.Replica{3}, v.Learners)
	members := []quorum.Member{{Replica: 1, Inc: 11}, {Replica: 2, Inc: 12}, {Replica: 3, Inc: 13}}
	require.Equal(t, quorum.View{Epoch: 7, Master: members[1], Version: 9, Set: members[:2], MinISR: 2, Replicas: members}, v.View)

	f.script <- step{update: &controllerv1.BrokerUpdate{Shard: shardProto()}} // after the lease
	next(t, views)
	left, ok := s.Lease.Left()
	require.True(t, ok && s.Lease.Valid())
	require.Equal(t, 770*time.Millisecond, left, "3 s less 1 %, 200 ms and the time since it was asked for")
	s.Lease.Lead(8)
	require.False(t, s.Lease.Valid())
	f.script <- step{update: &controllerv1.BrokerUpdate{Shard: shardProto(), Lease: &controllerv1.Lease{Number: next(t, f.beats).GetNumber(), Epoch: 7, LengthMs: 3000}}}
	f.script <- step{update: &controllerv1.BrokerUpdate{Shard: shardProto()}}
	next(t, views)
	next(t, views)
	require.False(t, s.Lease.Valid(), "a lease of an epoch that is over")
}

// judge answers proposals.
type judge struct {
	grpc.ClientConnInterface
	resp *controllerv1.AlterSyncStateSetResponse
	err  error
	got  *controllerv1.AlterSyncStateSetRequest
}

func (j *judge) Invoke(_ context.Context, _ string, req, reply any, _ ...grpc.CallOption) error {
	j.got = req.(*controllerv1.AlterSyncStateSetRequest)
	if j.err != nil {
		return rpc.ToStatus(j.err)
	}
	to := reply.(*controllerv1.AlterSyncStateSetResponse)
	to.Accepted, to.Refusal, to.Shard = j.resp.GetAccepted(), j.resp.GetRefusal(), j.resp.GetShard()
	return nil
}

// TestAlter: only a verdict is a verdict.
func TestAlter(t *testing.T) {
	p := quorum.Proposal{Epoch: 7, Master: quorum.Member{Replica: 2, Inc: 12}, Version: 9, Set: []quorum.Member{{Replica: 2, Inc: 12}, {Replica: 3, Inc: 13}}}
	for name, test := range map[string]struct {
		resp *controllerv1.AlterSyncStateSetResponse
		err  error
		want quorum.Outcome
	}{
		"accepted":        {resp: &controllerv1.AlterSyncStateSetResponse{Accepted: true, Shard: shardProto()}, want: quorum.Done},
		"refused":         {resp: &controllerv1.AlterSyncStateSetResponse{Refusal: "too old", Shard: shardProto()}, want: quorum.Refused},
		"deleted":         {resp: &controllerv1.AlterSyncStateSetResponse{Refusal: "gone"}, want: quorum.Unknown},
		"leadership lost": {err: mqerr.New(mqerr.UnknownOutcome, "who knows"), want: quorum.Unknown},
		"no leader":       {err: mqerr.New(mqerr.NotLeader, "not me"), want: quorum.Unknown},
		"an odd error":    {err: mqerr.New(mqerr.Fenced, "by somebody on the way"), want: quorum.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			j := &judge{resp: test.resp, err: test.err}
			got, v, err := New(j, nil).Alter(t.Context(), 5, nil, p)
			require.Equal(t, test.want, got)
			if test.want == quorum.Unknown {
				require.Error(t, err)
				require.Zero(t, v)
				return
			}
			require.NoError(t, err)
			require.EqualValues(t, 9, v.View.Version)
			require.EqualValues(t, 7, j.got.GetEpoch())
			require.EqualValues(t, 13, j.got.GetSet()[1].GetIncarnation())
		})
	}
}
