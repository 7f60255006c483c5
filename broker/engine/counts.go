package engine

import "sync/atomic"

// Counts are what the engine has done since its start. They are plain atomics: metrics read them.
type Counts struct {
	Sent             atomic.Int64 // messages stored
	SentBytes        atomic.Int64 // bytes of their records
	Duplicates       atomic.Int64 // messages that were sent again and answered with their first result
	DuplicatesDiffer atomic.Int64 // messages with the id of an earlier one and another body: stored
	Leased           atomic.Int64 // messages handed out
	Redelivered      atomic.Int64 // of them, for the second time or later
	Acked            atomic.Int64 // messages ended
	Changed          atomic.Int64 // leases moved
	Skipped          atomic.Int64 // messages that a filter let pass
	Passed           atomic.Int64 // messages passed over because an older one of their message group was out
	Pops             atomic.Int64 // receives that reached the writer
	EmptyPops        atomic.Int64 // of them, that found nothing
	Pulls            atomic.Int64 // pulls that were answered
	Pulled           atomic.Int64 // messages in their answers
	PullsRefused     atomic.Int64 // pulls refused because too many wait
	Positions        atomic.Int64 // positions of pull consumers stored
	Resets           atomic.Int64 // groups moved on a topic
	OverMax          atomic.Int64 // deliveries past max attempts
	DeadAttempts     atomic.Int64 // messages moved to a dead-letter topic because their attempts were used up
	Redriven         atomic.Int64 // dead letters moved back, or elsewhere
	DeadClient       atomic.Int64 // messages moved there by a consumer
	Stale            atomic.Int64 // handles refused
	Damaged          atomic.Int64 // messages that could not be read
	DamagedDone      atomic.Int64 // of them, those that a group or a reader goes on without
	Gone             atomic.Int64 // messages that a group or a reader came to and that retention had deleted
	Refused          atomic.Int64 // requests refused because too many wait
	InFlightFull     atomic.Int64 // receives that found nothing because their group or client has as much in flight as it may
	TableFull        atomic.Int64 // receives refused because all groups together have
	Turns            atomic.Int64 // turns of the writer
	Sessions         atomic.Int64 // client sessions ended
	Checkpoints      atomic.Int64 // checkpoints saved
	QueriesWaited    atomic.Int64 // searches and traces that found others running and waited
	UnsavedRefused   atomic.Int64 // sends refused because the newest checkpoint is too far behind

	Mended             atomic.Int64 // extents of consume queues that were rebuilt from the log
	CheckpointFailures atomic.Int64 // checkpoints that could not be saved

	Halves        atomic.Int64 // half messages stored
	HalvesRefused atomic.Int64 // half messages refused because too many are open
	Committed     atomic.Int64 // transactions committed
	RolledBack    atomic.Int64 // transactions rolled back
	Checks        atomic.Int64 // checks handed to proxies
	GivenUp       atomic.Int64 // transactions that nobody has ended

	Delayed       atomic.Int64 // messages stored that wait for their time
	Delivered     atomic.Int64 // of them, delivered when it came
	DeliveredLate atomic.Int64 // of them, a tenth of a second late or more
	LateMS        atomic.Int64 // by how much, all together, ms
	LateMaxMS     atomic.Int64 // by how much at most, ms
	Recalled      atomic.Int64 // delayed messages taken back
	GrowthRefused atomic.Int64 // sends with a message group refused because their topic gets, or has got, more queues
	LiteExpired   atomic.Int64 // lite topics that nobody sent to any more
	LiteUndone    atomic.Int64 // messages in them that some group had not done, or that nobody had read
	LiteRefused   atomic.Int64 // lite topics and subscriptions refused by a quota
}

// SetAside is how many checkpoints the start could not use: damaged, or of another log.
func (e *Engine) SetAside() int64 { return e.o.Store.SetAside() }

// Counts returns the engine's counters.
func (e *Engine) Counts() *Counts { return &e.counts }
