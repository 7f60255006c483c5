package engine

import (
	"context"
	"log/slog"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// graves is the writer's state of messages that are to be moved to dead-letter topics.
type graves struct {
	busy   bool                     // messages are being read or wait to be written
	again  int64                    // when those whose topic is missing are looked at again, lease clock, ms; 0: there are none
	wait   []*forwardOp             // forwards whose dead-letter topic is missing, in the order of their coming
	warned map[record.GroupID]int64 // when a group's dead letters were logged last, lease clock, ms
}

// Bounds on the messages that are moved at a time, and on those that are looked at in one turn.
const (
	buryMax   = 64
	buryBytes = 4 << 20
	buryLook  = 4096
)

// Pauses of messages that cannot be moved now, ms.
const (
	missingPause = 3000   // the dead-letter topic does not exist; it goes on as soon as it does
	blockedPause = 10_000 // the disk is full, or the queue cannot be read
	warnPause    = 60_000 // between two log lines about one group
)

// bury starts to move messages that have used up their attempts: it finds a number of them and has them
// read beside the writer, which then writes them (buryOp).
func (w *writer) bury() {
	g := &w.graves
	if g.again != 0 && w.lease >= g.again {
		w.exhume()
	}
	if g.busy {
		return
	}
	var list []burial
	size := 0
	for looked := 0; looked < buryLook && len(list) < buryMax && size < buryBytes && w.views.pop.HasDying(); looked++ {
		for _, who := range w.views.pop.TakeDying(1, w.due, nil) {
			if b, ok := w.burialOf(who, size); ok {
				list = append(list, b)
				size += int(b.size) + deadRoom(nil)
			}
		}
	}
	if len(list) == 0 {
		return
	}
	g.busy = true
	w.e.readBurials(list, record.DeadMaxAttempts, &buryOp{list: list})
}

// burialOf finds what is needed to move a message, or puts it off.
func (w *writer) burialOf(who pop.Dying, size int) (burial, bool) {
	group := w.views.groups.Get(who.Key.Group)
	b := burial{who: who, topic: w.topics.byID[who.Key.Topic]}
	if group == nil || b.topic == nil { // deleted: the table forgets it as well
		w.views.pop.Postpone(who, w.lease+blockedPause)
		return b, false
	}
	b.to = deadPrefix + group.Name
	if w.wantTopic(b.to) == nil {
		w.views.pop.Park(who)
		w.graves.lookAgain(w.lease + missingPause)
		return b, false
	}
	err := b.find(w)
	if err != nil {
		w.queueDamaged(b.topic, err)
	}
	if err != nil || !w.hasSpace(space.Broker, size+int(b.size)+deadRoom(nil)) {
		w.views.pop.Postpone(who, w.lease+blockedPause)
		return b, false
	}
	return b, true
}

// exhume looks again at what waits for a dead-letter topic.
func (w *writer) exhume() {
	w.graves.again = 0
	w.views.pop.Unpark()
	wait := w.graves.wait
	w.graves.wait = nil
	for _, o := range wait {
		o.start(w)
	}
}

// lookAgain sets when what waits for a topic is looked at again.
func (g *graves) lookAgain(at int64) {
	if g.again == 0 || at < g.again {
		g.again = at
	}
}

// nextBurial is when bury has something to do, on the lease clock, ms.
func (w *writer) nextBurial() (int64, bool) {
	if w.views.pop.HasDying() && !w.graves.busy {
		return w.lease, true
	}
	return w.graves.again, w.graves.again != 0
}

// readBurials reads messages on a goroutine of its own and then hands over o, which writes them.
func (e *Engine) readBurials(list []burial, reason record.DeadReason, o op) {
	e.reads.Go(func() {
		e.cold <- struct{}{}
		for i := range list {
			list[i].read(e, reason)
		}
		<-e.cold
		e.submitOwn(o)
	})
}

// releaseBurials lets go of what was read.
func releaseBurials(list []burial) {
	for i := range list {
		if list[i].err == nil {
			list[i].ref.Release()
		}
	}
}

// buryOp moves messages that have used up their attempts.
type buryOp struct {
	waiter
	list []burial
}

func (o *buryOp) bytes() int { return 1 }

func (o *buryOp) finish(*writer, error) { releaseBurials(o.list) }

func (o *buryOp) run(w *writer) {
	w.graves.busy = false
	for i := range o.list {
		b := &o.list[i]
		switch {
		case !w.views.pop.IsTaken(b.who): // acked, or leased anew
		case gone(b.err):
			w.acks.add(w, b.who.Key, b.who.Offset)
			w.e.counts.Gone.Add(1)
		case mqerr.Is(b.err, mqerr.Corrupt): // there is nothing to move, and what waits for its end must go on
			w.e.damaged(leased{queue: b.who.Key.Queue, offset: b.who.Offset, pos: b.pos}, b.err, true)
			w.acks.add(w, b.who.Key, b.who.Offset)
		case b.err != nil:
			w.e.damaged(leased{queue: b.who.Key.Queue, offset: b.who.Offset, pos: b.pos}, b.err, false)
			w.views.pop.Postpone(b.who, w.lease+unreadPause.Milliseconds())
		case !w.hasSpace(space.Broker, record.DeadSize(&b.rec)+messageBytes):
			w.views.pop.Postpone(b.who, w.lease+blockedPause)
		case !b.write(w):
			w.views.pop.Park(b.who)
			w.graves.lookAgain(w.lease + missingPause)
		default:
			w.e.counts.DeadAttempts.Add(1)
			w.graves.warn(w, b)
		}
	}
}

// warn logs the first dead letter of a group, then one a minute at most.
func (g *graves) warn(w *writer, b *burial) {
	id := b.who.Key.Group
	if last, was := g.warned[id]; was && w.lease < last+warnPause {
		return
	}
	for old, at := range g.warned {
		if w.lease >= at+warnPause {
			delete(g.warned, old)
		}
	}
	g.warned[id] = w.lease
	w.e.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "dead letter: a message was moved to the dead-letter topic of its consumer group; see perigee dlq show",
		slog.String("group", groupName(w.views.groups.Get(id))), slog.String("topic", b.topic.def.Name), slog.String("message_id", string(b.rec.Msg.ID)),
		slog.String("reason", reasonNames[b.rec.Reason]), slog.Int("attempts", int(b.rec.Attempts)))
}

func groupName(g *group.Definition) string {
	if g == nil {
		return ""
	}
	return g.Name
}

// errNoDeadTopic answers a forward whose dead-letter topic did not come into being in time.
func errNoDeadTopic(name string) error {
	return mqerr.New(mqerr.Unavailable, "dead-letter topic %s does not exist yet: the controller was asked for it, try again", name)
}
