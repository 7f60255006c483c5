package repl

import (
	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// hello is what a follower says of itself and its log.
type hello struct {
	replica.Hello
	version uint32
	self    Self
	epoch   record.Epoch
	durable record.Pos
	learner bool
}

func (h *hello) request() *replicationv1.ReplicateRequest {
	p := &replicationv1.Hello{
		Version: Version, Release: h.self.Release, ClusterId: h.self.ClusterID, Shard: h.self.Shard,
		Replica: uint32(h.self.Member.Replica), Incarnation: uint64(h.self.Member.Inc), Epoch: uint64(h.epoch),
		LogFirst: int64(h.First), LogEnd: int64(h.End), DurableEnd: int64(h.durable), Confirm: int64(h.Confirm), Learner: h.learner, Copying: h.Emptied,
	}
	for _, s := range h.Spans {
		p.Spans = append(p.Spans, &replicationv1.Span{Epoch: uint64(s.Epoch), Start: int64(s.Start), End: int64(s.End)})
	}
	if h.Tail.Size > 0 {
		p.Tail = &replicationv1.Tail{Position: int64(h.Tail.Pos), Size: h.Tail.Size, Crc: h.Tail.CRC}
	}
	return &replicationv1.ReplicateRequest{Said: &replicationv1.ReplicateRequest_Hello{Hello: p}}
}

func helloOf(p *replicationv1.Hello) hello {
	h := hello{
		Hello: replica.Hello{First: record.Pos(p.GetLogFirst()), End: record.Pos(p.GetLogEnd()), Confirm: record.Pos(p.GetConfirm()), Emptied: p.GetCopying()},
		self: Self{
			Release: p.GetRelease(), ClusterID: p.GetClusterId(), Shard: p.GetShard(),
			Member: quorum.Member{Replica: quorum.Replica(p.GetReplica()), Inc: quorum.Incarnation(p.GetIncarnation())},
		},
		version: p.GetVersion(), epoch: record.Epoch(p.GetEpoch()), durable: record.Pos(p.GetDurableEnd()), learner: p.GetLearner(),
	}
	for _, s := range p.GetSpans() {
		h.Spans = append(h.Spans, replica.Span{Epoch: record.Epoch(s.GetEpoch()), Start: record.Pos(s.GetStart()), End: record.Pos(s.GetEnd())})
	}
	if t := p.GetTail(); t != nil {
		h.Tail = replica.Tail{Pos: record.Pos(t.GetPosition()), Size: t.GetSize(), CRC: t.GetCrc()}
	}
	return h
}

// verdicts has the form on the wire of each verdict.
var verdicts = map[replica.Verdict]replicationv1.Verdict{
	replica.Resume:    replicationv1.Verdict_VERDICT_RESUME,
	replica.Truncate:  replicationv1.Verdict_VERDICT_TRUNCATE,
	replica.Snapshot:  replicationv1.Verdict_VERDICT_SNAPSHOT,
	replica.MoreSpans: replicationv1.Verdict_VERDICT_MORE_SPANS,
	replica.Diverged:  replicationv1.Verdict_VERDICT_DIVERGED,
}

func verdictOf(v replicationv1.Verdict) replica.Verdict {
	for ours, wire := range verdicts {
		if wire == v {
			return ours
		}
	}
	return 0 // the core refuses it
}

func welcomeResponse(release string, w *follower.Welcome) *replicationv1.ReplicateResponse {
	return &replicationv1.ReplicateResponse{Said: &replicationv1.ReplicateResponse_Welcome{Welcome: &replicationv1.Welcome{
		Version: Version, Release: release, Session: uint64(w.Session), Epoch: uint64(w.Epoch),
		Master: uint32(w.Master.Replica), MasterIncarnation: uint64(w.Master.Inc), Verdict: verdicts[w.Verdict], Position: int64(w.At),
		Confirm: int64(w.Confirm), LogFirst: int64(w.LogMin), LogEnd: int64(w.LogEnd),
	}}}
}

func welcomeOf(p *replicationv1.Welcome) follower.Welcome {
	return follower.Welcome{
		Session: quorum.Session(p.GetSession()), Epoch: record.Epoch(p.GetEpoch()),
		Master:  quorum.Member{Replica: quorum.Replica(p.GetMaster()), Inc: quorum.Incarnation(p.GetMasterIncarnation())},
		Answer:  replica.Answer{Verdict: verdictOf(p.GetVerdict()), At: record.Pos(p.GetPosition())},
		Confirm: record.Pos(p.GetConfirm()), LogMin: record.Pos(p.GetLogFirst()), LogEnd: record.Pos(p.GetLogEnd()),
	}
}

func batchOf(p *replicationv1.Batch) batch {
	b := batch{
		Batch: follower.Batch{
			Session: quorum.Session(p.GetSession()), Epoch: record.Epoch(p.GetEpoch()), Start: record.Pos(p.GetStart()), End: record.Pos(p.GetEnd()),
			RecordEpoch: record.Epoch(p.GetRecordEpoch()), Confirm: record.Pos(p.GetConfirm()),
		},
		records: p.GetRecords(),
	}
	for _, end := range p.GetFileEnds() {
		b.files = append(b.files, record.Pos(end))
	}
	return b
}

func beatResponse(b follower.Beat) *replicationv1.ReplicateResponse {
	return &replicationv1.ReplicateResponse{Said: &replicationv1.ReplicateResponse_Beat{Beat: &replicationv1.Beat{
		Session: uint64(b.Session), Epoch: uint64(b.Epoch), LogEnd: int64(b.LogEnd), Confirm: int64(b.Confirm),
	}}}
}

// withClock adds the master's lease clock to a beat.
func withClock(m *replicationv1.ReplicateResponse, ms int64) *replicationv1.ReplicateResponse {
	m.GetBeat().LeaseClockMs = ms
	return m
}

func beatOf(p *replicationv1.Beat) follower.Beat {
	return follower.Beat{
		Session: quorum.Session(p.GetSession()), Epoch: record.Epoch(p.GetEpoch()), LogEnd: record.Pos(p.GetLogEnd()), Confirm: record.Pos(p.GetConfirm()),
	}
}

func ackRequest(a follower.Ack) *replicationv1.ReplicateRequest {
	return &replicationv1.ReplicateRequest{Said: &replicationv1.ReplicateRequest_Ack{Ack: &replicationv1.Ack{
		Session: uint64(a.Session), Epoch: uint64(a.Epoch), WrittenEnd: int64(a.Written), DurableEnd: int64(a.Durable),
	}}}
}

func ackOf(p *replicationv1.Ack) follower.Ack {
	return follower.Ack{
		Session: quorum.Session(p.GetSession()), Epoch: record.Epoch(p.GetEpoch()), Written: record.Pos(p.GetWrittenEnd()), Durable: record.Pos(p.GetDurableEnd()),
	}
}

// farewell is why a side ends a stream.
type farewell struct {
	reason replicationv1.CloseReason
	epoch  record.Epoch
	hint   string
	text   string
}

func (f farewell) message() *replicationv1.Close {
	return &replicationv1.Close{Reason: f.reason, Epoch: uint64(f.epoch), MasterHint: f.hint, Text: f.text}
}

func (f farewell) response() *replicationv1.ReplicateResponse {
	return &replicationv1.ReplicateResponse{Said: &replicationv1.ReplicateResponse_Close{Close: f.message()}}
}

func (f farewell) request() *replicationv1.ReplicateRequest {
	return &replicationv1.ReplicateRequest{Said: &replicationv1.ReplicateRequest_Close{Close: f.message()}}
}

func farewellOf(p *replicationv1.Close) farewell {
	return farewell{reason: p.GetReason(), epoch: record.Epoch(p.GetEpoch()), hint: p.GetMasterHint(), text: p.GetText()}
}
