package repl

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/broker/clock"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// LeaderOptions configures a Leader. The zero value of a field means its default.
type LeaderOptions struct {
	// Self is this replica, the master. Required.
	Self
	// CommitLog is the group's log, recovered. Required.
	CommitLog *commitlog.Log
	// Index is that of the log as it was before the EPOCH record of this epoch; engine.Epochs gives it. The Leader
	// keeps it. Required.
	Index *replica.Index
	// View is the controller's state that made this replica the master. Required.
	View quorum.View
	// Mode says what an ack stands for.
	Mode quorum.Mode
	// Confirm is what the replica knew as confirmed before this epoch.
	Confirm record.Pos
	// Times are the patience with followers.
	Times quorum.Times
	// Propose asks the controller for a change of S and returns what came of it. It runs beside everything else, one
	// at a time. Required.
	Propose func(context.Context, quorum.Proposal) (quorum.Outcome, quorum.View)
	// Confirmed is called when the confirm offset has grown. It must not block. Default: nothing.
	Confirmed func()
	// Higher is called when a follower has seen a higher epoch: the controller's state has to be read again. Default: nothing.
	Higher func(record.Epoch)
	// Damaged is called when a record of the log was found damaged while it was to be sent: no follower gets past it, so
	// this replica should give up leading. Default: nothing.
	Damaged func(error)
	// Clock is where the time comes from. Default: the machine's.
	Clock clock.Clock
	// LeaseClock is the clock by which this master judges leases, ms; followers are told. Default: that of Clock.
	LeaseClock func() int64
	// BatchBytes is how much of records is sent at once, if the batches in the log are no larger. Default 512 KiB.
	BatchBytes int
	// WindowBytes is how much of records is under way to a follower before it acks; one batch may exceed it. Default
	// 4 MiB, at most 6 MiB.
	WindowBytes int64
	// Beat is how long nothing is sent to a follower before it gets a sign of life. Default 200 ms.
	Beat time.Duration
	// Silence is how long nothing may come from a follower before its stream is ended. Default 5 s.
	Silence time.Duration
	// Patience is how long what is written may wait to be confirmed before no more is taken. Default 3 s.
	Patience time.Duration
	// Log receives what an operator acts on. Default: discard.
	Log *slog.Logger
}

func (o LeaderOptions) withDefaults() LeaderOptions {
	if o.Confirmed == nil {
		o.Confirmed = func() {}
	}
	if o.Higher == nil {
		o.Higher = func(record.Epoch) {}
	}
	if o.Damaged == nil {
		o.Damaged = func(error) {}
	}
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.LeaseClock == nil {
		o.LeaseClock = o.Clock.Lease
	}
	if o.BatchBytes <= 0 {
		o.BatchBytes = chunkBytes
	}
	if o.WindowBytes <= 0 {
		o.WindowBytes = 4 << 20
	}
	o.WindowBytes = min(o.WindowBytes, windowBytes-2<<20)
	if o.Beat <= 0 {
		o.Beat = 200 * time.Millisecond
	}
	if o.Silence <= 0 {
		o.Silence = 5 * time.Second
	}
	if o.Patience <= 0 {
		o.Patience = 3 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Leader is the master's side of one epoch. It is the engine.Replicas of the engine that writes in it. It begins when
// the EPOCH record is on the disk: make it and run it between the engine's Begin and Serve, or before.
//
// While it runs it has one goroutine, one for a proposal that is out, and three for each stream of a follower, the
// one of gRPC included.
type Leader struct {
	o     LeaderOptions
	epoch record.Epoch

	confirmed atomic.Int64
	stuck     atomic.Pointer[error]
	sessions  atomic.Pointer[[]*session]
	bell      chan struct{} // the log has grown, a follower has acked
	calls     chan func()   // for the goroutine of Run
	begun     chan struct{} // closed: core is there
	ended     chan struct{} // closed: the epoch is over here, why is set
	why       error
	ran       atomic.Bool

	mu      sync.Mutex // guards what follows
	waiters []*waiter
	over    bool           // no more waiters and streams
	work    sync.WaitGroup // what Run waits for; nothing is added once over is set

	// Owned by the goroutine of Run.
	life  context.Context //nolint:containedctx // ends with the epoch
	from  record.Pos      // the log's end before this epoch
	index *replica.Index
	core  *quorum.Core // nil before the EPOCH record is durable
	// moved is when all was confirmed last, or the confirm offset grew.
	moved time.Duration
}

// waiter is an Await.
type waiter struct {
	pos  record.Pos
	done chan struct{} // closed: reached, or the epoch is over
}

// NewLeader returns a Leader that does not run yet. Invalid if the index is not that of the log.
func NewLeader(o LeaderOptions) (*Leader, error) {
	o = o.withDefaults()
	if end := o.CommitLog.Written(); o.Index.End() > end || o.Index.Epoch() >= o.View.Epoch {
		return nil, mqerr.New(mqerr.Invalid, "epochs up to %d are known, up to position %d, of a log that ends at %d, where epoch %d is to begin", o.Index.Epoch(), o.Index.End(), end, o.View.Epoch)
	}
	l := &Leader{
		o: o, epoch: o.View.Epoch, from: o.Index.End(), index: o.Index,
		bell: make(chan struct{}, 1), calls: make(chan func()), begun: make(chan struct{}), ended: make(chan struct{}),
	}
	l.sessions.Store(&[]*session{})
	l.confirmed.Store(int64(o.Confirm))
	return l, nil
}

// Epoch is the epoch that is led.
func (l *Leader) Epoch() record.Epoch { return l.epoch }

// Confirmed is the confirm offset.
func (l *Leader) Confirmed() record.Pos { return record.Pos(l.confirmed.Load()) }

// Memory tells that what is written counts as stored.
func (l *Leader) Memory() bool { return l.o.Mode == quorum.Memory }

// Grown says that the log was written, or made durable, further.
func (l *Leader) Grown() {
	for _, s := range *l.sessions.Load() {
		ring(s.wake)
	}
	ring(l.bell)
}

// Stuck tells why nothing that is written now would be confirmed soon: too few replicas are in sync, or nothing was
// confirmed for longer than Patience though there is something. An error of kind NotEnoughReplicas.
func (l *Leader) Stuck() error {
	if err := l.stuck.Load(); err != nil {
		return *err
	}
	return nil
}

// Await returns when the confirm offset has reached a position. Fenced or Draining if the epoch is over before, the
// error of ctx if that ends.
func (l *Leader) Await(ctx context.Context, pos record.Pos) error {
	w := &waiter{pos: pos, done: make(chan struct{})}
	l.mu.Lock()
	if l.Confirmed() < pos && !l.over {
		l.waiters = append(l.waiters, w)
	} else {
		close(w.done)
	}
	l.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
		l.mu.Lock()
		l.waiters = slices.DeleteFunc(l.waiters, func(o *waiter) bool { return o == w })
		l.mu.Unlock()
		return ctx.Err()
	}
	if l.Confirmed() >= pos {
		return nil
	}
	<-l.ended
	return l.why
}

// release lets those go whose position is reached, or all.
func (l *Leader) release(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = l.over || all
	confirmed := l.Confirmed()
	l.waiters = slices.DeleteFunc(l.waiters, func(w *waiter) bool {
		free := all || w.pos <= confirmed
		if free {
			close(w.done)
		}
		return free
	})
}

// enter counts a stream in, unless the epoch is over.
func (l *Leader) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.work.Add(1)
	return true
}

// Controller takes the controller's state, which may come in any order. It waits for its turn.
func (l *Leader) Controller(v quorum.View) {
	l.ask(func() {
		if l.core != nil {
			l.after(l.core.Controller(l.now(), v))
			return
		}
		if v.Epoch > l.o.View.Epoch || v.Epoch == l.o.View.Epoch && v.Version >= l.o.View.Version {
			l.o.View = v // Run looks at it when it begins
		}
	})
}

// Seen takes note of an epoch that somebody has seen: a higher one ends this.
func (l *Leader) Seen(epoch record.Epoch) {
	l.ask(func() {
		if l.core != nil {
			l.after(l.core.Higher(epoch))
		} else if epoch > l.epoch {
			l.o.View = quorum.View{Epoch: epoch}
		}
	})
}

// ask runs f on the goroutine of Run and waits for it. False if the epoch is over.
func (l *Leader) ask(f func()) bool {
	done := make(chan struct{})
	select {
	case l.calls <- func() { f(); close(done) }:
		<-done
		return true
	case <-l.ended:
		return false
	}
}

func (l *Leader) now() time.Duration {
	return time.Duration(l.o.Clock.Lease()) * time.Millisecond
}
