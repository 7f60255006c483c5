// Package broker is one replica of one broker group: a store, the engine over it, a session with the
// controller, and the port that proxies and other replicas use.
//
// A replica follows or leads as the controller says (role.go). Its engine is a standby while it follows: its views come
// after what is confirmed. To lead it begins an epoch of its own in the log; what it led ends with its engine, and a new
// one is opened, because views of a master may be ahead of what is confirmed.
package broker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/perigee-mq/perigee/broker/ctl"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/repl"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/broker/server"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/obs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// Broker is one running replica.
type Broker struct {
	o      Options
	ready  chan struct{}
	failed chan error
	client *ctl.Client

	link     *server.Server // nil without a listener: then it can't be one of several replicas
	streams  *repl.Service
	log      logMetrics
	stopping atomic.Bool
	recovery atomic.Pointer[engine.Recovery]
	look     chan struct{} // holds a token when the disk is to be looked at now
	looking  sync.Mutex    // held while it is, and while what is looked at goes away
	wanted   *ctl.Wanted   // topics of its own that the engine needs
	group    latest        // the broker group as the controller shows it
	now      atomic.Pointer[present]
	counts   counts

	// Owned by the goroutine of Run.
	store   *store.Store
	before  uint64 // incarnation of the run before
	engine  *engine.Engine
	standby bool // the engine was opened as one
	meters  []*obs.Instruments
	term    ctl.Term
	self    quorum.Member
	session *ctl.Session
	led     record.Epoch   // the highest epoch that was begun here
	index   *replica.Index // of the whole log, nil: the engine tells it
	confirm record.Pos     // what is known as confirmed
	shift   *int64         // of the lease clock to that of the last master that was followed, ms; nil: not known
	readied bool
}

// New returns a broker that has not started.
func New(o Options) *Broker {
	o = o.withDefaults()
	b := &Broker{
		o: o, ready: make(chan struct{}), failed: make(chan error, 1), wanted: ctl.NewWanted(), look: make(chan struct{}, 1),
		client: ctl.New(o.Controller, o.Log), streams: &repl.Service{}, group: newLatest(),
	}
	b.recovery.Store(new(engine.Recovery))
	b.now.Store(&present{role: Starting})
	if o.Listener != nil {
		b.link = server.New(server.Options{Release: o.Release, Name: b.name(), Link: o.Link, LinksMax: o.LinksMax, ConnectionsMax: o.PeersMax, Replication: b.streams, Log: o.Log})
	}
	return b
}

func (b *Broker) name() string { return fmt.Sprintf("%s/%d", b.o.Group, b.o.ID) }

// Ready is closed when the broker does its work for the first time: it leads, and its definitions are logged, or it
// follows and has what its master has.
func (b *Broker) Ready() <-chan struct{} { return b.ready }

// Attach opens the broker for a proxy of the same process. NotLeader if it does not lead.
func (b *Broker) Attach(proxy string, ev brokerapi.Events) (brokerapi.Broker, error) {
	p := b.now.Load()
	if p.engine == nil {
		return nil, mqerr.New(mqerr.NotLeader, "broker %s is starting", b.name())
	}
	return b.connector(p.engine, p.leader, p.session).Attach(proxy, ev)
}

// Leads is the shard and epoch that the broker leads; an epoch of 0 if none.
func (b *Broker) Leads() (brokerapi.ShardID, brokerapi.Epoch) {
	p := b.now.Load()
	return brokerapi.ShardID(p.shard), brokerapi.Epoch(p.epoch)
}

// Written is the end of the log in bytes, 0 before it is known.
func (b *Broker) Written() int64 {
	if p := b.now.Load(); p.log != nil {
		return int64(p.log.Written())
	}
	return 0
}

// First is the position where the log begins, 0 before it is known.
func (b *Broker) First() int64 {
	if p := b.now.Load(); p.log != nil {
		return int64(p.log.First())
	}
	return 0
}

// Run serves until ctx ends, then drains: links are told, requests under way answered, another replica may lead, the
// views are saved and the clean-shutdown marker is written. An error means that the broker could not start or had
// to stop; what was acknowledged is in the log.
func (b *Broker) Run(ctx context.Context) error {
	if b.link == nil {
		return b.run(ctx)
	}
	// The port answers from the start on: health says "not serving", links wait.
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.link.Serve(b.o.Listener) })
	g.Go(func() error {
		defer b.closePort(ctx)
		return b.run(ctx)
	})
	return g.Wait()
}

func (b *Broker) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		b.stopping.Store(true)
		b.recovery.Load().Stop()
	})
	defer stop()
	if b.o.Metrics != nil {
		if err := b.registerReplica(); err != nil {
			return err
		}
	}
	for {
		again, err := b.live(ctx)
		if !again || err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// closePort ends the links and the streams of followers.
func (b *Broker) closePort(ctx context.Context) {
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.o.DrainTimeout)
	defer cancel()
	b.link.Drain(drain)
	b.link.Stop(drain)
}

// live is one incarnation: from the directory to its end. again tells that the next one is to be begun at once.
func (b *Broker) live(ctx context.Context) (again bool, err error) {
	if err := b.open(nil); err != nil {
		return false, err
	}
	if err := b.join(ctx); err != nil {
		return false, b.abandon(err)
	}
	b.session = ctl.NewSession(b.client, b.term.ShardID, b.o.ID, b.term)
	b.session.Release, b.session.Follows, b.session.Changed, b.session.Report = b.o.Release, b.link != nil, b.group.put, b.report
	b.session.Lease.Now = b.o.Boot
	// What runs beside the role outlives it: who leaves tells the controller.
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, beside := errgroup.WithContext(beside)
	role, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(beside, stop)()
	g.Go(func() error { return b.session.Run(beside) })
	g.Go(func() error { b.watchSpace(beside); return nil })
	g.Go(func() error { b.wanted.Run(beside, b.client, b.term.ShardID); return nil })
	again, err = b.play(role)
	end()
	if e := g.Wait(); e != nil {
		again, err = false, e
	}
	return again, b.close(err)
}

// close ends what is open, and leaves the directory so that the next start reads no log, if nothing failed.
func (b *Broker) close(err error) error {
	if b.store == nil {
		return err
	}
	b.hide()
	defer b.closed()
	if b.engine != nil {
		if _, e := b.engine.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		_ = b.store.Close()
		return err
	}
	return b.store.CloseClean(b.term.Incarnation)
}

// abandon closes what a start that failed has opened. If the run before stopped cleanly and nothing was
// appended since, the directory stays a clean one.
func (b *Broker) abandon(err error) error {
	b.hide()
	defer b.closed()
	if b.engine != nil {
		_, _ = b.engine.Close()
	}
	if b.store.Clean() {
		_ = b.store.CloseClean(b.before)
	} else {
		_ = b.store.Close()
	}
	return err
}

// settled says that the broker does its work.
func (b *Broker) settled() {
	if !b.readied {
		b.readied = true
		close(b.ready)
	}
}

// drainContext bounds what waits for others at the end of a role.
func drainContext(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}
