package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/perigee-mq/perigee/broker/offset"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// applyOffsets takes an OFFSET record.
func (v *views) applyOffsets(o *record.Offsets) error {
	for i := range o.Items {
		it := &o.Items[i]
		if err := v.pulled.Apply(it); err != nil {
			return err
		}
		if it.Kind != record.OffsetReset {
			continue
		}
		if err := v.pop.ApplyReset(pop.Key{Group: it.Group, Topic: it.Topic, Queue: it.Queue}, it.Offset); err != nil {
			return err
		}
	}
	return nil
}

// offsets are the positions that were stored in one turn. They take effect in the table at once and become
// one record at the end of the turn, in which of two for the same queue the later one counts. They
// commute with everything but a reset and the deletion of their topic or group.
type offsets struct{ list []record.OffsetItem }

const (
	// offsetsMax bounds the positions of one record, each of which takes at most offsetBytes there, and of
	// one request.
	offsetsMax  = 8192
	offsetBytes = 32
)

// add stores one position.
func (o *offsets) add(w *writer, it record.OffsetItem) {
	if err := w.views.pulled.Apply(&it); err != nil {
		w.broken(err)
	}
	o.list = append(o.list, it)
	if len(o.list) >= offsetsMax {
		w.flushOffsets()
	}
}

// end is the position that answers wait for: inside the record to come, if there will be one.
func (o *offsets) end(w *writer) record.Pos {
	if len(o.list) == 0 {
		return w.batch.End()
	}
	return w.batch.End() + 1
}

// flushOffsets makes the record of the positions so far.
func (w *writer) flushOffsets() {
	list := w.offsets.list
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(a, b record.OffsetItem) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Queue, b.Queue))
	})
	kept := list[:0]
	for i, it := range list {
		if i+1 < len(list) && pulledKey(&it) == pulledKey(&list[i+1]) {
			continue
		}
		kept = append(kept, it)
	}
	w.putOffsets(kept)
	w.offsets.list = list[:0]
}

func pulledKey(it *record.OffsetItem) offset.Key {
	return offset.Key{Group: it.Group, Topic: it.Topic, Queue: it.Queue}
}

func (w *writer) putOffsets(items []record.OffsetItem) {
	rec := record.Offsets{Items: items}
	w.put(record.TypeOffset, record.OffsetsSize(&rec), func(body []byte) { record.PutOffsets(body, &rec) })
}

// setOffsetsOp stores positions, all of the request or none.
type setOffsetsOp struct {
	waiter
	req  *brokerapi.SetOffsetsRequest
	done func(struct{}, error)
	err  error
}

func (o *setOffsetsOp) bytes() int { return 64 + offsetBytes*len(o.req.Offsets) }

func (o *setOffsetsOp) finish(_ *writer, err error) {
	if err == nil {
		err = o.err
	}
	o.done(struct{}{}, err)
}

func (o *setOffsetsOp) run(w *writer) {
	if n := len(o.req.Offsets); n > offsetsMax {
		o.err = mqerr.New(mqerr.Invalid, "%d positions in one request: at most %d", n, offsetsMax)
		return
	}
	sync := false
	for i := range o.req.Offsets {
		s := &o.req.Offsets[i]
		t, _, err := w.subscription(&brokerapi.Head{}, s.Topic, s.Group, o.bytes())
		if err == nil {
			err = t.holds(s.Queue, s.Offset)
		}
		if err != nil {
			o.err = err
			return
		}
		sync = sync || t.sync
	}
	for _, s := range o.req.Offsets {
		w.offsets.add(w, record.OffsetItem{
			Kind: record.OffsetPull, Topic: record.TopicID(s.Topic), Group: record.GroupID(s.Group), Queue: record.QueueID(s.Queue), Offset: record.QueueOffset(s.Offset),
		})
	}
	w.e.counts.Positions.Add(int64(len(o.req.Offsets)))
	o.end, o.sync = w.offsets.end(w), sync
}

// has says that a topic has no such queue here, if so.
func (t *topicState) has(q brokerapi.QueueID) error {
	if q < 0 || int(q) >= len(t.queues) {
		return mqerr.New(mqerr.NotFound, "topic %s has no queue %d here, only 0 to %d: ask for the route again", t.def.Name, q, len(t.queues)-1)
	}
	return nil
}

// holds refuses an offset that no message of a queue has and that the next one will not get either.
func (t *topicState) holds(q brokerapi.QueueID, off brokerapi.QueueOffset) error {
	if err := t.has(q); err != nil {
		return err
	}
	if end := t.queues[q].visible; off < 0 || record.QueueOffset(off) > end {
		return mqerr.New(mqerr.Invalid, "offset %d of queue %d of topic %s: offsets are 0 to %d, which is behind its last message", off, q, t.def.Name, end)
	}
	return nil
}

// SetOffsets stores positions of pull consumers.
func (s *session) SetOffsets(ctx context.Context, req *brokerapi.SetOffsetsRequest) (*brokerapi.SetOffsetsReply, error) {
	if s.gone.Load() {
		return nil, errGone
	}
	answered := make(chan error, 1)
	s.e.submit(&setOffsetsOp{req: req, done: func(_ struct{}, err error) { answered <- err }})
	select {
	case err := <-answered:
		if err != nil {
			return nil, err
		}
		return &brokerapi.SetOffsetsReply{}, nil
	case <-ctx.Done():
		return nil, mqerr.New(mqerr.UnknownOutcome, "gave up waiting for the broker: %w", ctx.Err())
	}
}

// Offset finds one offset of a queue. A search by time reads the consume queue, outside the writer.
func (s *session) Offset(ctx context.Context, req *brokerapi.OffsetRequest) (*brokerapi.OffsetReply, error) {
	var reply brokerapi.OffsetReply
	var first, end record.QueueOffset
	var failed error
	err := s.call(ctx, func(w *writer) {
		var t *topicState
		if t, failed = w.topicOf(req.Topic); failed != nil {
			return
		}
		if failed = t.has(req.Queue); failed != nil {
			return
		}
		first, _ = w.views.queues.Bounds(queue.Key{Topic: t.def.ID, Queue: record.QueueID(req.Queue)})
		end = t.queues[req.Queue].visible
		if req.Of == brokerapi.OffsetOfGroup {
			reply.Offset, failed = w.position(t, req)
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	switch req.Of {
	case brokerapi.OffsetOfGroup:
	case brokerapi.OffsetBegin:
		reply.Offset = brokerapi.QueueOffset(first)
	case brokerapi.OffsetEnd:
		reply.Offset = brokerapi.QueueOffset(end)
	case brokerapi.OffsetAtTime:
		at, err := s.e.views.queues.SeekTime(queue.Key{Topic: record.TopicID(req.Topic), Queue: record.QueueID(req.Queue)}, req.TimeMS)
		if err != nil {
			return nil, err
		}
		reply.Offset = brokerapi.QueueOffset(min(at, end))
	default:
		return nil, mqerr.New(mqerr.Invalid, "an offset of kind %d is not known", req.Of)
	}
	return &reply, nil
}

// position is where a group stands in a queue.
func (w *writer) position(t *topicState, req *brokerapi.OffsetRequest) (brokerapi.QueueOffset, error) {
	g := w.views.groups.Get(record.GroupID(req.Group))
	if g == nil {
		return 0, mqerr.New(mqerr.GroupNotFound, "group %d does not exist here", req.Group)
	}
	q := record.QueueID(req.Queue)
	if at, stored := w.views.pulled.Get(offset.Key{Group: g.ID, Topic: t.def.ID, Queue: q}); stored {
		return brokerapi.QueueOffset(at), nil
	}
	if k := (pop.Key{Group: g.ID, Topic: t.def.ID, Queue: q}); w.views.pop.Started(k) {
		return brokerapi.QueueOffset(w.views.pop.Stats(k).Floor), nil
	}
	return 0, mqerr.New(mqerr.NotFound, "group %s has no position in queue %d of topic %s: none was stored, and it has received nothing", g.Name, q, t.def.Name)
}
