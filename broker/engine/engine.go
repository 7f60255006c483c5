// Package engine is the heart of a broker: the single writer of the CommitLog and the owner of every
// view.
//
// Requests wait in one list. The writer goroutine takes what waits, runs each request against the
// views (which assigns positions, queue offsets and leases and encodes records into one batch),
// writes the batch, and answers what needs no more than that; a second goroutine syncs, after which
// the writer answers the rest. So positions, offsets and leases need no lock, and one write and one
// fdatasync serve all requests that arrived meanwhile (group commit without a timer).
//
// The engine has four goroutines while it runs (writer, syncer, indexer, keeper), one more while a checkpoint is
// saved and one while a consume queue is mended, at most Options.ColdReads that read messages which are not mapped,
// and one for each query, of which Options.Queries do something.
package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/perigee-mq/perigee/broker/filter"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// Identity is who the engine writes as: an epoch belongs to exactly one incarnation of one replica.
type Identity struct {
	Epoch       record.Epoch
	Incarnation uint64
	Replica     [16]byte
	SetVersion  uint64
	// LeaseShift is added to the clock by which leases are judged, ms: what it is behind the clock of the master
	// before, negative if it is ahead.
	LeaseShift int64
}

// Engine is one running broker core. Its methods are safe for concurrent use.
type Engine struct {
	o     Options
	log   *commitlog.Log
	clock *shifted
	cold  chan struct{} // a token for each goroutine that reads cold messages
	asked chan struct{} // a token for each query that runs
	reads sync.WaitGroup
	// flights has a token for each goroutine that reads messages for SQL filters.
	flights chan struct{}
	filters *filter.Cache

	inbox   inbox
	syncer  syncer
	indexer indexer
	keeper  keeper
	mender  mender
	done    chan struct{} // closed when the writer has ended
	leave   chan struct{} // closed when the engine is told to stop: queries end
	saves   sync.WaitGroup
	counts  Counts
	damages damages
	spaces  spaces

	life    context.Context //nolint:containedctx // ends when the engine is told to stop
	die     context.CancelFunc
	standby standby
	applied atomic.Int64 // at of standby, for others

	started atomic.Bool
	closing sync.Once
	ended   struct { // what Close found
		pos record.Pos
		err error
	}

	ageMu     sync.Mutex
	agesKnown map[queueSpot]int64 // guarded by ageMu: store times that the last Snapshot has used

	writer // owned by the writer goroutine
}

// Open recovers the views of a store: the newest checkpoint, then the log behind it. The engine
// serves nothing before Start.
func Open(o Options) (*Engine, error) {
	o = o.withDefaults()
	e := &Engine{o: o, log: o.Store.Log(), clock: &shifted{Clock: o.Clock}, cold: make(chan struct{}, o.ColdReads), done: make(chan struct{})}
	e.life, e.die = context.WithCancel(context.Background())
	e.asked, e.leave = make(chan struct{}, o.Queries), make(chan struct{})
	if e.log.MaxBody() < bodyMin {
		return nil, mqerr.New(mqerr.Invalid, "segments of the log hold records of %d bytes: make them 1 MiB or more", e.log.MaxBody())
	}
	if err := o.Space.Check(); err != nil {
		return nil, err
	}
	e.o.Space = o.Space.Fit(int64(e.log.MaxBody()))
	e.spaces.init(e.o.Space)
	e.o.TurnBytes = min(o.TurnBytes, e.log.MaxBody()/4)
	e.o.ScanEntries = min(o.ScanEntries, scanMax)
	e.flights, e.filters = make(chan struct{}, (o.ColdReads+1)/2), filter.NewCache(o.FiltersCached)
	e.inbox.init(o.PendingRequests, o.PendingBytes)
	e.syncer.init(e.log, e.inbox.wake, o.FlushInterval, e.grown)
	e.indexer.init(e)
	e.keeper.init(e)
	e.mender.init(e)
	e.writer.init(e)
	e.openBallast()
	defer o.Recovery.watch(o.Log)()
	e.views.unbegun = e.unbegun
	if err := e.views.recover(o); err != nil {
		return nil, err
	}
	at := e.views.saved
	e.standby = standby{log: e.log.Chunks(at), at: at, saved: at, last: commitlog.Last{Pos: -1}, busy: make(chan struct{}, 1), when: e.clock.Lease()}
	e.applied.Store(int64(at))
	return e, nil
}

// bodyMin is what the largest records of consumers need: handlesMax changes, or a lease with scanMax
// skipped messages.
const (
	bodyMin = 512 << 10
	scanMax = 1 << 14
)

// Start begins an epoch: its record is durable, and confirmed by the other replicas, before anything is served.
// Requests that come before are Unavailable.
func (e *Engine) Start(id Identity) error {
	if _, err := e.Begin(id); err != nil {
		return err
	}
	return e.Serve(e.o.Replicas)
}

// Begin is the first half of Start: the EPOCH record is durable in the log of this replica. It returns its end.
func (e *Engine) Begin(id Identity) (record.Pos, error) {
	if e.o.Standby {
		if err := e.lead(); err != nil {
			return 0, err
		}
		e.o.Standby = false // its views are of no use for a checkpoint before it serves
	}
	e.clock.ms.Store(id.LeaseShift)
	if err := e.begin(id); err != nil {
		return 0, err
	}
	return e.began, nil
}

// Serve is the second half of Start, with the other replicas, nil if there are none.
func (e *Engine) Serve(r Replicas) error {
	e.o.Replicas = r
	e.grown()
	if err := e.await(e.life, e.began); err != nil {
		return err
	}
	e.started.Store(true)
	var stuck func() error
	if r != nil {
		stuck = r.Stuck
	}
	e.inbox.open(stuck)
	go e.syncer.run()
	go e.indexer.run()
	go e.keeper.run()
	e.mender.start()
	go e.write()
	return nil
}

// Close stops the engine: requests that wait are answered, the views are saved, the log is durable.
// It returns the position up to which the views were saved. Later calls wait for the first and return
// the same; before Start there is nothing to stop.
func (e *Engine) Close() (record.Pos, error) {
	e.closing.Do(e.stop)
	return e.ended.pos, e.ended.err
}

func (e *Engine) stop() {
	e.die()
	if !e.started.Load() {
		if e.o.Standby {
			e.ended.pos = e.endStandby()
		}
		return
	}
	close(e.leave)
	e.keeper.quit()
	e.mender.stop()
	closed := make(chan struct{})
	e.submitOwn(&closeOp{done: func(pos record.Pos, err error) {
		e.ended.pos, e.ended.err = pos, err
		close(closed)
	}})
	<-closed
	<-e.done
	e.syncer.stop()
	e.keeper.stop()
	e.indexer.stop(true)
	e.saves.Wait()
	e.reads.Wait()
}

// Failure returns the error that stopped the engine for good, nil while it works.
func (e *Engine) Failure() error { return e.inbox.failure() }

// Views returns sizes for metrics and tests.
func (e *Engine) Views(ctx context.Context) (Sizes, error) {
	return ask(ctx, e, func(done func(Sizes, error)) op { return &sizesOp{done: done} })
}

// ask submits an op and waits for its answer. Such ops are few: each has a caller that waits. A sign of
// life or a definition must not be kept out by the messages that wait.
func ask[R any](ctx context.Context, e *Engine, make func(done func(R, error)) op) (R, error) {
	type answer struct {
		r   R
		err error
	}
	c := newOnce[answer]()
	e.submitOwn(make(func(r R, err error) { c <- answer{r, err} }))
	select {
	case a := <-c:
		return a.r, a.err
	case <-ctx.Done():
		var none R
		return none, mqerr.New(mqerr.UnknownOutcome, "gave up waiting for the broker: %w", ctx.Err())
	}
}

func newOnce[T any]() chan T { return make(chan T, 1) }
