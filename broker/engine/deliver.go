package engine

import (
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// finish answers a pop: at once if all messages are mapped, else on a goroutine that may wait for the
// disk.
func (o *popOp) finish(w *writer, err error) {
	if err == nil {
		err = o.err
	}
	if err != nil {
		o.done(nil, err)
		return
	}
	if len(o.got) == 0 {
		reply := brokerapi.NewPopReply(nil, nil)
		reply.More, reply.Full = o.more, o.full
		o.done(reply, nil)
		return
	}
	e := w.e
	if w.atHand(o.got) {
		o.deliver(e)
		return
	}
	w.readAside(o.held, func() { o.deliver(e) })
}

// What the writer reads by itself: replies of at most atHandBytes whose messages this process wrote
// itself, the last lately bytes of the log at most.
const (
	atHandBytes = 256 << 10
	lately      = 64 << 20
)

// atHand tells whether the writer may read the messages itself. It is mapped memory: where that is not
// in the page cache, the writer would stand still and everybody with it.
func (w *writer) atHand(got []leased) bool {
	from := max(w.began, w.e.log.Written()-lately)
	size := 0
	for i := range got {
		l := &got[i]
		size += int(l.size)
		if l.pos < from || size > atHandBytes || !w.e.log.Hot(l.pos) {
			return false
		}
	}
	return true
}

// deliver reads the messages and answers. One that retention has deleted meanwhile is done for the group. A message
// whose bytes are damaged is left out and reported, and left alone for the longest delay that the group has: it is
// not done, and a receive that is repeated does not meet it again. It is done if the operator chose to go on without
// what is damaged, or if others wait for it to end: those of its message group (leftOutOp).
func (o *popOp) deliver(e *Engine) {
	refs := make([]commitlog.Ref, 0, len(o.got))
	out := make([]brokerapi.Delivery, 0, len(o.got))
	var lost []brokerapi.Handle
	left := leftOutOp{of: o}
	for _, l := range o.got {
		rec, ref, err := e.read(l.pos, l.size)
		if gone(err) {
			e.counts.Gone.Add(1)
			lost = append(lost, l.handle(e.writer.epoch))
			continue
		}
		var m record.Msg
		if err == nil {
			if m, err = readable(o.orig, &rec); err != nil {
				ref.Release()
			}
		}
		if err != nil {
			ends := !o.told && (e.o.SkipDamage || o.order) && mqerr.Is(err, mqerr.Corrupt)
			if e.damaged(l, err, ends); ends {
				left.over = append(left.over, l.handle(e.writer.epoch))
			} else {
				left.unread = append(left.unread, l.handle(e.writer.epoch))
			}
			continue
		}
		if !tagged(&o.req.Filter, m.Sys) { // equal hashes, different tags
			ref.Release()
			left.over = append(left.over, l.handle(e.writer.epoch))
			continue
		}
		refs = append(refs, ref)
		out = append(out, brokerapi.Delivery{
			Queue: brokerapi.QueueID(l.queue), Offset: brokerapi.QueueOffset(l.offset), Lease: brokerapi.LogPos(l.lease), Epoch: brokerapi.Epoch(e.writer.epoch),
			Attempt: int32(l.attempt), Type: brokerapi.MessageType(m.Type), StoreTime: l.at, DeliverAt: dueOf(&m), Digest: m.Digest,
			User: m.User, Sys: m.Sys, Body: m.Body,
		})
	}
	if len(lost) > 0 {
		e.submitOwn(o.ackOf(lost))
	}
	if !o.told && len(left.over)+len(left.unread) > 0 {
		e.submitOwn(&left)
	}
	reply := brokerapi.NewPopReply(out, func() {
		for _, r := range refs {
			r.Release()
		}
	})
	reply.More, reply.Full = o.more, o.full
	o.done(reply, nil)
}

func (l leased) handle(epoch record.Epoch) brokerapi.Handle {
	return brokerapi.Handle{Queue: brokerapi.QueueID(l.queue), Offset: brokerapi.QueueOffset(l.offset), Lease: brokerapi.LogPos(l.lease), Epoch: brokerapi.Epoch(epoch)}
}
