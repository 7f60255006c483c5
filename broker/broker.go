// Package broker is one replica of one broker group: a store, the engine over it, a session with the
// controller, and the link that proxies use.
package broker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/perigee-mq/perigee/broker/ctl"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/server"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// Broker is one running replica.
type Broker struct {
	o      Options
	store  *store.Store
	before uint64 // incarnation of the run before
	engine *engine.Engine
	term   ctl.Term
	ready  chan struct{}
	failed chan error

	link     *server.Server // nil without a listener
	log      logMetrics
	stopping atomic.Bool
	recovery engine.Recovery
	running  atomic.Pointer[engine.Engine] // set when recovered
	look     chan struct{}                 // holds a token when the disk is to be looked at now
	wanted   *ctl.Wanted                   // topics of its own that the engine needs
}

// New returns a broker that has not started.
func New(o Options) *Broker {
	o = o.withDefaults()
	b := &Broker{o: o, ready: make(chan struct{}), failed: make(chan error, 1), wanted: ctl.NewWanted(), look: make(chan struct{}, 1)}
	if o.Listener != nil {
		b.link = server.New(server.Options{Release: o.Release, Name: fmt.Sprintf("%s/%d", o.Group, o.ID), Link: o.Link, LinksMax: o.LinksMax, Log: o.Log})
	}
	return b
}

// Ready is closed when the broker serves: recovered, registered, its epoch begun, its definitions
// logged.
func (b *Broker) Ready() <-chan struct{} { return b.ready }

// Attach opens the broker for a proxy of the same process. It must be called after Ready.
func (b *Broker) Attach(proxy string, ev brokerapi.Events) (brokerapi.Broker, error) {
	return b.engine.Attach(proxy, ev)
}

// Leads is the shard and epoch that the broker leads; valid after Ready.
func (b *Broker) Leads() (brokerapi.ShardID, brokerapi.Epoch) {
	return brokerapi.ShardID(b.term.ShardID), brokerapi.Epoch(b.term.Epoch)
}

// Term is what the controller gave to this process; valid after Ready.
func (b *Broker) Term() ctl.Term { return b.term }

// Written is the end of the log in bytes; valid after Ready.
func (b *Broker) Written() int64 { return int64(b.store.Log().Written()) }

// Run serves until ctx ends, then drains: links are told, requests under way answered, the views
// saved and the clean-shutdown marker written. An error means that the broker could not start or had
// to stop; what was acknowledged is in the log.
func (b *Broker) Run(ctx context.Context) error {
	if b.link == nil {
		return b.run(ctx)
	}
	// The port answers from the start on: health says "not serving", links wait.
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.link.Serve(b.o.Listener) })
	g.Go(func() error {
		defer b.drainLink(ctx)
		return b.run(ctx)
	})
	return g.Wait()
}

func (b *Broker) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		b.stopping.Store(true)
		b.recovery.Stop()
	})
	defer stop()
	if err := b.open(); err != nil {
		return err
	}
	client := ctl.New(b.o.Controller, b.o.Log)
	if err := b.join(ctx, client); err != nil {
		return b.abandon(err)
	}
	return b.serve(ctx, client)
}

// drainLink ends the links: their proxies are told, requests under way answered. A second time does nothing.
func (b *Broker) drainLink(ctx context.Context) {
	if b.link == nil {
		return
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.o.DrainTimeout)
	defer cancel()
	b.link.Drain(drain)
}

// defined begins the service: the broker's definitions are logged.
func (b *Broker) defined() {
	close(b.ready)
	if b.link != nil {
		b.link.SetServing(true)
	}
}

// open takes the directory and recovers the views.
func (b *Broker) open() error {
	st, err := store.Open(store.Options{FS: b.o.FS, Dir: b.o.DataDir, SegmentBytes: b.o.SegmentBytes, DropRate: b.o.DropRate, DuplicateWindow: b.o.DuplicateWindow, DuplicateBytes: b.o.DuplicateBytes, SkipDamage: b.o.SkipDamage, Log: b.o.Log, LogEvents: b.logEvents()})
	if err != nil {
		return err
	}
	b.store = st
	if b.o.Metrics != nil {
		if err := b.registerLog(st.Log()); err != nil {
			return errors.Join(err, st.Close())
		}
	}
	o := b.o.Engine
	o.Store, o.SkipDamage = st, b.o.SkipDamage
	o.Recovery = &b.recovery
	o.Events.WantTopic = b.wanted.Want
	o.Events.Wrote = b.log.wrote
	recovery := o.Events.Recovered
	o.Events.Recovered = func(from, to record.Pos, records int64, took time.Duration) {
		b.log.recovered.Store(&recovered{from, to, records, took})
		if recovery != nil {
			recovery(from, to, records, took)
		}
	}
	failed := o.Events.Failed
	o.Events.Failed = func(err error) {
		if failed != nil {
			failed(err)
		}
		b.failed <- err
	}
	if b.engine, err = engine.Open(o); err != nil {
		_ = st.Close()
		return err
	}
	b.engine.LookAtSpace() // before the first request
	b.running.Store(b.engine)
	if b.o.Metrics != nil {
		if err := b.register(b.engine); err != nil {
			return b.abandon(err)
		}
	}
	return nil
}

// logEvents are what the commit log tells the broker.
func (b *Broker) logEvents() commitlog.Events {
	return commitlog.Events{
		SegmentRolled:   func(base record.Pos) { b.o.Log.Debug("segment rolled", "base", int64(base)) },
		SegmentPrepared: func(record.Pos, time.Duration) { b.lookSoon() },
		PrepareFailed:   func(error) { b.lookSoon() },
		Synced:          b.log.synced,
		Failed:          func(error) { b.log.failures.Add(1) },
	}
}

// join registers with the controller and begins the epoch that it gave.
func (b *Broker) join(ctx context.Context, client *ctl.Client) error {
	id := b.store.Identity()
	promised, before := b.store.Promised()
	b.before = before
	term, err := client.Register(ctx, ctl.Member{
		Release: b.o.Release, ClusterID: id.ClusterID, Shard: b.o.Group, Replica: b.o.ID, UUID: id.UUID, Address: b.o.Advertise,
		LastIncarnation: before, Clean: b.store.Clean(), LogEnd: int64(b.store.Log().Written()), MaxEpoch: uint64(promised),
	})
	if err != nil {
		return fmt.Errorf("registering broker %s/%d: %w", b.o.Group, b.o.ID, err)
	}
	if term.Epoch == 0 {
		return mqerr.New(mqerr.NotLeader, "the controller gave broker group %s another master: following one comes with a later release", b.o.Group)
	}
	b.term = term
	if err := b.store.Bind(term.ClusterID, b.o.Group, b.o.ID); err != nil {
		return err
	}
	if err := b.store.Promise(record.Epoch(term.Epoch), term.Incarnation); err != nil {
		return err
	}
	return b.engine.Start(engine.Identity{
		Epoch: record.Epoch(term.Epoch), Incarnation: term.Incarnation, Replica: id.UUID, SetVersion: term.SetVersion,
	})
}

// abandon closes what a start that failed has opened. If the run before stopped cleanly and nothing was
// appended since, the directory stays a clean one.
func (b *Broker) abandon(err error) error {
	if b.store.Clean() {
		_ = b.store.CloseClean(b.before)
	} else {
		_ = b.store.Close()
	}
	return err
}

// serve runs the session and the link until ctx ends or something fails.
func (b *Broker) serve(ctx context.Context, client *ctl.Client) error {
	g, ctx := errgroup.WithContext(ctx)
	if b.link != nil {
		b.link.Begin(server.Leader{
			Connector: b.engine, ClusterID: b.term.ClusterID, Shard: brokerapi.ShardID(b.term.ShardID), Epoch: brokerapi.Epoch(b.term.Epoch),
		})
	}
	session := &ctl.Session{
		Client: client, Shard: b.term.ShardID, Replica: b.o.ID, Term: b.term, Release: b.o.Release, Definer: b.engine, Defined: b.defined,
	}
	g.Go(func() error { return session.Run(ctx) })
	g.Go(func() error {
		b.watchSpace(ctx)
		return nil
	})
	g.Go(func() error {
		b.wanted.Run(ctx, client, b.term.ShardID)
		return nil
	})
	g.Go(func() error {
		select {
		case err := <-b.failed:
			return fmt.Errorf("broker %s/%d: commit log failed: %w", b.o.Group, b.o.ID, err)
		case <-ctx.Done():
			return nil
		}
	})
	g.Go(func() error {
		<-ctx.Done()
		b.engine.AnswerWaiting()
		b.drainLink(ctx)
		return nil
	})
	err := g.Wait()
	return b.close(err)
}

// close stops the engine and leaves the directory so that the next start reads no log, if nothing
// failed.
func (b *Broker) close(err error) error {
	if _, e := b.engine.Close(); e != nil || err != nil {
		if err == nil {
			err = e
		}
		_ = b.store.Close()
		return err
	}
	return b.store.CloseClean(b.term.Incarnation)
}
