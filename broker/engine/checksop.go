package engine

import (
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/broker/txn"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// checksMax bounds the checks of one reply, checksBytes their messages: one goes in any case.
const (
	checksMax   = 256
	checksBytes = 4 << 20
)

// checkBytes is the most that one check takes in a record.
const checkBytes = 32

// checksOp takes checks that are due.
type checksOp struct {
	waiter
	from *session
	req  *brokerapi.ChecksRequest
	done func(*brokerapi.ChecksReply, error)
	got  []txn.Half
	more bool
	err  error
}

func (o *checksOp) bytes() int { return 128 }

func (o *checksOp) run(w *writer) {
	if o.err = w.current(&o.req.Head); o.err != nil {
		return
	}
	if o.req.Max < 1 {
		o.err = mqerr.New(mqerr.Invalid, "%d checks asked for", o.req.Max)
		return
	}
	most := min(o.req.Max, checksMax)
	if !w.hasSpace(space.Broker, most*checkBytes) {
		o.err = w.noSpace(space.Broker)
		return
	}
	w.flushEndings() // what is ended in this turn is not asked for
	o.from.told = 0
	left, size := 0, 0
	if w.hasSpace(space.Broker, most*checkBytes+giveUpsMax*(endingBytes+checkBytes)) {
		left = giveUpsMax
	}
	for _, id := range o.from.producing {
		t := w.topics.byID[id]
		if t == nil {
			continue
		}
		var rec record.TxnCheck
		for !o.more {
			h, ok := w.views.txns.First(id)
			if !ok || h.Next > w.stamp {
				break
			}
			if w.overAt(&h) <= w.stamp { // it stands in front of others that are due
				if left == 0 {
					break
				}
				w.giveUp(t, &left)
				continue
			}
			if len(o.got) == most || len(o.got) > 0 && size+int(h.Size) > checksBytes {
				o.more = true
				break
			}
			size += int(h.Size)
			h.Checks++
			w.checked(t, &rec, &h, h.Checks)
			if int64(h.Checks) >= t.checkLimit(&w.e.o.Txn) {
				w.wantTopic(txnPrefix + t.def.Name)
			}
			o.got = append(o.got, h)
		}
		w.putChecks(t, &rec)
	}
	w.e.counts.Checks.Add(int64(len(o.got)))
	w.txns.checks.soon(w.stamp)
	o.end = w.batch.End()
}

// finish reads the messages beside the writer: they may be as old as a transaction may get.
func (o *checksOp) finish(w *writer, err error) {
	if err == nil {
		err = o.err
	}
	if err != nil {
		o.done(nil, err)
		return
	}
	if len(o.got) == 0 {
		o.done(brokerapi.NewChecksReply(nil, nil), nil)
		return
	}
	e := w.e
	w.readAside(o.held, func() { o.read(e) })
}

// read answers. A message whose bytes are damaged is left out and reported.
func (o *checksOp) read(e *Engine) {
	refs := make([]commitlog.Ref, 0, len(o.got))
	out := make([]brokerapi.Check, 0, len(o.got))
	for i := range o.got {
		h := &o.got[i]
		rec, ref, err := e.read(h.Pos, h.Size)
		var m record.Msg
		if err == nil {
			if m, err = record.DecodeMsg(rec.Body); err != nil {
				ref.Release()
			}
		}
		if err != nil {
			e.damaged(leased{pos: h.Pos, queue: h.Queue, offset: -1}, err, false)
			continue
		}
		refs = append(refs, ref)
		out = append(out, brokerapi.Check{
			Topic: brokerapi.TopicID(h.Topic), Half: brokerapi.LogPos(h.Pos), Checks: int(h.Checks),
			Message: brokerapi.Delivery{
				Epoch: brokerapi.Epoch(e.writer.epoch), Attempt: 1, Type: brokerapi.MessageType(m.Type), StoreTime: rec.Time, Digest: m.Digest,
				User: m.User, Sys: m.Sys, Body: m.Body,
			},
		})
	}
	reply := brokerapi.NewChecksReply(out, func() {
		for _, r := range refs {
			r.Release()
		}
	})
	reply.More = o.more
	o.done(reply, nil)
}

func (s *session) Checks(req *brokerapi.ChecksRequest, done func(*brokerapi.ChecksReply, error)) {
	if s.gone.Load() {
		done(nil, errGone)
		return
	}
	s.e.submit(&checksOp{from: s, req: req, done: done})
}
