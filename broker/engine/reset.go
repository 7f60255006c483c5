package engine

import (
	"context"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// Reset moves a group in all queues of a topic, in one record, and tells what that did to each queue; a
// dry run only tells. It holds up the writer for as long as giving up the leases takes.
func (s *session) Reset(ctx context.Context, req *brokerapi.ResetRequest) (*brokerapi.ResetReply, error) {
	if req.To < brokerapi.ResetBegin || req.To > brokerapi.ResetSkip || req.Skip < 0 {
		return nil, mqerr.New(mqerr.Invalid, "a reset of kind %d that skips %d messages: the kinds are 1 to 4, and it skips 0 or more", req.To, req.Skip)
	}
	found, err := s.seek(ctx, req)
	if err == nil {
		err = s.e.caughtUp(ctx)
	}
	if err != nil {
		return nil, err
	}
	var reply brokerapi.ResetReply
	var failed error
	err = s.call(ctx, func(w *writer) {
		t, g, err := w.subscription(&brokerapi.Head{}, req.Topic, req.Group, offsetsMax*offsetBytes)
		if err != nil {
			failed = err
			return
		}
		if isLite(t, g) {
			failed = mqerr.New(mqerr.Unsupported, "consumer group %s reads lite topics of %s: it cannot be moved as a whole", g.Name, t.def.Name)
			return
		}
		w.catchUp()
		for q := range t.queues {
			var at record.QueueOffset
			if q < len(found) {
				at = found[q]
			} else {
				at = t.queues[q].visible // the queue is new, and so are its messages: it was empty when the call came
			}
			reply.Queues = append(reply.Queues, w.resetQueue(t, g, record.QueueID(q), at, req))
		}
		if !req.DryRun {
			w.reset(t, g, reply.Queues)
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	return &reply, nil
}

// seek finds where the messages of a time begin, queue by queue, outside the writer. What is stored
// meanwhile is newer, so the answer stays right.
func (s *session) seek(ctx context.Context, req *brokerapi.ResetRequest) ([]record.QueueOffset, error) {
	if req.To != brokerapi.ResetTime {
		return nil, nil
	}
	n := 0
	var failed error
	err := s.call(ctx, func(w *writer) {
		var t *topicState
		if t, failed = w.topicOf(req.Topic); failed == nil {
			n = len(t.queues)
		}
	})
	if err == nil {
		err = failed
	}
	found := make([]record.QueueOffset, n)
	for q := range found {
		if err == nil {
			found[q], err = s.e.views.queues.SeekTime(queue.Key{Topic: record.TopicID(req.Topic), Queue: record.QueueID(q)}, req.TimeMS)
		}
	}
	return found, err
}

// resetQueue says where a reset moves a group in one queue, and what that does; at is the first message of
// the time that was asked for.
func (w *writer) resetQueue(t *topicState, g *group.Definition, q record.QueueID, at record.QueueOffset, req *brokerapi.ResetRequest) brokerapi.ResetQueue {
	k := pop.Key{Group: g.ID, Topic: t.def.ID, Queue: q}
	first, _ := w.views.queues.Bounds(queue.Key{Topic: t.def.ID, Queue: q})
	end := t.queues[q].visible
	s := w.views.pop.Stats(k)
	if !w.views.pop.Started(k) {
		s.Next = w.startOf(t, g, q)
		s.Floor = s.Next
	}
	var to record.QueueOffset
	switch req.To {
	case brokerapi.ResetBegin:
		to = first
	case brokerapi.ResetEnd:
		to = end
	case brokerapi.ResetTime:
		to = at
	case brokerapi.ResetSkip:
		to = s.Floor + record.QueueOffset(min(req.Skip, int64(max(0, end-s.Floor))))
	}
	to = max(first, min(to, end))
	undone := w.views.pop.Undone(k, 0)
	above := w.views.pop.Undone(k, to)
	return brokerapi.ResetQueue{
		Queue: brokerapi.QueueID(q), From: brokerapi.QueueOffset(s.Floor), To: brokerapi.QueueOffset(to),
		InFlight: s.InFlight,
		Again:    max(0, int64(s.Next-to)-above),
		Dropped:  undone - above + max(0, int64(to-max(s.Next, first))),
	}
}

// reset records where a group goes on, and lets who waits for messages hear of it. Acks and positions of
// this turn come first: they must not change places with it.
func (w *writer) reset(t *topicState, g *group.Definition, queues []brokerapi.ResetQueue) {
	w.flushAcks()
	w.flushOffsets()
	var items []record.OffsetItem
	put := func() {
		if len(items) == 0 {
			return
		}
		w.putOffsets(items)
		if err := w.views.applyOffsets(&record.Offsets{Items: items}); err != nil {
			w.broken(err)
		}
		items = items[:0]
	}
	for i := range queues {
		items = append(items, record.OffsetItem{
			Kind: record.OffsetReset, Topic: t.def.ID, Group: g.ID, Queue: record.QueueID(queues[i].Queue), Offset: record.QueueOffset(queues[i].To),
		})
		if len(items) == offsetsMax {
			put()
		}
	}
	put()
	w.ready.note(t.sub(g.ID))
	w.e.counts.Resets.Add(1)
}
