package engine

import (
	"time"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/broker/timer"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// recallOp takes a delayed message back.
type recallOp struct {
	waiter
	req   *brokerapi.RecallRequest
	done  func(*brokerapi.RecallReply, error)
	err   error
	state timer.State
	size  uint32
	stamp int64
}

// Recall takes a delayed message back; see brokerapi.
func (s *session) Recall(req *brokerapi.RecallRequest, done func(*brokerapi.RecallReply, error)) {
	if s.gone.Load() {
		done(nil, errGone)
		return
	}
	s.e.submit(&recallOp{req: req, done: done})
}

// recallBytes is the most that the record of a recall takes.
const recallBytes = 128

func (o *recallOp) bytes() int { return recallBytes }

func (o *recallOp) run(w *writer) {
	if o.err = w.current(&o.req.Head); o.err != nil {
		return
	}
	t, err := w.topicOf(o.req.Topic)
	if err != nil {
		o.err = err
		return
	}
	o.stamp = w.stamp
	var e timer.Entry
	o.state, e = w.views.timers.State(t.def.ID, o.req.DeliverAt, record.Pos(o.req.Ref))
	o.size = e.Size
	switch o.state {
	case timer.Waiting:
		if !w.hasSpace(space.Consumer, recallBytes) {
			o.err = w.noSpace(space.Consumer)
			return
		}
		rec := record.Recall{Topic: t.def.ID, Items: []record.Recalled{{Ref: e.Pos, DeliverAt: e.Due}}}
		w.put(record.TypeRecall, record.RecallSize(&rec), func(body []byte) { record.PutRecall(body, &rec) })
		if err := w.views.timers.ApplyRecall(&rec, w.stamp); err != nil {
			w.broken(err)
		}
		w.e.counts.Recalled.Add(1)
	case timer.Unknown:
		return
	}
	o.end, o.sync = w.batch.End(), t.sync // of a recall before, the record may be on its way to the disk
}

// finish answers: at once if the message may be read by the writer, else on a goroutine that may wait for
// the disk.
func (o *recallOp) finish(w *writer, err error) {
	if err == nil {
		err = o.err
	}
	if err != nil {
		o.done(nil, err)
		return
	}
	e := w.e
	if o.state != timer.Unknown && w.atHand([]leased{{pos: record.Pos(o.req.Ref), size: o.size}}) {
		o.answer(e)
		return
	}
	w.readAside(o.held, func() { o.answer(e) })
}

// answer reads the message: its id belongs to the reply, and of one that does not wait it tells whether
// there ever was such a message.
func (o *recallOp) answer(e *Engine) {
	rec, ref, err := e.read(record.Pos(o.req.Ref), o.size)
	if err == nil {
		defer ref.Release()
	}
	var m record.Msg
	switch {
	case err == nil && rec.Type == record.TypeMsg:
		m, err = record.DecodeMsg(rec.Body)
	case err == nil:
		err = errNoTimer
	}
	if o.state != timer.Unknown {
		if o.state == timer.Recalled && gone(err) {
			err = errForgotten
		}
		if err != nil {
			o.done(nil, err)
			return
		}
		o.done(&brokerapi.RecallReply{ID: append([]byte(nil), m.ID...)}, nil)
		return
	}
	switch {
	case err != nil && mqerr.KindOf(err) != mqerr.Corrupt && mqerr.KindOf(err) != mqerr.NotFound:
		o.done(nil, err)
	case err != nil || brokerapi.TopicID(m.Topic) != o.req.Topic || m.DeliverAt != o.req.DeliverAt || m.Type == record.MsgTransaction:
		o.done(nil, errNoTimer)
	case o.req.DeliverAt+timer.Keep < o.stamp:
		o.done(nil, mqerr.New(mqerr.NotFound, "the message was due at %s: it was delivered, or recalled before and that is forgotten",
			time.UnixMilli(o.req.DeliverAt).UTC().Format(time.RFC3339)))
	default:
		o.done(nil, errDelivered)
	}
}

// Answers to recalls of what does not wait.
var (
	errNoTimer   = mqerr.New(mqerr.NotFound, "no delayed message is known by that handle")
	errForgotten = mqerr.New(mqerr.NotFound, "the message was recalled before, and retention has deleted it since")
	errDelivered = mqerr.New(mqerr.NotFound, "the message was delivered already: it is too late to recall it")
)
