package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/perigee-mq/perigee/broker/ctl"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/obs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

func (b *Broker) storeOptions() store.Options {
	return store.Options{
		FS: b.o.FS, Dir: b.o.DataDir, SegmentBytes: b.o.SegmentBytes, DropRate: b.o.DropRate, DuplicateWindow: b.o.DuplicateWindow,
		DuplicateBytes: b.o.DuplicateBytes, SkipDamage: b.o.SkipDamage, Log: b.o.Log, LogEvents: b.logEvents(),
	}
}

// open takes the directory and recovers the views: those of a standby if the log may hold what is not confirmed. One
// that is copied from another replica has no views yet.
func (b *Broker) open(standby *bool) error {
	st, err := store.Open(b.storeOptions())
	if err != nil {
		return err
	}
	b.store, b.index = st, nil
	b.standby = st.Replicated()
	if standby != nil {
		b.standby = *standby
	}
	if b.o.Metrics != nil {
		if err := b.registerLog(st.Log()); err != nil {
			return b.abandon(err)
		}
	}
	if _, is := st.Copying(); is {
		b.show(Copying, 0)
		return nil
	}
	if err := b.openEngine(); err != nil {
		return b.shut(err)
	}
	b.show(Starting, 0)
	b.engine.LookAtSpace() // before the first request
	if b.o.Metrics != nil {
		if err := b.register(b.engine); err != nil {
			return b.abandon(err)
		}
	}
	return nil
}

func (b *Broker) openEngine() error {
	o := b.o.Engine
	o.Store, o.SkipDamage, o.Standby = b.store, b.o.SkipDamage, b.standby
	recovery := new(engine.Recovery)
	if b.stopping.Load() {
		recovery.Stop()
	}
	b.recovery.Store(recovery)
	if b.stopping.Load() { // between the two
		recovery.Stop()
	}
	o.Recovery = recovery
	o.Events.WantTopic = b.wanted.Want
	o.Events.Wrote = b.log.wrote
	recovered, failed := o.Events.Recovered, o.Events.Failed
	o.Events.Recovered = func(from, to record.Pos, records int64, took time.Duration) {
		b.log.recovered.Store(newRecovered(from, to, records, took))
		if recovered != nil {
			recovered(from, to, records, took)
		}
	}
	o.Events.Failed = func(err error) {
		if failed != nil {
			failed(err)
		}
		select {
		case b.failed <- err:
		default: // one is enough
		}
	}
	var err error
	b.engine, err = engine.Open(o)
	return err
}

// shut lets go of the directory because of an error, as it is.
func (b *Broker) shut(err error) error {
	b.hide()
	defer b.closed()
	_ = b.store.Close()
	return err
}

// hide takes what is open away from those who ask, before it is closed.
func (b *Broker) hide() {
	b.looking.Lock()
	defer b.looking.Unlock()
	p := *b.now.Load()
	p.engine, p.log, p.leader, p.follower = nil, nil, nil, nil
	b.now.Store(&p)
	for _, m := range b.meters {
		_ = m.Forget() // waits for those who are reading
	}
	b.meters = nil
}

// closed forgets what was open.
func (b *Broker) closed() {
	b.store, b.engine, b.index = nil, nil, nil
	b.show(Starting, 0)
}

// reopen ends the engine and opens another one over the same directory: the views of one that has led may be ahead of
// what is confirmed, and only a standby may follow.
func (b *Broker) reopen() error {
	b.hide()
	if _, err := b.engine.Close(); err != nil {
		return b.shut(err)
	}
	err := b.store.Close()
	b.closed()
	if err != nil {
		return err
	}
	standby := true
	return b.open(&standby)
}

// logEvents are what the commit log tells the broker.
func (b *Broker) logEvents() commitlog.Events {
	return commitlog.Events{
		SegmentRolled:   func(base record.Pos) { b.o.Log.Debug("segment rolled", "base", int64(base)) },
		SegmentPrepared: func(record.Pos, time.Duration) { b.lookSoon() },
		PrepareFailed:   func(error) { b.lookSoon() },
		Synced: func(from, to record.Pos, took time.Duration) {
			b.counts.flushes.took(took)
			b.log.synced(from, to, took)
		},
		Failed: func(error) { b.log.failures.Add(1) },
	}
}

// join registers with the controller.
func (b *Broker) join(ctx context.Context) error {
	id := b.store.Identity()
	promised, before := b.store.Promised()
	b.before = before
	_, copying := b.store.Copying()
	term, err := b.client.Register(ctx, ctl.Member{
		Release: b.o.Release, ClusterID: id.ClusterID, Shard: b.o.Group, Replica: b.o.ID, UUID: id.UUID, Address: b.o.Advertise,
		LastIncarnation: before, Clean: b.store.Clean(), LogEnd: int64(b.store.Log().Written()), MaxEpoch: uint64(promised),
		Damaged: len(b.store.Log().Holes()) > 0, Learner: copying || b.o.Learner, MinISR: b.o.MinISR, Mode: b.o.Mode,
	})
	if err != nil {
		return fmt.Errorf("registering broker %s: %w", b.name(), err)
	}
	if term.Epoch == 0 && b.link == nil {
		return mqerr.New(mqerr.NotLeader, "the controller gave broker group %s another master: a broker without a port can't follow it", b.o.Group)
	}
	b.term, b.self = term, quorum.Member{Replica: quorum.Replica(b.o.ID), Inc: quorum.Incarnation(term.Incarnation)}
	if err := b.store.Bind(term.ClusterID, b.o.Group, b.o.ID); err != nil {
		return err
	}
	// An epoch that somebody else leads is promised when that one is followed.
	epoch := promised
	if term.Epoch != 0 {
		epoch = record.Epoch(term.Epoch)
	}
	if err := b.store.Promise(epoch, term.Incarnation); err != nil {
		return err
	}
	b.group.put(term.Group)
	b.show(b.now.Load().role, 0)
	return nil
}

// instruments are those of what is open, and forgotten with it.
func (b *Broker) instruments() *registrar {
	m := obs.NewInstruments(b.o.Metrics)
	b.meters = append(b.meters, m)
	return &registrar{m}
}
