package engine

import (
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// sendOp stores the messages of one request next to each other in the log, all or nothing; those whose
// queue is for the broker to choose in one queue, if their topic has no levels.
type sendOp struct {
	waiter
	req    *brokerapi.SendRequest
	done   func(*brokerapi.SendReply, error)
	reply  brokerapi.SendReply
	err    error
	copies copies
}

func (o *sendOp) bytes() int {
	n := 64
	for i := range o.req.Messages {
		m := &o.req.Messages[i]
		n += messageBytes + len(m.ID) + len(m.Body) + len(m.User) + len(m.Sys)
	}
	return n
}

// messageBytes is what a message takes beside its spans, in memory and in the log.
const messageBytes = 256

func (o *sendOp) finish(_ *writer, err error) { respond(o.done, &o.reply, err, o.err) }

func (o *sendOp) run(w *writer) {
	t, err := w.sendable(o.req, o.bytes())
	if err != nil {
		o.err = err
		return
	}
	if o.req.Messages[0].Type == brokerapi.Transaction {
		o.runHalf(w, t)
		return
	}
	if o.err = w.recognised(t, o.req.Age); o.err != nil {
		return
	}
	o.reply.Results = make([]brokerapi.SendResult, len(o.req.Messages))
	before, known := o.duplicates(w, t)
	if !known {
		o.aside = o.readCopies
		return
	}
	o.store(w, t, before)
}

// store makes records of the messages that were not stored before, all or nothing. before is how many were.
func (o *sendOp) store(w *writer, t *topicState, before int) {
	rs, twin, last := o.reply.Results, o.within(w, t), -1
	for i := range rs {
		if !rs[i].Duplicate && (twin == nil || twin[i] < 0) {
			last = i
		}
	}
	o.end, o.sync = w.batch.End(), t.sync
	w.e.counts.Duplicates.Add(int64(before))
	if last < 0 {
		return
	}
	if o.err = o.fits(w, t); o.err != nil {
		return
	}
	place := placer{w: w, t: t, chosen: -1}
	if name := o.req.Messages[0].Lite; name != "" {
		var err error
		if place.chosen, err = w.liteQueue(t, name, o.bytes()); err != nil {
			o.err = err
			return
		}
	}
	n := int64(0)
	for i := range o.req.Messages {
		in := &o.req.Messages[i]
		switch {
		case rs[i].Duplicate:
			continue
		case twin != nil && twin[i] >= 0:
			first := &o.req.Messages[twin[i]]
			rs[i] = rs[twin[i]]
			rs[i].Duplicate, rs[i].DeliverAt = true, first.DeliverAt
			w.e.counts.Duplicates.Add(1)
			continue
		}
		n++
		q, off := record.QueueID(in.Queue), record.QueueOffset(-1)
		if w.delayed(in) { // it has no place in a queue yet
			w.e.counts.Delayed.Add(1)
		} else {
			q = place.queue(in)
			state := t.queue(q)
			off = state.next
			state.next++
			state.note(in.GroupHash)
		}
		flags := record.FlagMore
		if i == last {
			flags = 0
		}
		m := stored(t.def.ID, q, off, in)
		pos, body := w.batch.Begin(record.Header{Type: record.TypeMsg, Flags: flags, Epoch: w.epoch, Time: w.stamp}, record.MsgSize(&m))
		record.PutMsg(body, &m)
		size := w.batch.Seal()
		if err := w.views.applySent(pos, size, w.stamp, &m); err != nil {
			w.broken(err)
		}
		rs[i] = brokerapi.SendResult{Queue: brokerapi.QueueID(q), Offset: brokerapi.QueueOffset(off), Pos: brokerapi.LogPos(pos), StoreTime: w.stamp}
		w.e.counts.SentBytes.Add(int64(size))
		t.in.add(int64(size))
	}
	w.e.counts.Sent.Add(n)
	w.views.stamp = w.stamp
	o.end, o.sync = w.batch.End(), t.sync
	o.hide(w, t)
}

// hide lets the messages show once the request is stored.
func (o *sendOp) hide(w *writer, t *topicState) {
	rs := o.reply.Results
	for i := range rs {
		if q := rs[i].Queue; rs[i].Offset >= 0 && !rs[i].Duplicate && (i == len(rs)-1 || rs[i+1].Queue != q || rs[i+1].Offset < 0 || rs[i+1].Duplicate) {
			w.topics.hide(t, record.QueueID(q), t.queue(record.QueueID(q)).next, o.end)
		}
	}
}

// stored is m as a record.
func stored(t record.TopicID, q record.QueueID, off record.QueueOffset, m *brokerapi.Message) record.Msg {
	return record.Msg{
		Topic: t, Queue: q, Offset: off,
		Type: record.MsgType(m.Type), TagHash: m.TagHash, GroupHash: m.GroupHash, DeliverAt: m.DeliverAt, Digest: m.Digest,
		ID: m.ID, User: m.User, Sys: m.Sys, Body: m.Body,
	}
}

// sendable finds the topic of a request and tells why it cannot be stored here.
func (w *writer) sendable(req *brokerapi.SendRequest, bytes int) (*topicState, error) {
	if err := w.current(&req.Head); err != nil {
		return nil, err
	}
	t, err := w.topicOf(req.Topic)
	if err != nil {
		return nil, err
	}
	if len(req.Messages) == 0 {
		return nil, mqerr.New(mqerr.Invalid, "a send without messages")
	}
	if err := w.savedEnough(); err != nil {
		return nil, err
	}
	if !w.hasSpace(space.Producer, bytes) {
		return nil, w.noSpace(space.Producer)
	}
	if err := liteSend(req.Messages); err != nil {
		return nil, err
	}
	limit := w.e.log.MaxBody()
	for i := range req.Messages {
		m := &req.Messages[i]
		switch q := m.Queue; {
		case q != brokerapi.AnyQueue && (q < 0 || int(q) >= len(t.queues)):
			return nil, mqerr.New(mqerr.Invalid, "topic %s has %d queues here, there is no queue %d", t.def.Name, len(t.queues), q)
		case m.Type == brokerapi.Transaction && halfOnly(t, req) != nil:
			return nil, halfOnly(t, req)
		case len(m.ID) == 0 || len(m.ID) > 65535:
			return nil, mqerr.New(mqerr.Invalid, "a message id of %d bytes", len(m.ID))
		}
		r := stored(0, 0, 0, m)
		if n := record.MsgSize(&r) + deadRoom(m.ID); n > limit {
			return nil, mqerr.New(mqerr.Invalid, "a message of %d bytes does not fit a log segment, at most %d do: raise the segment size", n, limit)
		}
	}
	return t, nil
}

// current refuses a request whose time is over or that comes from another epoch's future.
func (w *writer) current(h *brokerapi.Head) error {
	if h.Epoch > brokerapi.Epoch(w.epoch) {
		return mqerr.New(mqerr.Fenced, "the broker leads epoch %d, epoch %d has begun elsewhere", w.epoch, h.Epoch)
	}
	if !h.Deadline.IsZero() && h.Deadline.Before(w.now) {
		return mqerr.New(mqerr.Timeout, "the request's deadline passed while it waited in the broker")
	}
	return nil
}
