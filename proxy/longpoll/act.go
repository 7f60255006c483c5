package longpoll

import (
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// unlockAndAct ends an operation: it unlocks mu and carries out what the core decided.
func (p *Polls) unlockAndAct() {
	var room [4]action
	p.act(p.unlock(room[:0]))
}

// unlock sets the timer, takes the core's actions and unlocks mu.
func (p *Polls) unlock(acts []action) []action {
	p.setTimerLocked()
	acts = append(acts, p.core.out...)
	clear(p.core.out)
	p.core.out = p.core.out[:0]
	p.mu.Unlock()
	return acts
}

// act carries out actions, and those that follow from pops which are answered at once.
func (p *Polls) act(acts []action) {
	for i := 0; i < len(acts); i++ {
		switch a := acts[i]; a.kind {
		case actPop:
			if a.w.call(a.shard) {
				acts = p.take(a.w, acts)
			}
		case actAnswer:
			a.w.done(a.answer)
		case actReturn:
			p.GiveBack(a.w.leased(a.answer))
		}
	}
}

// take hands the answer of w's pop to the core and appends what follows.
func (p *Polls) take(w *Wait, acts []action) []action {
	reply, err := w.reply, w.err
	w.reply, w.err = nil, nil
	p.mu.Lock()
	p.core.replied(w, reply, err, time.Now())
	return p.unlock(acts)
}

// replied handles an answer that came after the pop's call had returned.
func (p *Polls) replied(w *Wait) {
	var room [4]action
	p.act(p.take(w, room[:0]))
}

// Lease is messages that a receive leased at one broker.
type Lease struct {
	brokerapi.Principal
	Shard   brokerapi.ShardID
	Topic   brokerapi.TopicID
	Group   brokerapi.GroupID
	Handles []brokerapi.Handle
}

// leased lists the messages of an answer that cannot be delivered, and releases the reply.
func (w *Wait) leased(a Answer) Lease {
	l := Lease{Principal: w.pop.Principal, Shard: a.Shard, Topic: w.pop.Topic, Group: w.pop.Group}
	l.Handles = Handles(a.Reply.Messages)
	a.Reply.Release()
	return l
}

// Handles names deliveries.
func Handles(messages []brokerapi.Delivery) []brokerapi.Handle {
	hs := make([]brokerapi.Handle, len(messages))
	for i := range messages {
		m := &messages[i]
		hs[i] = brokerapi.Handle{Queue: m.Queue, Offset: m.Offset, Lease: m.Lease, Epoch: m.Epoch}
	}
	return hs
}

// GiveBack ends leases of messages that did not reach the client: they may go out again at once,
// with the same attempt number. If that fails they come back when their lease is over.
func (p *Polls) GiveBack(l Lease) {
	if len(l.Handles) == 0 {
		return
	}
	b, epoch, err := p.o.Brokers.Broker(l.Shard)
	if err != nil {
		p.gaveBack(l, len(l.Handles), false, err)
		return
	}
	req := &brokerapi.ChangeRequest{
		Head:  brokerapi.Head{Principal: l.Principal, Epoch: epoch},
		Topic: l.Topic, Group: l.Group, Handles: l.Handles, Mode: brokerapi.ChangeKeep,
	}
	b.Change(req, func(reply *brokerapi.ChangeReply, err error) {
		failed := 0
		if err != nil {
			failed = len(l.Handles)
		} else {
			for _, e := range reply.Errors {
				if e != nil {
					failed, err = failed+1, e
				}
			}
		}
		p.gaveBack(l, failed, true, err)
	})
}

func (p *Polls) gaveBack(l Lease, failed int, sent bool, err error) {
	p.mu.Lock()
	p.given += uint64(len(l.Handles) - failed)
	p.lost += uint64(failed)
	if sent {
		p.changes++
	}
	p.mu.Unlock()
	if failed > 0 {
		p.o.Log.Debug("messages not given back", slog.Uint64("shard", uint64(l.Shard)), slog.Int("messages", failed), slog.Any("error", err))
	}
}
