package engine

import (
	"time"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/broker/txn"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// ending is one verdict.
type ending struct {
	half   txn.Half
	commit bool
	source record.TxnSource
}

// endingsMax bounds the verdicts of one record, each of which takes at most endingBytes there.
const (
	endingsMax  = 4096
	endingBytes = 64
)

// endTxnOp gives a verdict.
type endTxnOp struct {
	waiter
	req  *brokerapi.EndTxnRequest
	done func(*brokerapi.EndTxnReply, error)
	err  error
}

func (o *endTxnOp) bytes() int { return 128 + len(o.req.ID) }

func (o *endTxnOp) finish(_ *writer, err error) {
	respond(o.done, &brokerapi.EndTxnReply{}, err, o.err)
}

func (o *endTxnOp) run(w *writer) {
	if o.err = w.current(&o.req.Head); o.err != nil {
		return
	}
	t, err := w.topicOf(o.req.Topic)
	if err != nil {
		o.err = err
		return
	}
	if !w.hasSpace(space.Consumer, endingBytes*halvesOfID) {
		o.err = w.noSpace(space.Consumer)
		return
	}
	x, id := &w.txns, txn.IDOf(o.req.ID)
	x.open = w.views.txns.Open(x.open[:0], t.def.ID, id)
	if len(x.open) == 0 {
		v, ok := w.views.txns.Verdict(t.def.ID, id)
		o.err = o.verdict(v, ok)
	}
	for i := range x.open {
		if at, is := x.byPos[x.open[i].Pos]; !is {
			x.byPos[x.open[i].Pos] = len(x.ending)
			x.ending = append(x.ending, ending{half: x.open[i], commit: o.req.Commit, source: sourceOf(o.req.Source)})
		} else if was := x.ending[at].commit; was != o.req.Commit {
			o.err = contradiction(was)
		}
	}
	o.end, o.sync = w.endingsEnd(), t.sync
	if len(x.ending) >= endingsMax {
		w.flushEndings()
	}
}

// sourceOf is a source that a client may name.
func sourceOf(s brokerapi.TxnSource) record.TxnSource {
	if s == brokerapi.TxnByCheck {
		return record.TxnByCheck
	}
	return record.TxnByClient
}

// verdict compares a verdict with the one that stands.
func (o *endTxnOp) verdict(v txn.Verdict, known bool) error {
	switch {
	case !known:
		return mqerr.New(mqerr.NotFound, "there is no such transaction on topic %d, or it was ended so long ago that this is forgotten", o.req.Topic)
	case v.Source == record.TxnByBroker:
		return mqerr.New(mqerr.Invalid, "the transaction was given up at %s, since no check of it was answered: its message is in the topic of the same name behind %s",
			time.UnixMilli(v.Ended).UTC().Format(time.RFC3339), txnPrefix)
	case v.Commit != o.req.Commit:
		return contradiction(v.Commit)
	}
	return nil
}

func contradiction(committed bool) error {
	if committed {
		return mqerr.New(mqerr.Invalid, "the transaction is committed: it cannot be rolled back any more")
	}
	return mqerr.New(mqerr.Invalid, "the transaction is rolled back: it cannot be committed any more")
}

// endingsEnd is the position that answers of verdicts wait for, as acks.end.
func (w *writer) endingsEnd() record.Pos {
	if len(w.txns.ending) == 0 {
		return w.batch.End()
	}
	return w.batch.End() + 1
}

// flushEndings makes records of the verdicts so far: one for each topic and source.
func (w *writer) flushEndings() {
	x := &w.txns
	for len(x.ending) > 0 {
		topic, source := x.ending[0].half.Topic, x.ending[0].source
		rest, rec := x.ending[:0], record.TxnEnd{Topic: topic, Source: source}
		t := w.topics.byID[topic]
		for _, v := range x.ending {
			switch {
			case v.half.Topic != topic || v.source != source:
				rest = append(rest, v)
			case v.commit:
				rec.Committed = append(rec.Committed, w.place(t, &v.half))
			default:
				rec.RolledBack = append(rec.RolledBack, v.half.Pos)
			}
		}
		x.ending = rest
		w.endTxn(t, &rec)
	}
	clear(x.byPos)
}

// place gives a half message the next offset of its queue, or of the queue whose turn it is.
func (w *writer) place(t *topicState, h *txn.Half) record.TxnPlace {
	q := h.Queue
	if q < 0 || int(q) >= len(t.queues) {
		q = record.QueueID(t.turn % len(t.queues))
		t.turn++
	}
	p := record.TxnPlace{Queue: q, Offset: t.queues[q].next, Half: h.Pos}
	t.queues[q].next++
	t.queues[q].note(h.GroupHash)
	return p
}

// endTxn makes a record of verdicts whose places are in t.
func (w *writer) endTxn(t *topicState, rec *record.TxnEnd) {
	w.put(record.TypeTxnEnd, record.TxnEndSize(rec), func(body []byte) { record.PutTxnEnd(body, rec) })
	if err := w.views.applyTxnEnd(w.stamp, rec); err != nil {
		w.broken(err)
	}
	for i := range rec.Committed {
		p := &rec.Committed[i]
		w.topics.hide(t, p.Queue, p.Offset+1, w.batch.End())
	}
	if rec.Source == record.TxnByBroker {
		w.e.counts.GivenUp.Add(int64(len(rec.Committed)))
		return
	}
	w.e.counts.Committed.Add(int64(len(rec.Committed)))
	w.e.counts.RolledBack.Add(int64(len(rec.RolledBack)))
}

func (s *session) EndTxn(req *brokerapi.EndTxnRequest, done func(*brokerapi.EndTxnReply, error)) {
	if s.gone.Load() {
		done(nil, errGone)
		return
	}
	s.e.submit(&endTxnOp{req: req, done: done})
}
