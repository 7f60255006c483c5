package broker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/broker/ctl"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/repl"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/broker/server"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// term is one epoch that this replica leads.
type term struct {
	b     *Broker
	epoch record.Epoch
	alone bool

	leader  *repl.Leader // nil: alone
	stop    context.CancelFunc
	over    chan struct{} // closed: Run of the leader has returned why
	why     error
	served  chan error // that the engine serves, or why not
	serving bool       // it does
	waits   bool       // nobody has taken what is in served
	damaged chan error
	defined chan struct{}
}

// lead begins an epoch and serves it until it is over: because another replica is to lead (the broker goes on and
// follows), or because ctx ends.
func (b *Broker) lead(ctx context.Context, v ctl.ShardView) error {
	t := &term{
		b: b, epoch: v.View.Epoch, alone: alone(&v), over: make(chan struct{}), served: make(chan error, 1),
		damaged: make(chan error, 1), defined: make(chan struct{}, 1), stop: func() {},
	}
	b.show(Promoting, 0)
	if err := t.begin(v); err != nil {
		return fmt.Errorf("broker %s: beginning epoch %d: %w", b.name(), t.epoch, err)
	}
	why, err := t.serve(ctx)
	if err != nil {
		return err
	}
	b.o.Log.LogAttrs(ctx, slog.LevelInfo, "this replica stops leading", slog.Uint64("epoch", uint64(t.epoch)), slog.String("reason", why))
	return nil
}

// begin writes the epoch's record and lets the followers come.
func (t *term) begin(v ctl.ShardView) error {
	b := t.b
	if !t.alone { // before anything is appended that others have to have
		if err := b.store.SetReplicated(true); err != nil {
			return err
		}
	}
	if err := b.store.Promise(t.epoch, b.term.Incarnation); err != nil {
		return err
	}
	b.led = t.epoch
	b.step(StepPromised)
	index, err := b.index, error(nil)
	if index == nil {
		if index, err = b.engine.Epochs(); err != nil {
			return err
		}
	}
	b.index = nil // the leader's from here on
	confirm, shift := max(b.confirm, b.engine.Applied()), t.leaseShift()
	b.shift = &shift
	if _, err := b.engine.Begin(engine.Identity{
		Epoch: t.epoch, Incarnation: b.term.Incarnation, Replica: b.store.Identity().UUID, SetVersion: v.View.Version, LeaseShift: shift,
	}); err != nil {
		return err
	}
	b.step(StepBegun)
	t.waits = true
	if t.alone {
		t.served <- b.engine.Serve(nil)
		return b.store.SetReplicated(false)
	}
	if t.leader, err = repl.NewLeader(repl.LeaderOptions{
		Self: b.replica(), CommitLog: b.store.Log(), Index: index, View: v.View, Mode: v.Mode, Confirm: confirm, Times: b.o.Replication.Times,
		Propose: t.propose, Confirmed: b.engine.Confirm, Damaged: t.tellDamaged, Clock: b.o.Engine.Clock, LeaseClock: b.engine.Lease,
		BatchBytes: b.o.Replication.BatchBytes, WindowBytes: b.o.Replication.WindowBytes, Beat: b.o.Replication.Beat, Silence: b.o.Replication.Silence,
		Higher: func(e record.Epoch) {
			b.o.Log.Info("a replica has seen a higher epoch: the controller will say who leads it", slog.Uint64("epoch", uint64(e)))
		},
		Log: b.o.Log,
	}); err != nil {
		return err
	}
	life, stop := context.WithCancel(context.Background())
	t.stop = stop
	go func() {
		defer close(t.over)
		t.why = t.leader.Run(life)
	}()
	b.showAs(Promoting, 0, t.leader, nil)
	b.streams.Lead(t.leader)
	b.step(StepStreams)
	go func() { t.served <- b.engine.Serve(t.leader) }()
	return nil
}

// leaseShift makes the lease clock that of the master before, as near as it is known; else it is late for as long as
// clocks may differ. A broker that is alone goes on with its own.
func (t *term) leaseShift() int64 {
	switch b := t.b; {
	case t.alone:
		return 0
	case b.shift != nil:
		return *b.shift
	default:
		return -b.o.Replication.Skew.Milliseconds()
	}
}

// replica says who this is to other replicas.
func (b *Broker) replica() repl.Self {
	return repl.Self{Release: b.o.Release, ClusterID: b.term.ClusterID, Shard: b.term.ShardID, Member: b.self}
}

func (t *term) tellDamaged(err error) {
	select {
	case t.damaged <- err:
	default:
	}
}

// propose asks the controller for a change of the SyncStateSet.
func (t *term) propose(ctx context.Context, p quorum.Proposal) (quorum.Outcome, quorum.View) {
	b := t.b
	hello := &controllerv1.Hello{Version: ctl.ProtocolVersion, Release: b.o.Release, ClusterId: b.term.ClusterID}
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	b.step(StepProposing)
	outcome, g, err := b.client.Alter(ctx, b.term.ShardID, hello, p)
	if err != nil {
		b.o.Log.LogAttrs(ctx, slog.LevelWarn, "the controller did not answer what set of replicas in sync was proposed: it counts until the controller shows otherwise, and is asked again",
			slog.String("error", err.Error()))
	}
	b.step(StepProposed)
	return outcome, g.View
}

// proposeTimeout bounds the wait for one answer.
const proposeTimeout = 2 * time.Second

// serve waits for the epoch to be confirmed, serves clients, and ends all that when the term is over. The error is one
// that ends the broker.
func (t *term) serve(ctx context.Context) (why string, err error) {
	b := t.b
	for {
		select {
		case <-ctx.Done():
			return "the process stops", t.leave(ctx)
		case err := <-b.failed:
			t.abort(ctx)
			return "", fmt.Errorf("broker %s: commit log failed: %w", b.name(), err)
		case err := <-t.damaged:
			t.abort(ctx)
			return "", fmt.Errorf("broker %s: its log is damaged, so no other replica can follow it; another one that has everything will lead: remove this replica and its directory, and start it anew: %w", b.name(), err)
		case <-t.over:
			return fmt.Sprint(t.why), t.yield(ctx)
		case err := <-t.served:
			t.waits, t.serving = false, err == nil
			if err != nil {
				return err.Error(), t.yield(ctx)
			}
			t.open()
		case <-t.defined:
			if b.link != nil {
				b.link.SetServing(true)
			}
			b.showAs(Leading, t.epoch, t.leader, nil)
			b.settled()
		case <-b.group.wake:
			v := b.group.get()
			switch {
			case v.View.Epoch > t.epoch || v.View.Epoch == t.epoch && v.View.Master != b.self:
				if b.link == nil {
					t.abort(ctx)
					return "", mqerr.New(mqerr.Fenced, "epoch %d of broker %s is over", t.epoch, b.name())
				}
				return fmt.Sprintf("the controller shows epoch %d with another master", v.View.Epoch), t.yield(ctx)
			case v.HandOver:
				return "another replica is to lead", t.leave(ctx)
			case t.alone && !alone(&v) && b.link != nil:
				return "another replica has joined: what is acknowledged from now on counts it in", t.leave(ctx)
			case t.leader != nil:
				t.leader.Controller(v.View)
			}
		}
	}
}

// open lets clients in.
func (t *term) open() {
	b := t.b
	b.step(StepConfirmed)
	b.counts.led.Add(1)
	b.o.Log.Info("leading", slog.Uint64("epoch", uint64(t.epoch)), slog.Bool("alone", t.alone))
	if b.link != nil {
		b.link.Begin(server.Leader{
			Connector: b.connector(b.engine, t.leader, b.session), ClusterID: b.term.ClusterID, Shard: brokerapi.ShardID(b.term.ShardID), Epoch: brokerapi.Epoch(t.epoch),
		})
	}
	b.showAs(Defining, t.epoch, t.leader, nil)
	b.session.Lead(uint64(t.epoch), b.engine, func() { t.defined <- struct{}{} })
	b.step(StepServing)
}

// leave ends the term because somebody else is to lead, or nobody: requests are answered, and the other replicas have
// what was acknowledged, and what was not, before the controller hears that the epoch is over.
func (t *term) leave(ctx context.Context) error {
	b := t.b
	b.showAs(Resting, t.epoch, t.leader, nil)
	patience := b.o.DrainTimeout
	if ctx.Err() == nil || t.leader != nil {
		patience = min(patience, handOver) // who waits for another master waits for this
	}
	t.refuse(ctx, patience)
	_, _ = b.engine.Close() // an error comes again from reopen or close
	b.step(StepEnded)
	b.session.Resign(uint64(t.epoch), ctx.Err() != nil)
	b.session.Rest()
	b.awaitResigned(ctx, t.epoch)
	b.step(StepResigned)
	return t.rest(ctx)
}

// handOver is how long clients may take to get their answers while another replica waits to lead.
const handOver = 2 * time.Second

// yield ends a term that is over, whatever this replica thinks of it: what is not confirmed is answered as unknown.
func (t *term) yield(ctx context.Context) error {
	b := t.b
	b.counts.deposed.Add(1)
	b.showAs(Resting, 0, nil, nil)
	b.session.Rest()
	t.halt() // before the engine: it waits for the others no more
	if b.link != nil {
		e := b.engine                    // another one is there when the goroutine runs
		go func() { _, _ = e.Close() }() // ends what the links wait for
	}
	t.refuse(ctx, handOver)
	_, _ = b.engine.Close()
	b.step(StepEnded)
	return t.rest(ctx)
}

// abort ends the term because this process has to end.
func (t *term) abort(ctx context.Context) {
	t.b.session.Rest()
	t.halt()
	t.refuse(ctx, handOver)
}

// halt ends the leader and waits for it.
func (t *term) halt() {
	t.stop()
	if t.leader != nil {
		<-t.over
		t.b.confirm = max(t.b.confirm, t.leader.Confirmed())
	}
}

// refuse ends the links when their requests are answered, or after a time.
func (t *term) refuse(ctx context.Context, patience time.Duration) {
	b := t.b
	if t.waits { // the epoch was never confirmed
		t.halt()
		t.serving = <-t.served == nil
		t.waits = false
	}
	if t.serving {
		b.engine.AnswerWaiting()
	}
	if b.link != nil {
		b.link.SetServing(false)
		drain, cancel := drainContext(ctx, patience)
		defer cancel()
		b.link.Rest(drain)
	}
	b.step(StepRefusing)
}

// rest ends the streams, and makes this replica one that can follow.
func (t *term) rest(ctx context.Context) error {
	b := t.b
	t.halt()
	b.streams.Follow(t.epoch, "")
	if ctx.Err() != nil {
		return nil // close does the rest
	}
	if err := b.reopen(); err != nil {
		return err
	}
	b.step(StepReopened)
	return nil
}

// awaitResigned waits until the controller shows that it knows, but not for long.
func (b *Broker) awaitResigned(ctx context.Context, epoch record.Epoch) {
	wait, cancel := drainContext(ctx, resignTimeout)
	defer cancel()
	for {
		if v := b.group.get(); v.View.Epoch > epoch || v.View.Master != b.self {
			b.group.again() // whoever comes next looks at it
			return
		}
		select {
		case <-b.group.wake:
		case <-wait.Done():
			return
		}
	}
}

// resignTimeout is how long a broker that stops leading waits for the controller to take note.
const resignTimeout = time.Second
