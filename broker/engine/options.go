package engine

import (
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/broker/clock"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/record"
)

// Options configures an Engine. The zero value of a field means its default.
type Options struct {
	// Store is an open store that has not been recovered yet.
	Store *store.Store
	// Clock tells time. Default clock.New().
	Clock clock.Clock
	// Async makes "written" enough for topics that state no flush policy. Default: sync.
	Async bool
	// FlushInterval is how long asynchronously flushed data may wait for fdatasync. Default 500 ms.
	FlushInterval time.Duration
	// FlushBytes starts an fdatasync sooner. Default 8 MiB.
	FlushBytes int64
	// CheckpointInterval and CheckpointBytes: the views are saved after this time, or after this much
	// log, if anything was written. Defaults 30 s and 64 MiB.
	CheckpointInterval time.Duration
	CheckpointBytes    int64
	// CheckpointBehind bounds what a start after a crash has to read: with more log behind the newest
	// checkpoint messages are refused as Exhausted until one succeeds. Default 16 GiB.
	CheckpointBehind int64
	// SessionTimeout ends a client's session after the last report of any proxy. Default 60 s.
	SessionTimeout time.Duration
	// GoodbyeDelay is how long session leases live after their client said goodbye. Default 1 s.
	GoodbyeDelay time.Duration
	// SessionLeaseMax is the longest a session lease lives. Default 3 h.
	SessionLeaseMax time.Duration
	// PendingRequests and PendingBytes bound what waits for the writer; more is refused as Exhausted.
	// Defaults 65,536 and 256 MiB.
	PendingRequests int
	PendingBytes    int64
	// TurnBytes bounds one batch of the writer. Default 4 MiB (one request may exceed it).
	TurnBytes int
	// ScanEntries bounds how many queue entries a filter may let pass in one go before other
	// requests get their turn. Default 4096.
	ScanEntries int
	// FiltersCached is how many SQL filters are kept ready for use. Default 256.
	FiltersCached int
	// MaxInFlight bounds the messages that are leased to a group here, and MaxInFlightClient those that one of its
	// clients has, unless the group states its own. 0: no bound.
	MaxInFlight, MaxInFlightClient int64
	// InFlightTable bounds the messages of all groups that were handed out and are not done: at it none is
	// handed out for the first time, and receives that would need one are refused as Exhausted. 0: no bound.
	InFlightTable int64
	// Replicas are the others of a replicated broker group. Nil: this broker is alone.
	Replicas Replicas
	// Standby opens an engine that follows another replica until Start.
	Standby bool
	// HandOver is how long a stop waits for the other replicas. Default 2 s.
	HandOver time.Duration
	// Pressed tells that memory is nearly used up: sends are refused, and no message is handed out for the first
	// time. Default: never.
	Pressed func() bool
	// PressedRefused is called for each request that is refused because of that. Default: nothing happens.
	PressedRefused func()
	// PullsWaiting bounds the pulls that wait for a message; more are refused as Exhausted. Default 16,384.
	PullsWaiting int
	// LiteTopics bounds the lite topics of one parent topic here. Default 100,000.
	LiteTopics int
	// LiteSubscriptions bounds the lite topics that one client subscribes to; what goes on beside a change
	// may bring LiteSlack more. Default 2,000.
	LiteSubscriptions int
	// LiteExpiry is how long after its last message a lite topic goes, if no group has anything left to do
	// in it, at twice that in any case. Default 72 h, at least 15 min.
	LiteExpiry time.Duration
	// ColdReads bounds the goroutines that read messages which are not mapped, and half as many others
	// that read messages for SQL filters. Default 4.
	ColdReads int
	// SkipDamage makes a message whose bytes are damaged done for a group that receives it, as one that is lost.
	// Default: it is set aside and tried again, until somebody repairs the log.
	SkipDamage bool
	// Queries bounds the searches and traces of messages that run at once; others wait. Default 2.
	Queries int
	// TraceBytes is how much of the log one call of Trace reads. Default 64 MiB.
	TraceBytes int64
	// IndexRate bounds how much of the log is read per second to rebuild files of the index. Default 64 MiB.
	IndexRate int64
	// Txn configures transactions.
	Txn TxnOptions
	// Retention says what is deleted when. Default: nothing, unless space is low.
	Retention RetentionOptions
	// Space says who is refused when the disk gets full. Default space.Defaults; reserves of the log are at
	// most a quarter and an eighth of a file.
	Space space.Limits
	// Log receives what an operator acts on. Default: discard.
	Log *slog.Logger
	// Recovery tells how far Open has come. Default: nobody looks.
	Recovery *Recovery
	// Events report to metrics and tests.
	Events Events
}

// Events are optional functions that the engine calls; they must not block.
type Events struct {
	// Recovered says how many records were replayed from where, and how long it took.
	Recovered func(from, to record.Pos, records int64, took time.Duration)
	// Wrote says that one batch was appended to the log.
	Wrote func(bytes int)
	// Checkpointed says that the views at pos are saved.
	Checkpointed func(pos record.Pos, took time.Duration)
	// WantTopic says that the broker needs a topic of its own to exist here (dead letters of a group):
	// somebody should ask the controller for it. It comes again while the topic is wanted.
	WantTopic func(name string)
	// Failed says that the engine has stopped for good: nothing more is appended.
	Failed func(error)
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Recovery == nil {
		o.Recovery = new(Recovery)
	}
	set(&o.FlushInterval, 500*time.Millisecond)
	set(&o.FlushBytes, 8<<20)
	set(&o.CheckpointInterval, 30*time.Second)
	set(&o.CheckpointBytes, 64<<20)
	set(&o.CheckpointBehind, 16<<30)
	set(&o.SessionTimeout, time.Minute)
	set(&o.GoodbyeDelay, time.Second)
	set(&o.SessionLeaseMax, 3*time.Hour)
	set(&o.PendingRequests, 65536)
	set(&o.PendingBytes, 256<<20)
	set(&o.TurnBytes, 4<<20)
	set(&o.ScanEntries, 4096)
	set(&o.FiltersCached, 256)
	set(&o.PullsWaiting, 16384)
	set(&o.HandOver, 2*time.Second)
	set(&o.LiteTopics, 100_000)
	set(&o.LiteSubscriptions, 2000)
	set(&o.LiteExpiry, 72*time.Hour)
	o.LiteExpiry = max(o.LiteExpiry, liteExpiryMin)
	set(&o.ColdReads, 4)
	set(&o.IndexRate, 64<<20)
	set(&o.Queries, 2)
	set(&o.TraceBytes, 64<<20)
	set(&o.Space, space.Defaults())
	o.Txn.setDefaults()
	if o.Pressed == nil {
		o.Pressed = func() bool { return false }
	}
	if o.PressedRefused == nil {
		o.PressedRefused = func() {}
	}
	set(&o.Retention.Interval, 10*time.Second)
	set(&o.Retention.Rate, 64<<20)
	return o
}

func set[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
