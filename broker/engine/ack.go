package engine

import (
	"cmp"
	"slices"

	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// ackOp ends messages for a group.
type ackOp struct {
	waiter
	req   *brokerapi.AckRequest
	done  func(*brokerapi.AckReply, error)
	reply brokerapi.AckReply
	err   error
}

func (o *ackOp) bytes() int { return 64 + 32*len(o.req.Handles) }

func (o *ackOp) finish(_ *writer, err error) { respond(o.done, &o.reply, err, o.err) }

func (o *ackOp) run(w *writer) {
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
	o.reply.Errors = make([]error, len(o.req.Handles))
	for i, h := range o.req.Handles {
		k := pop.Key{Group: g.ID, Topic: t.def.ID, Queue: record.QueueID(h.Queue)}
		switch w.check(t, k, h) {
		case pop.Current:
			w.acks.add(w, k, record.QueueOffset(h.Offset))
			w.liteFree(t, g, k.Queue)
			w.e.counts.Acked.Add(1)
			o.sync = t.sync
		case pop.Done:
			o.sync = t.sync // its record may be on its way to the disk
		default:
			o.reply.Errors[i] = staleHandle
			w.e.counts.Stale.Add(1)
		}
	}
	o.end = w.acks.end(w)
}

// staleHandle refuses a handle that is not the message's current lease.
var staleHandle = mqerr.New(mqerr.HandleInvalid, "the handle is not of the message's latest delivery")

// check tells what a handle is now.
func (w *writer) check(t *topicState, k pop.Key, h brokerapi.Handle) pop.State {
	if q := t.queue(record.QueueID(h.Queue)); q == nil || h.Offset < 0 || record.QueueOffset(h.Offset) >= q.next {
		return pop.Stale
	}
	return w.views.pop.Check(k, record.QueueOffset(h.Offset), record.Pos(h.Lease))
}

// acks are the ends of messages of one turn. They take effect in the table at once and become one
// record at the end of the turn, or before a record with which they must not change places. Acks
// commute with everything but the deletion of their topic or group.
type acks struct {
	list    []ackOf
	offsets []record.QueueOffset // memory of the last record
	record  record.PopAck
	ordered bool // one in the list is of an ordered queue
}

type ackOf struct {
	key pop.Key
	off record.QueueOffset
}

// add ends one message.
func (a *acks) add(w *writer, k pop.Key, off record.QueueOffset) {
	one := record.PopAck{Sections: []record.AckSection{{Topic: k.Topic, Group: k.Group, Queue: k.Queue, Offsets: []record.QueueOffset{off}}}}
	if err := w.views.pop.ApplyAck(&one); err != nil {
		w.broken(err)
	}
	a.list = append(a.list, ackOf{k, off})
	if w.views.pop.Ordered(k) {
		a.ordered = true
		w.due(k, 1) // what waited for it may be ready
	}
	if len(a.list) >= acksMax {
		w.flushAcks()
	}
}

// acksMax bounds the messages of one record, each of which takes at most ackBytes there.
const (
	acksMax  = 8192
	ackBytes = 32
)

// handlesMax bounds the handles of one request.
const handlesMax = 16384

// handed refuses a request with more handles than that, or with one of a delivery in a later epoch: this broker does not know
// what was delivered then.
func (w *writer) handed(hs []brokerapi.Handle) error {
	if len(hs) > handlesMax {
		return mqerr.New(mqerr.Invalid, "%d handles in one request: at most %d", len(hs), handlesMax)
	}
	for i := range hs {
		if err := w.current(&brokerapi.Head{Epoch: hs[i].Epoch}); err != nil {
			return err
		}
	}
	return nil
}

// end is the position that answers wait for: inside the record to come, if there will be one.
// Durable ends are ends of batches, so any position inside will do.
func (a *acks) end(w *writer) record.Pos {
	if len(a.list) == 0 {
		return w.batch.End()
	}
	return w.batch.End() + 1
}

// flushAcks makes the record of the acks so far.
func (w *writer) flushAcks() {
	list := w.acks.list
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b ackOf) int {
		return cmp.Or(cmp.Compare(a.key.Group, b.key.Group), cmp.Compare(a.key.Topic, b.key.Topic),
			cmp.Compare(a.key.Queue, b.key.Queue), cmp.Compare(a.off, b.off))
	})
	rec := &w.acks.record
	rec.Sections = rec.Sections[:0]
	offsets := w.acks.offsets[:0]
	for i, a := range list {
		offsets = append(offsets, a.off)
		if i == 0 || a.key != list[i-1].key {
			rec.Sections = append(rec.Sections, record.AckSection{Topic: a.key.Topic, Group: a.key.Group, Queue: a.key.Queue})
		}
		s := &rec.Sections[len(rec.Sections)-1]
		s.Offsets = offsets[i-len(s.Offsets) : i+1]
	}
	w.put(record.TypePopAck, record.PopAckSize(rec), func(body []byte) { record.PutPopAck(body, rec) })
	w.acks.list, w.acks.offsets, w.acks.ordered = list[:0], offsets, false
}
