package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// RetentionOptions configures what is deleted when. The zero value of a field means its default.
type RetentionOptions struct {
	retain.Limits
	// Interval is how often it is looked whether something may go. Default 10 s.
	Interval time.Duration
	// Rate bounds the bytes of log that are read per second for messages that are carried forward. Default 64 MiB.
	Rate int64
}

// Retention is what retention has done and found, for metrics and tests.
type Retention struct {
	Looked    bool       // Why is known
	Why       retain.Why // the oldest segment stays; "" if it goes
	Steps     int64      // that have deleted something
	Bytes     int64      // deleted
	Carried   int64      // messages carried forward
	Damaged   int64      // messages that could not be carried forward, since they are damaged
	Unread    int64      // times that a message went before a group had read it
	Failures  int64      // steps that could not be finished; the next one does it again
	Failing   bool       // the last ones could not be finished
	FailingMS int64      // for how long that is so, if it is
	Snapshot  int64      // bytes of the newest SNAPSHOT of this process, 0 before the first
	SnapAt    record.Pos // what it stands for, 0 before the first
	ForwardTo int        // carried messages that are still known
	Held      int        // entries that are kept below the first offsets of their queues
}

// keeper deletes what retention lets go, beside the writer, one step at a time.
type keeper struct {
	e     *Engine
	ctx   context.Context // ends with the engine
	quit  context.CancelFunc
	ended chan struct{}

	one   sync.Mutex // a step is under way
	lent  bool       // the log has a file more than the last watermark allows, for a step to come
	tight bool       // the last step lacked room in the log
	left  *step      // all that it lacks is a checkpoint and the deletion

	bell chan struct{} // holds a token if there is no need to wait for the next step

	mu      sync.Mutex
	stats   Retention
	trouble retain.Trouble
}

func (k *keeper) init(e *Engine) {
	k.e, k.ended, k.bell = e, make(chan struct{}), make(chan struct{}, 1)
	k.ctx, k.quit = context.WithCancel(context.Background())
}

// stop ends the goroutine. A step that is under way is given up where it is.
func (k *keeper) stop() {
	k.quit()
	<-k.ended
}

func (k *keeper) run() {
	defer close(k.ended)
	pause := time.NewTimer(k.e.o.Retention.Interval)
	defer pause.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-pause.C:
		case <-k.bell:
		}
		_, err := k.step(k.ctx, k.e.o.Retention.Limits)
		if k.ctx.Err() != nil || mqerr.Is(err, mqerr.Unavailable) || mqerr.Is(err, mqerr.Draining) {
			return
		}
		pause.Reset(k.judge(err).Pause(k.e.o.Retention.Interval))
	}
}

// soon makes the next step come now if the last one could not be finished: there is more space than then.
func (k *keeper) soon() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.trouble.Tries == 0 {
		return
	}
	select {
	case k.bell <- struct{}{}:
	default:
	}
}

// judge notes how a step went, and tells people of trouble: when it begins, now and then while it stays, and when
// it is over.
func (k *keeper) judge(err error) retain.Trouble {
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx, log, now := context.Background(), k.e.o.Log, k.e.clock.Lease()
	if err == nil {
		if was := k.trouble; was.Tries > 0 {
			log.LogAttrs(ctx, slog.LevelInfo, "retention works again", slog.Duration("failed_for", since(was, now)), slog.Int("tries", was.Tries))
		}
		k.trouble = retain.Trouble{}
		return k.trouble
	}
	next, say := k.trouble.Failed(now)
	if k.trouble = next; say {
		log.LogAttrs(ctx, slog.LevelWarn, "retention cannot delete old messages, so the log grows; it is tried again: look after what the error names, see perigee doctor",
			slog.String("error", err.Error()), slog.Duration("failing_for", since(next, now)), slog.Int("tries", next.Tries), slog.String("space", k.e.Space().Level.String()))
	}
	return next
}

func since(t retain.Trouble, now int64) time.Duration {
	return time.Duration(now-t.Since) * time.Millisecond
}

// Retain does one step of retention by limits, now. It returns what it decided.
func (e *Engine) Retain(ctx context.Context, limits retain.Limits) (retain.Plan, error) {
	return e.keeper.step(ctx, limits)
}

// Retention tells what retention has done.
func (e *Engine) Retention(ctx context.Context) (Retention, error) {
	e.keeper.mu.Lock()
	s := e.keeper.stats
	if t := e.keeper.trouble; t.Tries > 0 {
		s.Failing, s.FailingMS = true, e.clock.Lease()-t.Since
	}
	e.keeper.mu.Unlock()
	err := e.call(ctx, func(w *writer) { s.ForwardTo, s.Held = w.views.carried.Len(), w.views.carried.HeldLen() })
	return s, err
}

// step decides what may go, and deletes it. What it leaves undone, by an error or a crash, the next one does
// again.
func (k *keeper) step(ctx context.Context, limits retain.Limits) (retain.Plan, error) {
	k.one.Lock()
	defer k.one.Unlock()
	if s := k.left; s != nil {
		return s.plan, k.over(s.end(ctx))
	}
	state, err := k.look(ctx, limits)
	if err != nil {
		return retain.Plan{}, err
	}
	plan := limits.Decide(&state)
	k.note(func(s *Retention) { s.Looked, s.Why = true, plan.Why })
	if plan.Why != retain.Goes {
		return plan, nil
	}
	k.e.o.Log.Debug("retention started", "to", int64(plan.D))
	s := &step{k: k, e: k.e, plan: plan, consumed: plan.Early && limits.Room == retain.Consumed, low: state.Low}
	if err = s.run(ctx); err == nil {
		k.left = s
		err = s.end(ctx)
	}
	return plan, k.over(err)
}

// over is the end of a step, which it returns.
func (k *keeper) over(err error) error {
	k.lend(err)
	k.tight = mqerr.Is(err, mqerr.DiskFull)
	if err == nil {
		k.left = nil
		return nil
	}
	k.note(func(s *Retention) { s.Failures++ })
	return err
}

// lend lets the log have one file more at the last watermark when a step lacks room: what makes room is not to be
// stopped by what is to keep some. It has another one when a step has given some back.
func (k *keeper) lend(err error) {
	switch {
	case err == nil || !k.e.Space().Holds || k.e.Space().Seen.Ballast != nil:
		k.lent = false
	case mqerr.Is(err, mqerr.DiskFull) && !k.lent:
		k.lent = true
		k.e.log.Grant()
	}
}

func (k *keeper) note(f func(*Retention)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.stats)
}

// look gathers what a decision depends on.
func (k *keeper) look(ctx context.Context, limits retain.Limits) (retain.State, error) {
	log := k.e.log
	s := retain.State{Now: k.e.clock.Wall(), Durable: k.e.shown(true), Low: k.e.lowSpace()}
	written := log.Written()
	for _, i := range log.Segments() {
		if i.Base >= written || i.LastTime < 0 {
			break // nothing is there yet
		}
		s.Now = max(s.Now, i.LastTime) // the store clock never goes back
		if n := len(s.Segments); i.FirstTime < 0 && n > 0 {
			// Its first record is damaged or lost. The log cannot begin there, so it goes with the one before.
			s.Segments[n-1].End, s.Segments[n-1].Newest = i.End, i.LastTime
			continue
		}
		s.Segments = append(s.Segments, retain.Segment{Base: i.Base, End: i.End, First: max(0, i.FirstTime), Newest: i.LastTime})
	}
	s.Tight, s.Want = k.tight, k.e.wanted()
	k.mu.Lock()
	s.Snapshot = k.stats.Snapshot
	k.mu.Unlock()
	if limits.Asks(&s) {
		var err error
		if s.Unread, err = k.oldestUnread(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

// oldestUnread is the store time of the oldest message that somebody has yet to read.
func (k *keeper) oldestUnread(ctx context.Context) (int64, error) {
	type place struct {
		key queue.Key
		off record.QueueOffset
	}
	var all []place
	var failed error
	v := &k.e.views
	err := k.e.call(ctx, func(w *writer) {
		r := v.readersOf(nil)
		for _, key := range v.queues.Keys() {
			off, err := v.oldestUnread(&r, key)
			if err != nil {
				failed = err
				return
			}
			if _, hi := v.queues.Bounds(key); off < hi {
				all = append(all, place{key, off})
			}
		}
	})
	if err == nil {
		err = failed
	}
	oldest := int64(1) << 62
	for _, p := range all {
		if err != nil {
			return 0, err
		}
		var e queue.Entry
		one := k.e.mending(ctx, func() (err error) { e, err = v.entryAt(p.key, p.off); return err })
		_, damaged := queue.DamageOf(one)
		switch {
		case damaged: // any message may be the oldest
			oldest = 0
		case one == nil:
			oldest = min(oldest, e.Time)
		case !gone(one):
			err = one
		}
	}
	return oldest, err
}

// lowSpace tells whether retention is to make room.
func (e *Engine) lowSpace() bool { return e.Space().Level >= space.Low }
