package repl

import (
	"context"
	"log/slog"
	"slices"
	"time"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Run leads until the epoch is over, and returns why (Fenced), or until ctx ends; then it returns nil. Everything that
// waits is answered and every stream has ended when it returns. It is called once.
func (l *Leader) Run(ctx context.Context) error {
	if !l.ran.CompareAndSwap(false, true) {
		return mqerr.New(mqerr.Internal, "the leader of epoch %d was run before", l.epoch)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.life = ctx
	ring(l.bell) // the epoch may have begun
	err := l.lead(ctx)
	l.why = err
	reason := replicationv1.CloseReason_CLOSE_REASON_NOT_MASTER
	if err == nil {
		l.why = mqerr.New(mqerr.Draining, "this replica stops leading epoch %d", l.epoch)
		reason = replicationv1.CloseReason_CLOSE_REASON_LEAVING
	}
	close(l.ended)
	l.release(true)
	for _, s := range *l.sessions.Load() {
		s.end(l.bye(reason, l.why), l.why)
	}
	cancel()
	l.work.Wait()
	return err
}

func (l *Leader) lead(ctx context.Context) error {
	tick := time.NewTicker(l.o.Beat)
	defer tick.Stop()
	for {
		ticked := false
		select {
		case <-ctx.Done():
			return nil
		case <-l.bell:
		case f := <-l.calls:
			f()
		case <-tick.C:
			ticked = true
		}
		if err := l.turn(ticked); err != nil {
			return err
		}
	}
}

// turn takes in what has happened: how far the log goes, what followers were sent and acked.
func (l *Leader) turn(ticked bool) error {
	sessions := *l.sessions.Load()
	for _, s := range sessions { // before the ends of the log are read: nobody acks what is not there
		s.take()
	}
	durable := l.o.CommitLog.Durable() // first: it is at or below written
	written := l.o.CommitLog.Written()
	if l.core == nil {
		if err := l.begin(durable, written); err != nil || l.core == nil {
			return err
		}
	}
	now := l.now()
	l.after(l.core.OwnEnd(written, durable))
	for _, s := range sessions {
		if s.taken.isSent && !l.core.Sent(now, s.id, s.taken.sentEnd) {
			s.end(l.bye(replicationv1.CloseReason_CLOSE_REASON_SUPERSEDED, errSuperseded), errSuperseded)
			continue
		}
		if s.taken.isAck {
			out, err := l.core.Acked(now, s.id, l.epoch, s.taken.ack.Written, s.taken.ack.Durable)
			if err != nil {
				s.end(l.bye(replicationv1.CloseReason_CLOSE_REASON_PROTOCOL, err), err)
			}
			l.after(out)
		}
	}
	if ticked {
		l.after(l.core.Tick(now))
	}
	l.judgeStuck(now, written)
	return l.core.Over()
}

// judgeStuck finds out whether it is of any use to write.
func (l *Leader) judgeStuck(now time.Duration, written record.Pos) {
	if l.core.Confirm() >= written {
		l.moved = now
	}
	set, _ := l.core.Set()
	var err error
	switch {
	case len(set) < l.core.MinISR():
		err = mqerr.New(mqerr.NotEnoughReplicas, "%d replicas of the broker group are in sync, and %d copies are needed: nothing was written; start the others", len(set), l.core.MinISR())
	case now-l.moved >= l.o.Patience:
		err = mqerr.New(mqerr.NotEnoughReplicas, "the other replicas of the broker group have confirmed nothing for %v: nothing was written; perigee cluster status says which one is away", (now - l.moved).Round(time.Second))
	}
	switch was := l.stuck.Load(); {
	case err == nil:
		if was != nil {
			l.o.Log.LogAttrs(l.life, slog.LevelInfo, "what is written is confirmed again: requests are taken", slog.Uint64("epoch", uint64(l.epoch)))
			l.stuck.Store(nil)
		}
	default:
		if was == nil {
			l.o.Log.LogAttrs(l.life, slog.LevelError, "requests are refused until enough replicas confirm what is written", slog.Uint64("epoch", uint64(l.epoch)), slog.String("reason", err.Error()))
		}
		l.stuck.Store(&err)
	}
}

var errSuperseded = mqerr.New(mqerr.Fenced, "the session is over: the replica has a newer one, or a newer incarnation")

func (l *Leader) bye(reason replicationv1.CloseReason, why error) farewell {
	return farewell{reason: reason, epoch: l.epoch, text: why.Error()}
}

// begin makes the core once the EPOCH record is durable.
func (l *Leader) begin(durable, written record.Pos) error {
	switch v := l.o.View; {
	case v.Epoch != l.epoch || v.Master != l.o.Member:
		return mqerr.New(mqerr.Fenced, "epoch %d was over before it began: epoch %d has another master, or none", l.epoch, v.Epoch)
	case durable <= l.from:
		return nil
	}
	core, err := quorum.New(quorum.Options{
		Self: l.o.Member, View: l.o.View, Mode: l.o.Mode, Times: l.o.Times,
		Start: durable, Written: written, Durable: durable, Confirm: l.Confirmed(),
	}, l.now())
	if err != nil {
		return err
	}
	l.core, l.moved = core, l.now()
	l.after(quorum.Out{Confirm: core.Confirm(), Moved: core.Confirm() > l.Confirmed()})
	close(l.begun)
	return nil
}

// after does what a call of the core led to.
func (l *Leader) after(out quorum.Out) {
	if out.Moved {
		l.moved = l.now()
		l.confirmed.Store(int64(out.Confirm))
		l.release(false)
		l.o.Confirmed()
		for _, s := range *l.sessions.Load() {
			ring(s.wake)
		}
	}
	if p, ok := l.core.Pending(); ok && out.Propose {
		l.propose(p)
	}
}

// propose asks the controller, beside everything else.
func (l *Leader) propose(p quorum.Proposal) {
	if !l.enter() {
		return
	}
	l.o.Log.LogAttrs(l.life, slog.LevelInfo, "asking the controller to change the set of replicas in sync", slog.Uint64("epoch", uint64(p.Epoch)), slog.Any("members", p.Set))
	go func() {
		defer l.work.Done()
		outcome, view := l.o.Propose(l.life, p)
		l.ask(func() { l.after(l.core.Answered(l.now(), p.Number, outcome, view)) })
	}()
}

// add puts a session into the list.
func (l *Leader) add(s *session) {
	all := append(slices.Clip(*l.sessions.Load()), s)
	l.sessions.Store(&all)
}

// remove takes a session out of the list, and tells the core that it is over.
func (l *Leader) remove(s *session) {
	all := slices.DeleteFunc(slices.Clone(*l.sessions.Load()), func(o *session) bool { return o == s })
	l.sessions.Store(&all)
	if s.left {
		l.after(l.core.Left(l.now(), s.id))
		return
	}
	l.after(l.core.Close(l.now(), s.id))
}
