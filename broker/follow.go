package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/broker/ctl"
	"github.com/perigee-mq/perigee/broker/repl"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// memoryFlush is how long a follower of a group in memory mode lets written records wait for fdatasync.
const memoryFlush = 500 * time.Millisecond

// copyLook is how often it is looked whether a copy is complete.
const copyLook = 100 * time.Millisecond

// follow follows whoever the controller says leads, until this replica is to lead, or ctx ends. again tells that it has
// to begin anew with the log of the master.
func (b *Broker) follow(ctx context.Context) (again bool, err error) {
	if b.link == nil {
		return false, mqerr.New(mqerr.Fenced, "epoch %d of broker %s is over", b.led, b.name())
	}
	if !b.standby {
		if err := b.reopen(); err != nil {
			return false, err
		}
	}
	if err := b.store.SetReplicated(true); err != nil {
		return false, err
	}
	index, err := b.index, error(nil)
	if index == nil {
		if index, err = b.engine.Epochs(); err != nil {
			return false, err
		}
	}
	b.index = nil
	synced := make(chan struct{}, 1)
	f, err := b.follower(index, b.engine, b.o.Learner, func() { synced <- struct{}{} })
	if err != nil {
		return false, err
	}
	var v ctl.ShardView
	err = b.stream(ctx, f, synced, func() bool { v = b.group.get(); return b.elected(&v) })
	b.confirm = max(b.confirm, f.Confirmed())
	if ms, known := f.Shift(); known {
		b.shift = &ms
	}
	var anew *repl.SnapshotError
	switch {
	case errors.As(err, &anew):
		return true, b.begunAnew(anew)
	case err != nil:
		return false, fmt.Errorf("broker %s: following: %w", b.name(), err)
	}
	b.index = index
	return false, nil
}

// follower makes the one that appends and applies. synced is called when it has what the master has.
func (b *Broker) follower(index *replica.Index, views repl.Views, learner bool, synced func()) (*repl.Follower, error) {
	promised, _ := b.store.Promised()
	st, inc := b.store, b.term.Incarnation
	o := repl.FollowerOptions{
		Self: b.replica(), CommitLog: st.Log(), Index: index, Views: views, Confirm: b.confirm, Promised: promised, Learner: learner, Copying: b.engine == nil,
		Promise: func(e record.Epoch) error { return st.Promise(e, inc) },
		Higher: func(e record.Epoch, master string) {
			b.o.Log.Debug("a higher epoch was seen: the controller will say who leads it", slog.Uint64("epoch", uint64(e)), slog.String("master", master))
		},
		LeaseClock: b.o.Engine.Clock.Lease, InSync: synced, Silence: b.o.Replication.Silence, DialOptions: b.o.Replication.DialOptions, Log: b.o.Log,
	}
	if b.group.get().Mode == quorum.Memory {
		o.FlushInterval = memoryFlush
	}
	return repl.NewFollower(o)
}

// stream runs a follower until until says so, ctx ends, or it fails.
func (b *Broker) stream(ctx context.Context, f *repl.Follower, synced <-chan struct{}, until func() bool) error {
	life, stop := context.WithCancel(context.Background())
	defer stop()
	over := make(chan error, 1)
	go func() { over <- f.Run(life) }()
	role := Following
	if b.engine == nil {
		role = Copying
	}
	b.showAs(role, 0, nil, f)
	b.link.SetServing(false)
	rest, cancel := drainContext(ctx, 0)
	defer cancel()
	b.link.Rest(rest)
	b.group.again()
	var look <-chan time.Time // what a copy waits for comes without a word
	if role == Copying {
		tick := time.NewTicker(copyLook)
		defer tick.Stop()
		look = tick.C
	}
	for ctx.Err() == nil && !until() {
		select {
		case <-look:
		case <-ctx.Done():
		case err := <-over:
			return err
		case err := <-b.failed:
			stop()
			<-over //nolint:errcheck // the first reason is what is told
			return err
		case <-synced:
			if role == Following {
				b.settled()
			}
		case <-b.group.wake:
			b.obey(f, b.group.get())
		}
	}
	stop()
	return <-over
}

// obey tells the follower who leads.
func (b *Broker) obey(f *repl.Follower, v ctl.ShardView) {
	master, address := v.View.Master, v.Master
	if master.Replica == 0 || master.Replica == b.self.Replica {
		b.streams.Follow(v.View.Epoch, "")
		if err := f.Seen(v.View.Epoch); err != nil {
			b.o.Log.Warn("an epoch could not be promised; it is tried again: look at the disk", slog.String("error", err.Error()))
		}
		return
	}
	b.streams.Follow(v.View.Epoch, address)
	switch err := f.Follow(v.View.Epoch, master, address); {
	case err == nil:
		b.step(StepFollowing)
	case mqerr.Is(err, mqerr.Fenced): // a newer one comes
	default:
		b.o.Log.Warn("the master can't be followed yet; it is tried again: look at the disk", slog.String("error", err.Error()))
	}
}

// begunAnew empties the directory, so that the next incarnation takes over the log of the master.
func (b *Broker) begunAnew(why *repl.SnapshotError) error {
	v := b.group.get()
	if slices.Contains(v.View.Set, b.self) {
		return fmt.Errorf("broker %s is one of the replicas in sync, and its log is not a part of its master's: one of the two is damaged; nothing was touched: %w", b.name(), why)
	}
	b.o.Log.Warn("this replica can't go on from its own log: it is given up, and the master's is copied", slog.String("error", why.Error()))
	b.hide()
	if _, err := b.engine.Close(); err != nil {
		return err
	}
	err := b.store.Close()
	b.closed()
	if err != nil {
		return err
	}
	b.confirm = 0
	return store.Anew(b.storeOptions(), why.MasterFirst)
}

// copy takes over the log of the master, as a replica that does not count for anything. When it has all of it, the next
// incarnation follows like any other. What is copied may not be confirmed at its end: that is cut, so that the views,
// which are made of it then, are not ahead.
func (b *Broker) copy(ctx context.Context) (again bool, err error) {
	log := b.store.Log()
	index := replica.New(log.First())
	if _, err := log.Recover(log.First(), func(r record.Record) error { return index.Append(r.Epoch, index.End(), r.End()) }); err != nil {
		return false, err
	}
	synced, has := make(chan struct{}, 1), atomic.Bool{}
	f, err := b.follower(index, unread{log.First()}, true, func() { has.Store(true); synced <- struct{}{} })
	if err != nil {
		return false, err
	}
	done := func() bool { return has.Load() && f.Confirmed() > log.First() }
	err = b.stream(ctx, f, synced, done)
	var anew *repl.SnapshotError
	switch {
	case errors.As(err, &anew): // the master has deleted meanwhile what was copied
		if err := b.shut(nil); err != nil {
			return false, err
		}
		return true, store.Anew(b.storeOptions(), anew.MasterFirst)
	case err != nil || !done():
		return false, err
	}
	if err := log.Truncate(f.Confirmed()); err != nil {
		return false, err
	}
	b.counts.copied.Add(1)
	b.o.Log.Info("the log of the master is copied: this replica follows from here on", slog.Int64("first", int64(log.First())), slog.Int64("end", int64(f.Confirmed())))
	return true, b.store.Copied()
}

// unread stands for the views of a log that is being copied: there are none.
type unread struct{ first record.Pos }

func (u unread) Apply(record.Pos) error { return nil }
func (u unread) Applied() record.Pos    { return u.first }
