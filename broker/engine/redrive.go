package engine

import (
	"context"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/broker/redriven"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// redriveMax bounds the messages of one request, redriveBytes what is read for it at a time.
const (
	redriveMax   = 1024
	redriveBytes = 4 << 20
)

// redrive is one request: letters to move, found by the writer, read by the caller, written by the
// writer.
type redrive struct {
	req  *brokerapi.RedriveRequest
	list []letter
	left int64
	next brokerapi.LogPos // behind the last of list
}

// A place to go on at, behind an offset of a queue: offsets of one queue are looked at in their order, those of the
// next one follow. Positions in the log would not do: a transaction that was given up late may be older than
// those before it in its queue.
const placeBits = 46 // of the offset

func placeBehind(q record.QueueID, off record.QueueOffset) brokerapi.LogPos {
	return brokerapi.LogPos(int64(q)<<placeBits | int64(off+1))
}

// from is the first offset of a queue that is behind after.
func from(after brokerapi.LogPos, q record.QueueID) record.QueueOffset {
	switch at := record.QueueID(after >> placeBits); {
	case after <= 0 || q > at:
		return 0
	case q < at:
		return math.MaxInt64
	}
	return record.QueueOffset(after & (1<<placeBits - 1))
}

// letter is one dead letter.
type letter struct {
	key queue.Key
	off record.QueueOffset
	b   burial
}

// Redrive moves dead letters back to where they came from, or to another topic, oldest first: one record
// is the copy there and the end of the letter for everybody.
func (s *session) Redrive(ctx context.Context, req *brokerapi.RedriveRequest) (*brokerapi.RedriveReply, error) {
	if req.Max < 0 || req.Max > redriveMax {
		return nil, mqerr.New(mqerr.Invalid, "%d dead letters in one request: 0 to %d", req.Max, redriveMax)
	}
	r := &redrive{req: req}
	var failed error
	if err := s.call(ctx, func(w *writer) { failed = r.find(w) }); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, failed
	}
	reply := &brokerapi.RedriveReply{Left: r.left, Next: r.next}
	if len(r.list) == 0 {
		return reply, nil
	}
	if err := r.read(ctx, s.e); err != nil {
		return nil, err
	}
	defer func() {
		for i := range r.list {
			if r.list[i].b.err == nil {
				r.list[i].b.ref.Release()
			}
		}
	}()
	if _, err := ask(context.WithoutCancel(ctx), s.e, func(done func(struct{}, error)) op {
		return &callOp{do: func(w *writer) { r.write(w, reply) }, done: func(err error) { done(struct{}{}, err) }}
	}); err != nil {
		return nil, err
	}
	return reply, nil
}

// find lists the letters that the request may move, oldest first.
func (r *redrive) find(w *writer) error {
	t, err := w.topicOf(r.req.Dead)
	if err != nil {
		return err
	}
	if r.req.To != 0 {
		if _, err := w.topicOf(r.req.To); err != nil {
			return err
		}
	}
	size := 0
	for q := range t.queues {
		key := queue.Key{Topic: t.def.ID, Queue: record.QueueID(q)}
		moved := redriven.Key{Topic: key.Topic, Queue: key.Queue}
		lo, _ := w.views.queues.Bounds(key)
		hi := t.queues[q].visible
		r.left += max(0, int64(hi-lo)-w.views.redriven.Count(moved, lo, hi))
		lo = max(lo, from(r.req.After, key.Queue))
		for off := w.views.redriven.Next(moved, lo); off < hi; off = w.views.redriven.Next(moved, off+1) {
			if len(r.list) >= r.req.Max || size >= redriveBytes {
				break
			}
			e, err := w.views.queues.At(key, off)
			if err != nil {
				w.queueDamaged(t, err)
				return err
			}
			r.list = append(r.list, letter{key: key, off: off, b: burial{pos: e.Pos, size: e.Size}})
			r.next = placeBehind(key.Queue, off)
			size += int(e.Size)
		}
	}
	return nil
}

// read reads the letters. A place among the readers of cold messages is waited for.
func (r *redrive) read(ctx context.Context, e *Engine) error {
	select {
	case e.cold <- struct{}{}:
	case <-ctx.Done():
		return mqerr.New(mqerr.Timeout, "gave up waiting for the disk: %w", ctx.Err())
	}
	defer func() { <-e.cold }()
	for i := range r.list {
		r.list[i].read(e)
	}
	return nil
}

// read makes the record that moves the letter back, but for its place. What it was stays in it: who gave
// it up, when, after how many deliveries.
func (l *letter) read(e *Engine) {
	rec, ref, err := e.read(l.b.pos, l.b.size)
	if err != nil {
		l.b.err = err
		return
	}
	d := record.Dead{Reason: record.DeadByOperator}
	if rec.Type == record.TypeDead {
		if d, err = record.DecodeDead(rec.Body); err == nil {
			l.b.rec = record.Dead{Attempts: d.Attempts, History: d.History}
			l.b.rec.Msg.Topic, l.b.rec.Msg.Queue = d.Topic, d.Queue // where it came from
		}
	} else if d.Msg, err = messageOf(&rec); err == nil {
		l.b.rec.Msg.Topic, l.b.rec.Msg.Queue = d.Msg.Topic, d.Msg.Queue // a transaction that nobody ended
	}
	if err != nil {
		ref.Release()
		l.b.err = err
		return
	}
	l.b.ref = ref
	from, q := l.b.rec.Msg.Topic, l.b.rec.Msg.Queue
	l.b.rec.Msg = d.Msg
	l.b.rec.Msg.Topic, l.b.rec.Msg.Queue = from, q
	l.b.rec.Msg.Sys = withoutOrigin(d.Msg.Sys)
	l.b.rec.Msg.DeliverAt = 0
	l.b.rec.Topic, l.b.rec.Queue, l.b.rec.Offset = l.key.Topic, l.key.Queue, l.off
	l.b.rec.Reason = record.DeadByOperator
}

// write moves what was read, and says what could not be moved.
func (r *redrive) write(w *writer, reply *brokerapi.RedriveReply) {
	for i := range r.list {
		l := &r.list[i]
		if err := l.write(w, record.TopicID(r.req.To)); err != nil {
			reply.Failed = append(reply.Failed, fmt.Sprintf("queue %d offset %d: %v", l.key.Queue, l.off, err))
			continue
		}
		reply.Redriven++
		reply.Left--
		w.e.counts.Redriven.Add(1)
	}
}

func (l *letter) write(w *writer, to record.TopicID) error {
	if gone(l.b.err) {
		return l.b.err
	}
	if l.b.err != nil {
		w.e.damaged(leased{queue: l.key.Queue, offset: l.off, pos: l.b.pos}, l.b.err, false)
		return l.b.err
	}
	if w.topics.byID[l.key.Topic] == nil || w.views.redriven.Has(redriven.Key{Topic: l.key.Topic, Queue: l.key.Queue}, l.off) {
		return mqerr.New(mqerr.NotFound, "somebody else has moved it meanwhile")
	}
	d := &l.b.rec
	if to != 0 {
		d.Msg.Topic = to
	}
	t := w.topics.byID[d.Msg.Topic]
	switch {
	case d.Msg.Topic == l.key.Topic:
		return mqerr.New(mqerr.Invalid, "message %s was sent to the dead-letter topic itself: say where it should go", d.Msg.ID)
	case t == nil:
		return mqerr.New(mqerr.TopicNotFound, "message %s came from topic %d, which does not exist here any more: say where it should go", d.Msg.ID, d.Msg.Topic)
	case t.def.Growing != 0 && d.Msg.GroupHash != 0:
		return growing(t)
	case !w.hasSpace(space.Producer, record.DeadSize(d)+messageBytes):
		return w.noSpace(space.Producer)
	}
	if to == 0 && lite.Is(d.Msg.Queue) {
		q := t.queue(d.Msg.Queue)
		if q == nil {
			return mqerr.New(mqerr.NotFound, "message %s came from a lite topic of %s that does not exist any more: say where it should go", d.Msg.ID, t.def.Name)
		}
		d.Msg.Offset = q.next
		w.appendDead(d, t, q)
		return nil
	}
	q := d.Msg.Queue // its own: what it came from keeps its queues, and with them its order
	if to != 0 || q < 0 || int(q) >= len(t.queues) {
		var err error
		if q, err = w.homeOf(t, &d.Msg); err != nil {
			return err
		}
	}
	state := t.queue(q)
	d.Msg.Queue, d.Msg.Offset = q, state.next
	w.appendDead(d, t, state)
	return nil
}

// movedOn tells whether a message is a dead letter that was moved on: it is done for everybody.
func (w *writer) movedOn(k queue.Key, off record.QueueOffset) bool {
	return !w.views.redriven.Empty() && w.views.redriven.Has(redriven.Key{Topic: k.Topic, Queue: k.Queue}, off)
}

// homeOf is the queue for a message that has none in a topic yet: of its lite topic, its level, its message
// group, or the next in turn.
func (w *writer) homeOf(t *topicState, m *record.Msg) (record.QueueID, error) {
	priority, name := placedBy(m.Sys)
	switch {
	case t.def.Type == topic.Lite && (name == "" || len(name) > lite.NameMax):
		return 0, mqerr.New(mqerr.Invalid, "message %s has no lite topic, and topic %s takes no others: say another one", m.ID, t.def.Name)
	case t.def.Type == topic.Lite:
		return w.liteQueue(t, name, record.MsgSize(m)+deadRoom(m.ID))
	case t.leveled() || m.GroupHash == 0:
		return w.queueFor(t, priority), nil
	}
	return record.QueueID(m.GroupHash % uint64(len(t.queues))), nil
}

// Numbers of the fields of the public protocol's SystemProperties that tell where a message belongs.
const (
	liteTopicField = 21
	priorityField  = 22
)

// placedBy finds the priority and the lite topic in encoded SystemProperties. The bytes were checked when the
// message came in: anything malformed ends the search.
func placedBy(sys []byte) (priority int32, lite string) {
	for len(sys) > 0 {
		num, typ, n := protowire.ConsumeTag(sys)
		m := -1
		if n > 0 {
			m = protowire.ConsumeFieldValue(num, typ, sys[n:])
		}
		if m < 0 {
			break
		}
		switch value := sys[n : n+m]; {
		case num == priorityField && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			priority = int32(v)
		case num == liteTopicField && typ == protowire.BytesType:
			v, _ := protowire.ConsumeBytes(value)
			lite = string(v)
		}
		sys = sys[n+m:]
	}
	return priority, lite
}
