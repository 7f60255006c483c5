package repl

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

func someBatch() *outgoing {
	o := &outgoing{buffer: mem.SliceBuffer("records")}
	o.Batch = follower.Batch{Session: 300, Epoch: 1 << 48, Start: 1 << 40, End: 1<<40 + 7, RecordEpoch: 5, Confirm: 1 << 39}
	o.files = []record.Pos{1 << 40, 1 << 41}
	return o
}

// TestBatchIsWhatItsProtoSays: what we encode by hand is read by protobuf, and the other way round.
func TestBatchIsWhatItsProtoSays(t *testing.T) {
	o := someBatch()
	data, err := rpc.NewCodec().Marshal(o)
	require.NoError(t, err)
	var p replicationv1.ReplicateResponse
	require.NoError(t, proto.Unmarshal(data.Materialize(), &p))
	want := o.batch
	want.records = []byte("records")
	require.Equal(t, want, batchOf(p.GetBatch()))

	other, err := proto.Marshal(&p)
	require.NoError(t, err)
	for _, b := range [][]byte{data.Materialize(), other} {
		var m incoming
		require.NoError(t, rpc.NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &m))
		require.True(t, m.isBatch)
		require.Equal(t, want, m.batch)
		m.free()
	}

	beat, err := proto.Marshal(beatResponse(follower.Beat{Session: 3, Epoch: 4, LogEnd: 5, Confirm: 6}))
	require.NoError(t, err)
	var m incoming
	require.NoError(t, m.DecodeRaw(mem.BufferSlice{mem.SliceBuffer(beat)}))
	require.False(t, m.isBatch)
	require.Equal(t, follower.Beat{Session: 3, Epoch: 4, LogEnd: 5, Confirm: 6}, beatOf(m.said.GetBeat()))
}

// TestMessagesKeepWhatTheySay: each message means the same on the other side.
func TestMessagesKeepWhatTheySay(t *testing.T) {
	h := hello{
		Hello: replica.Hello{First: 1, End: 9, Confirm: 4, Spans: []replica.Span{{Epoch: 7, Start: 5, End: 9}, {Epoch: 2, Start: 1, End: 5}}, Tail: replica.Tail{Pos: 8, Size: 1, CRC: 77}},
		self:  Self{Release: "r", ClusterID: "c", Shard: 3}, version: Version, epoch: 8, durable: 6, learner: true,
	}
	h.self.Member.Replica, h.self.Member.Inc = 4, 5
	require.Equal(t, h, helloOf(h.request().GetHello()))
	for v := replica.Resume; v <= replica.Diverged; v++ {
		w := follower.Welcome{Session: 1, Epoch: 2, Answer: replica.Answer{Verdict: v, At: 3}, Confirm: 4, LogMin: 5, LogEnd: 6}
		w.Master.Replica, w.Master.Inc = 7, 8
		require.Equal(t, w, welcomeOf(welcomeResponse("r", &w).GetWelcome()))
	}
	a := follower.Ack{Session: 1, Epoch: 2, Written: 4, Durable: 3}
	require.Equal(t, a, ackOf(ackRequest(a).GetAck()))
	f := farewell{reason: replicationv1.CloseReason_CLOSE_REASON_DISK_FULL, epoch: 3, hint: "a", text: "b"}
	require.Equal(t, f, farewellOf(f.request().GetClose()))
	require.Equal(t, f, farewellOf(f.response().GetClose()))
}

// FuzzIncoming: any bytes are a message, or an error; a batch is what protobuf takes it for.
func FuzzIncoming(f *testing.F) {
	data, err := someBatch().EncodeRaw()
	require.NoError(f, err)
	f.Add(data.Materialize())
	beat, err := proto.Marshal(beatResponse(follower.Beat{Session: 3, Epoch: 4, LogEnd: 5, Confirm: 6}))
	require.NoError(f, err)
	f.Add(beat)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m incoming
		err := m.DecodeRaw(mem.BufferSlice{mem.SliceBuffer(b)})
		var p replicationv1.ReplicateResponse
		if proto.Unmarshal(b, &p) != nil {
			m.free()
			return // what protobuf refuses may be taken: names of fields that we skip are not looked at
		}
		require.NoError(t, err)
		require.Equal(t, p.GetBatch() != nil, m.isBatch)
		if m.isBatch {
			want := batchOf(p.GetBatch())
			if len(want.records) == 0 {
				want.records, m.batch.records = nil, nil
			}
			require.Equal(t, want, m.batch)
		}
		m.free()
	})
}

// FuzzHello: any bytes are a hello that is judged, or none.
func FuzzHello(f *testing.F) {
	f.Fuzz(func(_ *testing.T, b []byte) {
		var p replicationv1.ReplicateRequest
		if proto.Unmarshal(b, &p) != nil {
			return
		}
		h := helloOf(p.GetHello())
		x := replica.New(0)
		_ = x.Append(1, 0, 100)
		_, _ = x.Reconcile(&h.Hello) // any answer will do
		_, _ = ackOf(p.GetAck()), farewellOf(p.GetClose())
	})
}
