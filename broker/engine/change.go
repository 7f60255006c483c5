package engine

import (
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// changeOp moves the end of leases: renew, nack, suspend, give back.
type changeOp struct {
	waiter
	req   *brokerapi.ChangeRequest
	done  func(*brokerapi.ChangeReply, error)
	reply brokerapi.ChangeReply
	err   error
}

func (o *changeOp) bytes() int { return 64 + 32*len(o.req.Handles) }

// givesBack tells whether this is about an answer that did not arrive.
func (o *changeOp) givesBack() bool {
	return o.req.Mode == brokerapi.ChangeKeep && o.req.Invisible <= 0
}

// toldAgain answers who gives back what a repeated receive was answered with, too: one of the two answers may have
// arrived, and its lease lasts.
var toldAgain = mqerr.New(mqerr.HandleInvalid, "the receive was repeated and has the message under the same lease: it ends by itself, or when the last of the answers is given back")

func (o *changeOp) finish(_ *writer, err error) { respond(o.done, &o.reply, err, o.err) }

func (o *changeOp) run(w *writer) {
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
	rec := record.PopChange{Topic: t.def.ID, Group: g.ID, Until: w.until(o.req.Invisible)}
	o.reply.Errors = make([]error, len(o.req.Handles))
	for i, h := range o.req.Handles {
		k := pop.Key{Group: g.ID, Topic: t.def.ID, Queue: record.QueueID(h.Queue)}
		if w.check(t, k, h) != pop.Current {
			o.reply.Errors[i] = staleHandle
			w.e.counts.Stale.Add(1)
			continue
		}
		if o.givesBack() && w.views.pop.Untell(k, record.QueueOffset(h.Offset), record.Pos(h.Lease)) {
			o.reply.Errors[i] = toldAgain
			continue
		}
		rec.Changes = append(rec.Changes, record.Change{
			Queue: k.Queue, Offset: record.QueueOffset(h.Offset), Lease: record.Pos(h.Lease), Keep: o.req.Mode == brokerapi.ChangeKeep,
		})
	}
	if len(rec.Changes) == 0 {
		o.end, o.sync = w.acks.end(w), t.sync // what refused them has to stand
		return
	}
	w.put(record.TypePopChange, record.PopChangeSize(&rec), func(body []byte) { record.PutPopChange(body, &rec) })
	if err := w.views.pop.ApplyChange(&rec); err != nil {
		w.broken(err)
	}
	if o.req.Invisible <= 0 {
		w.views.pop.Advance(w.lease, w.due)
	}
	w.e.counts.Changed.Add(int64(len(rec.Changes)))
	o.end, o.sync = w.batch.End(), t.sync
}
