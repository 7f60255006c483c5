package repl

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// Views are what a follower makes of its log. An engine that is a standby is one.
type Views interface {
	// Apply takes the records up to a position, which is confirmed, into the views.
	Apply(to record.Pos) error
	// Applied is the position below which all has been taken.
	Applied() record.Pos
}

// FollowerOptions configures a Follower. The zero value of a field means its default.
type FollowerOptions struct {
	// Self is this replica. Required.
	Self
	// CommitLog is the replica's log, recovered. Nobody else appends to it while the Follower runs. Required.
	CommitLog *commitlog.Log
	// Index is that of the whole log. The Follower keeps it up to date; when Run has returned it is the caller's again, for
	// the next Follower or Leader. Required.
	Index *replica.Index
	// Views follow the confirm offset. Nobody else may use them before Run has returned. Required.
	Views Views
	// Confirm is what the replica knows as confirmed. Default: what is in the views.
	Confirm record.Pos
	// Promised is the highest epoch that the replica has on disk as seen.
	Promised record.Epoch
	// Promise makes durable that an epoch was seen. After an error it is tried again, and nothing is answered
	// meanwhile. Required.
	Promise func(record.Epoch) error
	// Learner says that the replica may never become a member of S.
	Learner bool
	// Copying says that the log was emptied, to take over all that the master has.
	Copying bool
	// Higher is called when a master or one that was it tells of an epoch above the promised one, with the address of
	// its master if that is known. It must not call the Follower. Default: nothing.
	Higher func(epoch record.Epoch, master string)
	// LeaseClock is the clock by which this replica would judge leases, ms. Default: nobody compares it with a master's.
	LeaseClock func() int64
	// InSync is called when the replica has, for the first time, all that the master had when it said so last. It must not
	// block, nor call the Follower. Default: nothing.
	InSync func()
	// FlushInterval is how long what is written may wait for fdatasync. Default: not at all, as a group that promises
	// durable records needs it.
	FlushInterval time.Duration
	// BackoffMin and BackoffMax bound the pause before a stream is opened again. Defaults 50 ms and 2 s.
	BackoffMin, BackoffMax time.Duration
	// Silence is how long nothing may come from the master before the stream is ended. Default 3 s.
	Silence time.Duration
	// DialOptions are added to those of the connection, which is plain TCP without them.
	DialOptions []grpc.DialOption
	// Log receives what an operator acts on. Default: discard.
	Log *slog.Logger
}

func (o FollowerOptions) withDefaults() FollowerOptions {
	o.Confirm = max(o.Confirm, o.Views.Applied())
	if o.Higher == nil {
		o.Higher = func(record.Epoch, string) {}
	}
	if o.InSync == nil {
		o.InSync = func() {}
	}
	if o.BackoffMin <= 0 {
		o.BackoffMin = 50 * time.Millisecond
	}
	if o.BackoffMax <= 0 {
		o.BackoffMax = 2 * time.Second
	}
	if o.Silence <= 0 {
		o.Silence = 3 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Follower is a replica that follows: it appends what the master sends, says how far it is, and lets its views come
// after.
//
// It has three goroutines while it runs: one that owns the core, appends and cuts, one that syncs, one that applies;
// and two for its stream, those of gRPC apart.
type Follower struct {
	o FollowerOptions

	confirmed atomic.Int64
	shift     shift
	calls     chan func() // for the goroutine of Run
	in        chan heard  // what streams have heard
	flushed   chan struct{}
	fatal     chan error
	ended     chan struct{}
	ran       atomic.Bool
	work      sync.WaitGroup // streams and helpers

	syncNow, applyNow   chan struct{}
	syncing, applying   chan struct{} // hold a token while the log is synced, or read for the views, or cut
	lastPromise         record.Epoch  // that could not be made durable yet; 0: none
	core                *follower.Core
	address             string  // of the master; like all that follows owned by the goroutine of Run
	stream              *stream // nil: there is none
	oldestSpan          record.Epoch
	pause               *time.Timer // until the next try
	pausing, full, told bool
	synced              bool // InSync was called
	failures            int  // in a row
	masterEnd           record.Pos
}

// SnapshotError says that a replica can't go on from its log: what comes next was deleted from the master's, or the two
// share nothing. It has to begin anew: with an empty directory and a snapshot of the master's.
type SnapshotError struct {
	Epoch record.Epoch
	End   record.Pos // of the log here
	// MasterFirst and MasterEnd are the log of the master.
	MasterFirst, MasterEnd record.Pos
}

// Error says it to people.
func (e *SnapshotError) Error() string {
	return fmt.Sprintf("this replica's log ends at %d, that of the master of epoch %d is [%d, %d): it can't go on from there and has to begin anew from a snapshot", e.End, e.Epoch, e.MasterFirst, e.MasterEnd)
}

// NewFollower returns a Follower that does not run yet, and knows no master. Corrupt if the log has an epoch that was
// never promised.
func NewFollower(o FollowerOptions) (*Follower, error) {
	o = o.withDefaults()
	if end := o.CommitLog.Written(); o.Index.End() != end {
		return nil, mqerr.New(mqerr.Invalid, "the epochs are known up to %d of a log that ends at %d", o.Index.End(), end)
	}
	core, err := follower.New(follower.Options{Log: o.Index, Durable: o.CommitLog.Durable(), Confirm: o.Confirm, Promised: o.Promised})
	if err != nil {
		return nil, err
	}
	f := &Follower{
		o: o, core: core, calls: make(chan func()), in: make(chan heard), flushed: make(chan struct{}, 1), fatal: make(chan error, 2), ended: make(chan struct{}),
		syncNow: make(chan struct{}, 1), applyNow: make(chan struct{}, 1), syncing: make(chan struct{}, 1), applying: make(chan struct{}, 1),
	}
	f.confirmed.Store(int64(core.Confirm()))
	return f, nil
}

// Confirmed is the confirm offset as the replica knows it.
func (f *Follower) Confirmed() record.Pos { return record.Pos(f.confirmed.Load()) }

// Shift is what has to be added to the lease clock of this replica to go on with that of the last master that it
// followed, ms, less the time that a beat took at least; false if no beat was heard. Ask when Run has returned.
func (f *Follower) Shift() (ms int64, known bool) { return f.shift.ms, f.shift.known }

// Follow says who is the master of an epoch and where it is, as the controller shows it. The promise of the epoch is on
// disk when it returns, if that is possible now. Fenced if a higher epoch was seen, Draining if Run has returned.
func (f *Follower) Follow(epoch record.Epoch, master quorum.Member, address string) error {
	var err error
	ran := f.ask(func() {
		var t follower.Todo
		if t, err = f.core.Follow(epoch, master); err != nil {
			return
		}
		if f.address != address || t != (follower.Todo{}) {
			f.failures = 0
			f.tryNow()
		}
		f.address = address
		f.doOrDie(t)
	})
	if !ran {
		return errNotFollowing
	}
	return err
}

// Seen takes note of an epoch, from whomever: nothing is acked in an older one from now on. The promise is on disk when
// it returns; if that failed, the error says so, and it is tried again.
func (f *Follower) Seen(epoch record.Epoch) error {
	var err error
	ran := f.ask(func() {
		f.doOrDie(f.core.Seen(epoch))
		if f.lastPromise != 0 {
			err = mqerr.New(mqerr.Unavailable, "the promise of epoch %d is not on disk yet", epoch)
		}
	})
	if !ran {
		return errNotFollowing
	}
	return err
}

var errNotFollowing = mqerr.New(mqerr.Draining, "this replica does not follow any more")

// FollowerStatus is how a replica stands that follows, for metrics and people.
type FollowerStatus struct {
	State                              follower.State
	Promised                           record.Epoch
	Master                             quorum.Member // zero: not known
	Address                            string
	Confirm, Applied, Written, Durable record.Pos
	// LagBytes is what the master has and this replica lacks, as the master said last; -1 without a session.
	LagBytes int64
	// DiskFull tells that the replica waits for room on its disk.
	DiskFull bool
}

// Status says how the replica stands; false if Run has returned.
func (f *Follower) Status() (s FollowerStatus, ok bool) {
	ok = f.ask(func() {
		c := f.core
		master, _ := c.Master()
		s = FollowerStatus{
			State: c.State(), Promised: c.Promised(), Master: master, Address: f.address, LagBytes: -1, DiskFull: f.full,
			Confirm: c.Confirm(), Applied: f.o.Views.Applied(), Written: c.End(), Durable: c.Durable(),
		}
		if s.State == follower.CatchingUp || s.State == follower.InSync {
			s.LagBytes = max(0, int64(f.masterEnd-c.End()))
		}
	})
	return s, ok
}

// ask runs g on the goroutine of Run and waits for it. False if Run has returned.
func (f *Follower) ask(g func()) bool {
	done := make(chan struct{})
	select {
	case f.calls <- func() { g(); close(done) }:
		<-done
		return true
	case <-f.ended:
		return false
	}
}
