package broker

import (
	"context"
	"sync"

	"github.com/perigee-mq/perigee/broker/ctl"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/repl"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// Role is what a replica does.
type Role string

// Roles, in the order in which a replica may take them. An error in any of them ends the process.
const (
	Starting  Role = "starting"  // recovering, or registering with the controller
	Copying   Role = "copying"   // taking over the log of the master from its beginning, with nothing of its own
	Following Role = "following" // appending what the master sends
	Promoting Role = "promoting" // elected; its epoch is not confirmed by the others yet
	Defining  Role = "defining"  // serving clients, while topics and groups are being logged as they are by now
	Leading   Role = "leading"   // serving clients
	Resting   Role = "resting"   // ending what it has led
)

// Step is a moment in the life of a replica at which its process may die as well as at any other; tests do that.
type Step string

// Steps of promotion and demotion, in their order.
const (
	StepPromised  Step = "promised"  // the epoch is promised on disk
	StepBegun     Step = "begun"     // the EPOCH record is on disk here
	StepStreams   Step = "streams"   // followers may come
	StepConfirmed Step = "confirmed" // the EPOCH record is confirmed
	StepServing   Step = "serving"   // clients are served
	StepProposing Step = "proposing" // a change of the SyncStateSet is about to be proposed
	StepProposed  Step = "proposed"  // and there was an answer, or none
	StepRefusing  Step = "refusing"  // clients are not served any more
	StepEnded     Step = "ended"     // the engine has ended
	StepResigned  Step = "resigned"  // the controller knows
	StepReopened  Step = "reopened"  // the views are those of a standby
	StepFollowing Step = "following" // a master is known
)

// present is what a broker is and has at a moment, for those who ask.
type present struct {
	role     Role
	shard    uint32
	epoch    record.Epoch // that it leads, 0 if none
	log      *commitlog.Log
	engine   *engine.Engine
	session  *ctl.Session
	leader   *repl.Leader
	follower *repl.Follower
}

// show says what the broker is now. It is called by the goroutine of Run.
func (b *Broker) show(r Role, epoch record.Epoch) {
	p := &present{role: r, shard: b.term.ShardID, epoch: epoch, engine: b.engine, session: b.session}
	if b.store != nil {
		p.log = b.store.Log()
	}
	b.now.Store(p)
}

// showAs is show with who does the work.
func (b *Broker) showAs(r Role, epoch record.Epoch, l *repl.Leader, f *repl.Follower) {
	b.show(r, epoch)
	p := *b.now.Load()
	p.leader, p.follower = l, f
	b.now.Store(&p)
}

// step tells tests.
func (b *Broker) step(s Step) {
	if f := b.o.Step; f != nil {
		f(s)
	}
}

// latest is the newest state of the broker group that the controller has shown.
type latest struct {
	mu   *sync.Mutex
	view *ctl.ShardView
	wake chan struct{} // holds a token when it has changed
}

func newLatest() latest {
	return latest{mu: new(sync.Mutex), view: new(ctl.ShardView), wake: make(chan struct{}, 1)}
}

func (l latest) put(v ctl.ShardView) {
	l.mu.Lock()
	*l.view = v
	l.mu.Unlock()
	l.again()
}

// again lets the next one who waits for a change look at what there is.
func (l latest) again() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l latest) get() ctl.ShardView {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.view
}

// alone tells that nobody else counts for what this broker acknowledges: it does so as soon as its topics want.
func alone(v *ctl.ShardView) bool {
	return len(v.View.Replicas) <= 1 && v.View.MinISR <= 1 && v.Mode == quorum.Durable
}

// elected tells that this process is to lead an epoch that it has not begun before.
func (b *Broker) elected(v *ctl.ShardView) bool {
	promised, _ := b.store.Promised()
	return v.View.Master == b.self && v.View.Epoch > b.led && v.View.Epoch >= promised
}

// play takes one role after the other until ctx ends. again tells that a new incarnation is to be begun.
func (b *Broker) play(ctx context.Context) (again bool, err error) {
	for ctx.Err() == nil {
		if _, is := b.store.Copying(); is {
			return b.copy(ctx)
		}
		v := b.group.get()
		if b.elected(&v) {
			err = b.lead(ctx, v)
		} else {
			again, err = b.follow(ctx)
		}
		if again || err != nil {
			return again, err
		}
	}
	return false, nil
}
