package engine

import (
	"time"

	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

// Forward moves leased messages to the dead-letter topic of their group.
func (s *session) Forward(req *brokerapi.ForwardRequest, done func(*brokerapi.ForwardReply, error)) {
	if s.gone.Load() {
		done(nil, errGone)
		return
	}
	s.e.submit(&forwardOp{req: req, done: done})
}

// forwardOp begins a forward: it finds the messages, waits for the dead-letter topic if that is missing,
// and has the messages read beside the writer. buriedOp writes them and answers.
type forwardOp struct {
	waiter
	req   *brokerapi.ForwardRequest
	done  func(*brokerapi.ForwardReply, error)
	reply brokerapi.ForwardReply
	err   error
	flush bool // the topic's records are durable before they are answered
	list  []burial
	to    string // name of the dead-letter topic
	until int64  // when it no longer waits for the topic, lease clock, ms
}

// topicPatience is how long a forward without a deadline waits for the dead-letter topic; one with a
// deadline is answered topicMargin before it.
const (
	topicPatience = 2 * time.Second
	topicMargin   = 200 * time.Millisecond
)

func (o *forwardOp) bytes() int { return 64 + 32*len(o.req.Handles) }

func (o *forwardOp) run(w *writer) {
	err := w.handed(o.req.Handles)
	if err != nil {
		o.err = err
		return
	}
	t, g, err := w.subscription(&o.req.Head, o.req.Topic, o.req.Group, o.bytes())
	if err != nil {
		o.err = err
		return
	}
	o.to, o.flush = deadPrefix+g.Name, t.sync
	wait := topicPatience
	if d := o.req.Deadline; !d.IsZero() {
		wait = min(wait, d.Sub(w.now)-topicMargin)
	}
	o.until = w.lease + wait.Milliseconds()
	o.reply.Errors = make([]error, len(o.req.Handles))
	for i, h := range o.req.Handles {
		k := pop.Key{Group: g.ID, Topic: t.def.ID, Queue: record.QueueID(h.Queue)}
		b := burial{who: pop.Dying{Key: k, Offset: record.QueueOffset(h.Offset), Lease: record.Pos(h.Lease)}, topic: t, to: o.to, handle: i}
		switch w.check(t, k, h) {
		case pop.Current:
			b.who.Attempt = w.views.pop.Attempt(k, b.who.Offset)
			if err := b.find(w); err != nil {
				w.queueDamaged(t, err)
				o.reply.Errors[i] = err
				continue
			}
			o.list = append(o.list, b)
		case pop.Done: // its record may be on its way to the disk
		default:
			o.reply.Errors[i] = staleHandle
			w.e.counts.Stale.Add(1)
		}
	}
	if len(o.list) == 0 {
		o.end, o.sync = w.acks.end(w), o.flush
	}
}

// finish answers, or goes on: the request counts until it is answered.
func (o *forwardOp) finish(w *writer, err error) {
	if err == nil {
		err = o.err
	}
	switch {
	case err != nil:
		o.done(nil, err)
	case len(o.list) == 0:
		o.done(&o.reply, nil)
	default:
		if o.held > 0 {
			w.off.n--
			w.off.bytes -= o.held
		}
		o.start(w)
	}
}

// start has the messages read, or waits for the topic that they go to.
func (o *forwardOp) start(w *writer) {
	switch {
	case w.wantTopic(o.to) != nil:
		w.e.readBurials(o.list, record.DeadByClient, &buriedOp{of: o, e: w.e})
	case w.lease >= o.until:
		o.answer(w.e, errNoDeadTopic(o.to))
	default:
		w.graves.wait = append(w.graves.wait, o)
		w.graves.lookAgain(min(o.until, w.lease+missingPause))
	}
}

// answer is the end of a request that went on.
func (o *forwardOp) answer(e *Engine, err error) {
	if err != nil {
		o.done(nil, err)
	} else {
		o.done(&o.reply, nil)
	}
	if o.held > 0 {
		e.inbox.free(1, o.held)
	}
}

// endForwards answers the forwards that wait for a topic, at the end of the engine.
func (w *writer) endForwards(err error) {
	for _, o := range w.graves.wait {
		o.answer(w.e, err)
	}
	w.graves.wait = nil
}

// buriedOp writes the messages of a forward.
type buriedOp struct {
	waiter
	of *forwardOp
	e  *Engine
}

func (o *buriedOp) bytes() int { return 1 }

func (o *buriedOp) finish(_ *writer, err error) {
	releaseBurials(o.of.list)
	o.of.answer(o.e, err)
}

func (o *buriedOp) run(w *writer) {
	f := o.of
	for i := range f.list {
		b := &f.list[i]
		switch w.views.pop.Check(b.who.Key, b.who.Offset, b.who.Lease) {
		case pop.Current:
			f.reply.Errors[b.handle] = o.write(w, b)
		case pop.Done: // acked, or forwarded by another request
		default:
			f.reply.Errors[b.handle] = staleHandle
		}
	}
	o.end, o.sync = w.acks.end(w), f.flush
}

func (o *buriedOp) write(w *writer, b *burial) error {
	switch {
	case gone(b.err):
		w.acks.add(w, b.who.Key, b.who.Offset)
		w.e.counts.Gone.Add(1)
		return nil
	case b.err != nil:
		w.e.damaged(leased{queue: b.who.Key.Queue, offset: b.who.Offset, pos: b.pos}, b.err, false)
		return b.err
	case !w.hasSpace(space.Consumer, record.DeadSize(&b.rec)+messageBytes):
		return w.noSpace(space.Consumer)
	case !b.write(w):
		return errNoDeadTopic(b.to)
	}
	w.e.counts.DeadClient.Add(1)
	w.graves.warn(w, b)
	return nil
}
