package engine

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/perigee-mq/perigee/broker/txn"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// TxnOptions configures transactions. The zero value of a field means its default.
type TxnOptions struct {
	// CheckAfter is when a half message is checked for the first time if its sender has not said so.
	// Default 6 s.
	CheckAfter time.Duration
	// CheckInterval is the time between two checks of a half message. Default 30 s.
	CheckInterval time.Duration
	// CheckLimit is how many checks are sent; what is not ended an interval after the last one is given
	// up. Default 15.
	CheckLimit int
	// GiveUpAfter is how old a half message gets whose checks nobody could take. Default 24 h.
	GiveUpAfter time.Duration
	// OpenMax bounds the half messages without a verdict; more are refused as Exhausted. Default 1,000,000.
	OpenMax int
	// VerdictsMax and VerdictsFor bound what is remembered of those that were ended: a repeated or
	// contradicting verdict is recognised as such. Defaults 1,000,000 and 24 h.
	VerdictsMax int
	VerdictsFor time.Duration
}

func (o *TxnOptions) setDefaults() {
	set(&o.CheckAfter, 6*time.Second)
	set(&o.CheckInterval, 30*time.Second)
	set(&o.CheckLimit, 15)
	set(&o.GiveUpAfter, 24*time.Hour)
	set(&o.OpenMax, 1_000_000)
	set(&o.VerdictsMax, 1_000_000)
	set(&o.VerdictsFor, 24*time.Hour)
}

// table returns an empty transaction table.
func (o TxnOptions) table() *txn.Table {
	return txn.New(txn.Options{VerdictsMax: o.VerdictsMax, VerdictsFor: o.VerdictsFor.Milliseconds()})
}

// halvesOfID bounds the open half messages of one message id.
const halvesOfID = 16

// sentAgain is how long after it was stored a committed message is recognised when it is sent again.
const sentAgain = 10 * time.Minute

// txns is what the writer keeps of transactions beside the view.
type txns struct {
	// ending are the verdicts of this turn. They become records at its end, or before a record with which
	// they must not change places, and take effect then.
	ending []ending
	byPos  map[record.Pos]int // index in ending
	open   []txn.Half         // memory of the last look-up
	checks checks
}

func (x *txns) init() {
	x.byPos = map[record.Pos]int{}
	x.checks.init()
}

// halfOnly refuses a request with a half message that cannot be stored as one.
func halfOnly(t *topicState, req *brokerapi.SendRequest) error {
	switch m := &req.Messages[0]; {
	case len(req.Messages) > 1:
		return mqerr.New(mqerr.Invalid, "a transactional message goes in a request of its own")
	case m.DeliverAt != 0:
		return mqerr.New(mqerr.Invalid, "a transactional message with a delivery time")
	case strings.HasPrefix(t.def.Name, deadPrefix), strings.HasPrefix(t.def.Name, txnPrefix):
		return mqerr.New(mqerr.Invalid, "topic %s is the broker's own: it has no transactions", t.def.Name)
	}
	return nil
}

// runHalf stores a half message, or answers with what was stored when it was sent before: clients send
// transactional messages again when they get no answer.
func (o *sendOp) runHalf(w *writer, t *topicState) {
	m := &o.req.Messages[0]
	id, digest := txn.IDOf(m.ID), binary.LittleEndian.Uint64(m.Digest[:])
	x := &w.txns
	x.open = w.views.txns.Open(x.open[:0], t.def.ID, id)
	for i := range x.open {
		if x.open[i].Digest == digest {
			o.repeated(w, t, x.open[i].Queue, x.open[i].Pos, x.open[i].Stored)
			return
		}
	}
	if v, ok := w.views.txns.Verdict(t.def.ID, id); ok && v.Commit && v.Digest == digest && w.stamp-v.Stored < sentAgain.Milliseconds() {
		o.repeated(w, t, record.QueueID(m.Queue), v.Pos, v.Stored)
		return
	}
	if o.err = o.fits(w, t); o.err != nil {
		return
	}
	if n := w.views.txns.Len(); n >= w.e.o.Txn.OpenMax || len(x.open) >= halvesOfID {
		w.e.counts.HalvesRefused.Add(1)
		o.err = mqerr.New(mqerr.Exhausted, "%d transactions are open on this broker, %d of them with this message id: end some, or raise the limit", n, len(x.open))
		return
	}
	after := m.CheckAfter.Milliseconds()
	if m.CheckAfter <= 0 {
		after = t.checkAfter(&w.e.o.Txn)
	}
	rec := stored(t.def.ID, record.QueueID(m.Queue), -1, m)
	rec.DeliverAt = w.stamp + after
	pos, body := w.batch.Begin(record.Header{Type: record.TypeMsg, Epoch: w.epoch, Time: w.stamp}, record.MsgSize(&rec))
	record.PutMsg(body, &rec)
	size := w.batch.Seal()
	w.views.stamp = w.stamp
	if err := w.views.applyMsg(pos, size, w.stamp, &rec); err != nil {
		w.broken(err)
	}
	x.checks.soon(rec.DeliverAt)
	w.e.counts.Sent.Add(1)
	w.e.counts.SentBytes.Add(int64(size))
	w.e.counts.Halves.Add(1)
	t.in.add(int64(size))
	o.reply.Results = []brokerapi.SendResult{{Queue: m.Queue, Offset: -1, Pos: brokerapi.LogPos(pos), StoreTime: w.stamp}}
	o.end, o.sync = w.batch.End(), t.sync
}

// repeated answers with the first result, once that is where its own answer needed it.
func (o *sendOp) repeated(w *writer, t *topicState, q record.QueueID, pos record.Pos, at int64) {
	o.reply.Results = []brokerapi.SendResult{{Queue: brokerapi.QueueID(q), Offset: -1, Pos: brokerapi.LogPos(pos), StoreTime: at, Duplicate: true}}
	o.end, o.sync = w.batch.End(), t.sync
}

// givenUp is the topic whose transactions come to t when they are given up, "" if t is another kind of topic.
func (t *topicState) givenUp() string {
	name, ok := strings.CutPrefix(t.def.Name, txnPrefix)
	if !ok {
		return ""
	}
	return name
}

// dueOf is the delivery time of a message: that of a half message's record is its first check.
func dueOf(m *record.Msg) int64 {
	if m.Type == record.MsgTransaction {
		return 0
	}
	return m.DeliverAt
}

// applyHalf takes a stored message that waits for a verdict.
func (v *views) applyHalf(pos record.Pos, size uint32, at int64, m *record.Msg) error {
	return v.txns.Add(txn.Half{
		Pos: pos, Size: size, Topic: m.Topic, Queue: max(m.Queue, -1), TagHash: m.TagHash, GroupHash: m.GroupHash,
		Digest: binary.LittleEndian.Uint64(m.Digest[:]), ID: txn.IDOf(m.ID), Stored: at, Next: m.DeliverAt,
	})
}

// applyTxnEnd takes verdicts: committed messages get their places.
func (v *views) applyTxnEnd(at int64, e *record.TxnEnd) error {
	if v.hole != nil {
		return v.applyEndsBehind(at, e)
	}
	if len(e.Committed) > 0 && v.topics.Get(e.Topic) == nil {
		return mqerr.New(mqerr.Corrupt, "transactions are committed to topic %d, which does not exist there", e.Topic)
	}
	for _, p := range e.Committed {
		h, ok := v.txns.Get(p.Half)
		if !ok {
			return mqerr.New(mqerr.Corrupt, "a commit of the half message at %d, which is not there", p.Half)
		}
		entry := queue.Entry{Pos: p.Half, Size: h.Size, Time: at, TagHash: h.TagHash, GroupHash: h.GroupHash}
		if err := v.queues.Append(queue.Key{Topic: e.Topic, Queue: p.Queue}, p.Offset, entry); err != nil {
			return err
		}
	}
	return v.txns.End(e, at)
}
