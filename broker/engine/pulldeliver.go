package engine

import (
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/commitlog"
)

// finish answers a pull: at once if all messages are mapped, else on a goroutine that may wait for the
// disk.
func (o *pullOp) finish(w *writer, err error) {
	if err == nil {
		err = o.err
	}
	if err != nil {
		o.done(nil, err)
		return
	}
	held := o.held
	o.held = 0 // it may come back, and then as one of the engine's own
	if len(o.got) == 0 {
		o.answer(w.e, nil, nil)
		return
	}
	e := w.e
	if w.atHand(o.got) {
		o.deliver(e)
		return
	}
	w.readAside(held, func() { o.deliver(e) })
}

// deliver reads the messages and answers. If none of them fits after all, the pull goes on behind them.
func (o *pullOp) deliver(e *Engine) {
	refs := make([]commitlog.Ref, 0, len(o.got))
	out := make([]brokerapi.Delivery, 0, len(o.got))
	for _, l := range o.got {
		if len(out) == o.most() {
			o.at = l.offset // there are more than asked for
			break
		}
		rec, ref, err := e.read(l.pos, l.size)
		if gone(err) {
			e.counts.Gone.Add(1)
			continue
		}
		if err != nil {
			e.damaged(l, err, true)
			continue
		}
		m, err := readable(o.givenUp, &rec)
		if err != nil {
			ref.Release()
			e.damaged(l, err, true)
			continue
		}
		if !e.fits(&o.req.Filter, &m) {
			ref.Release()
			continue
		}
		refs = append(refs, ref)
		out = append(out, brokerapi.Delivery{
			Queue: brokerapi.QueueID(l.queue), Offset: brokerapi.QueueOffset(l.offset), Attempt: 1, Type: brokerapi.MessageType(m.Type),
			StoreTime: l.at, DeliverAt: dueOf(&m), Digest: m.Digest, User: m.User, Sys: m.Sys, Body: m.Body,
		})
	}
	if len(out) == 0 {
		o.got = nil
		e.submitOwn(o)
		return
	}
	o.answer(e, out, func() {
		for _, r := range refs {
			r.Release()
		}
	})
}

func (o *pullOp) answer(e *Engine, out []brokerapi.Delivery, release func()) {
	e.counts.Pulls.Add(1)
	e.counts.Pulled.Add(int64(len(out)))
	reply := brokerapi.NewPullReply(out, brokerapi.QueueOffset(o.at), release)
	reply.Min, reply.Max = brokerapi.QueueOffset(o.min), brokerapi.QueueOffset(o.max)
	o.done(reply, nil)
}
