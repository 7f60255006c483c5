package engine

import (
	"context"
	"slices"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/offset"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// A message group lives in the queue that its hash chooses from all, so a topic gets more queues only when
// nothing of any group is left to do. Two things in the definition keep the order: while it says that the
// topic grows, no message with a message group is stored; and the version of its list of queues must be the
// one by which the proxy chose the queue, so that a proxy with an old list stores nothing where no group
// lives any more.

// note takes that a message got the last offset of the queue.
func (q *queueState) note(groupHash uint64) {
	if groupHash != 0 {
		q.grouped = q.next
	}
}

// fits refuses messages of message groups that may have no queue, or another one. What was stored before
// is answered all the same.
func (o *sendOp) fits(w *writer, t *topicState) error {
	if t.def.Growing == 0 && t.def.Layout == o.req.Layout {
		return nil
	}
	for i := range o.req.Messages {
		known := i < len(o.reply.Results) && o.reply.Results[i].Duplicate
		if o.req.Messages[i].GroupHash == 0 || known {
			continue
		}
		w.e.counts.GrowthRefused.Add(1)
		if t.def.Growing != 0 {
			return growing(t)
		}
		return mqerr.New(mqerr.Exhausted, "topic %s has got more queues, and not everybody knows them yet (version %d here, %d at the proxy): retry after a pause",
			t.def.Name, t.def.Layout, o.req.Layout)
	}
	return nil
}

func growing(t *topicState) error {
	return mqerr.New(mqerr.Exhausted, "topic %s is about to get more queues and takes no messages with a message group until those before are done: retry after a pause", t.def.Name)
}

// drainOnce is how many groups one turn of the writer looks at for a drain.
const drainOnce = 128

// Drain tells what is left of messages with a message group on a topic that grows. What it tells is
// durable: after a crash there is no more.
func (s *session) Drain(ctx context.Context, req *brokerapi.DrainRequest) (*brokerapi.DrainReply, error) {
	out := &brokerapi.DrainReply{}
	var ids []record.GroupID
	if err := s.drain(ctx, req, func(w *writer, t *topicState) {
		out.Growing = true
		for q := range t.queues {
			out.Storing += int64(t.queues[q].next - t.queues[q].visible)
		}
		out.Delayed, out.Halves = int64(w.views.timers.Grouped(t.def.ID)), int64(w.views.txns.Grouped(t.def.ID))
		w.views.groups.Each(func(g *group.Definition) { ids = append(ids, g.ID) })
	}); err != nil {
		return nil, err
	}
	slices.Sort(ids)
	for _, some := range slices.Collect(slices.Chunk(ids, drainOnce)) {
		there := false
		if err := s.drain(ctx, req, func(w *writer, t *topicState) {
			there = true
			for _, id := range some {
				if g := w.views.groups.Get(id); g != nil && (w.reads(t, g) || slices.Contains(req.Groups, brokerapi.GroupID(id))) {
					out.Groups = append(out.Groups, brokerapi.DrainGroup{Group: brokerapi.GroupID(id), Undone: w.undoneGrouped(t, g)})
				}
			}
		}); err != nil {
			return nil, err
		}
		if !there {
			return &brokerapi.DrainReply{}, nil // it was given up meanwhile
		}
	}
	return out, nil
}

// drain runs do on the writer if the topic grows as asked, and waits until everything up to then is
// durable. Acks and verdicts of the turn come first: a crash must not take back what do has seen.
func (s *session) drain(ctx context.Context, req *brokerapi.DrainRequest, do func(*writer, *topicState)) error {
	if s.gone.Load() {
		return errGone
	}
	var failed error
	err := s.e.ask(ctx, &callOp{all: true, do: func(w *writer) {
		t, err := w.topicOf(req.Topic)
		if err != nil {
			failed = err
			return
		}
		w.flushAcks()
		w.flushEndings()
		w.flushOffsets()
		if t.def.Growing != 0 && t.def.Growing == req.Began {
			do(w, t)
		}
	}})
	if err != nil {
		return err // the writer may still be at it
	}
	return failed
}

// reads tells whether a group has read from a topic, by receiving or by pulling.
func (w *writer) reads(t *topicState, g *group.Definition) bool {
	for q := range t.queues {
		id := record.QueueID(q)
		if w.views.pop.Started(pop.Key{Group: g.ID, Topic: t.def.ID, Queue: id}) {
			return true
		}
		if _, ok := w.views.pulled.Get(offset.Key{Group: g.ID, Topic: t.def.ID, Queue: id}); ok {
			return true
		}
	}
	return false
}

// undoneGrouped counts what a group has left to do before it has passed the last message with a message
// group in each queue: messages behind that may be among it.
func (w *writer) undoneGrouped(t *topicState, g *group.Definition) int64 {
	n := int64(0)
	for q := range t.queues {
		id, end := record.QueueID(q), t.queues[q].grouped
		k := pop.Key{Group: g.ID, Topic: t.def.ID, Queue: id}
		if w.views.pop.Started(k) {
			if s := w.views.pop.Stats(k); s.Floor < end {
				n += s.InFlight + s.Ready + s.Waiting + max(0, int64(end-s.Next))
			}
			continue
		}
		at, ok := w.views.pulled.Get(offset.Key{Group: g.ID, Topic: t.def.ID, Queue: id})
		if !ok {
			at = w.startOf(t, g, id)
		}
		n += max(0, int64(end-at))
	}
	return n
}
