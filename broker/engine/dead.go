package engine

import (
	"slices"

	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/redriven"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// dead tells the in-flight table which messages have used up their attempts. The dead letters of a group
// are never dead for the group itself: they would be moved to where they are.
func (v *views) dead(k pop.Key, attempt uint16) bool {
	g := v.groups.Get(k.Group)
	if g == nil || int(attempt) < g.MaxAttempts {
		return false
	}
	t := v.topics.Get(k.Topic)
	return t == nil || t.Name != deadPrefix+g.Name
}

// applyDead moves a message: it is done where it was, for the group, or for everybody if the record names
// none; and it stands where the record says.
func (v *views) applyDead(pos record.Pos, size uint32, at int64, d *record.Dead) error {
	var err error
	if d.Group == 0 {
		if err = v.redriven.Add(redriven.Key{Topic: d.Topic, Queue: d.Queue}, d.Offset); v.hole != nil {
			err = nil // it was moved before, or its place is lost
		}
	} else {
		err = v.pop.ApplyDead(d)
	}
	if err != nil {
		return err
	}
	return v.applyMsg(pos, size, at, &d.Msg)
}

// burial is one message on its way to a dead-letter topic: found in the views by the writer, read beside
// it, written by the writer.
type burial struct {
	who    pop.Dying
	topic  *topicState // where it is
	to     string      // name of the dead-letter topic
	pos    record.Pos  // of its record
	size   uint32
	handle int // of a forward: index of its handle

	rec record.Dead // as read; its slices are valid while ref is held
	ref commitlog.Ref
	err error // it could not be read
}

// find says where the message's record is.
func (b *burial) find(w *writer) error {
	e, err := w.views.entryAt(queue.Key{Topic: b.who.Key.Topic, Queue: b.who.Key.Queue}, b.who.Offset)
	b.pos, b.size = e.Pos, e.Size
	return err
}

// historyMax is how many deliveries a DEAD record tells at most, the newest ones.
const historyMax = 64

// read makes the record, but for the place in the dead-letter topic, which the writer gives.
func (b *burial) read(e *Engine, reason record.DeadReason) {
	rec, ref, err := e.read(b.pos, b.size)
	if err != nil {
		b.err = err
		return
	}
	var before record.Dead // the message was moved here by an operator: its history goes on
	m, err := storedIn(&rec, &before)
	if err != nil {
		ref.Release()
		b.err = err
		return
	}
	b.ref = ref
	b.rec = record.Dead{
		Topic: b.who.Key.Topic, Group: b.who.Key.Group, Queue: b.who.Key.Queue, Offset: b.who.Offset,
		Reason: reason, Attempts: before.Attempts + uint32(b.who.Attempt), Msg: m,
	}
	b.rec.Msg.DeliverAt = 0
	b.rec.Msg.Sys = withOrigin(m.Sys, b.topic.def.Name, m.ID)
	b.rec.History = history(e.log, b.who, before.History)
}

// storedIn is the message of a record as it is stored. If an operator had moved it back, before is what
// the record says of its former life.
func storedIn(rec *record.Record, before *record.Dead) (record.Msg, error) {
	if rec.Type != record.TypeDead {
		return messageOf(rec)
	}
	d, err := record.DecodeDead(rec.Body)
	if err == nil && d.Reason == record.DeadByOperator {
		*before = d
	}
	return d.Msg, err
}

// history lists the deliveries of a message, oldest first, behind those before: each lease names the one
// before it. It ends where the log no longer has them.
func history(log *commitlog.Log, who pop.Dying, before []record.DeadAttempt) []record.DeadAttempt {
	var back []record.DeadAttempt
	for lease := who.Lease; lease >= 0 && len(back) < historyMax; {
		at, prev, ok := delivery(log, lease, who)
		if !ok {
			before = nil // there is a gap
			break
		}
		back = append(back, record.DeadAttempt{Lease: lease, Time: at})
		lease = prev
	}
	keep := min(len(before), historyMax-len(back))
	out := append(make([]record.DeadAttempt, 0, keep+len(back)), before[len(before)-keep:]...)
	for _, a := range slices.Backward(back) {
		out = append(out, a)
	}
	return out
}

// delivery reads when a lease was and which was the message's lease before it.
func delivery(log *commitlog.Log, lease record.Pos, who pop.Dying) (at int64, prev record.Pos, ok bool) {
	rec, ref, err := log.Read(lease, 0)
	if err != nil {
		return 0, -1, false
	}
	defer ref.Release()
	var ck record.PopCk
	if rec.Type != record.TypePopCk || record.DecodePopCk(rec.Body, &ck) != nil {
		return 0, -1, false
	}
	for i := range ck.Sections {
		if ck.Sections[i].Queue != who.Key.Queue {
			continue
		}
		for _, it := range ck.Sections[i].Items {
			if it.Offset == who.Offset {
				return rec.Time, it.Prev, true
			}
		}
	}
	return 0, -1, false
}

// write appends the record and applies it. Nothing is written, and false returned, if the dead-letter
// topic is gone.
func (b *burial) write(w *writer) bool {
	t := w.topics.byName[b.to]
	if t == nil {
		return false
	}
	q := &t.queues[0]
	b.rec.Msg.Topic, b.rec.Msg.Queue, b.rec.Msg.Offset = t.def.ID, 0, q.next
	w.appendDead(&b.rec, t, q)
	return true
}

// appendDead appends a DEAD record whose message goes to the end of a queue.
func (w *writer) appendDead(d *record.Dead, t *topicState, q *queueState) {
	pos, body := w.batch.Begin(record.Header{Type: record.TypeDead, Epoch: w.epoch, Time: w.stamp}, record.DeadSize(d))
	record.PutDead(body, d)
	size := w.batch.Seal()
	if err := w.views.applyDead(pos, size, w.stamp, d); err != nil {
		w.broken(err)
	}
	w.due(pop.Key{Group: d.Group, Topic: d.Topic, Queue: d.Queue}, 1) // what waited for it may be ready
	w.views.stamp = w.stamp
	q.next++
	q.note(d.Msg.GroupHash)
	t.in.add(int64(size))
	w.topics.hide(t, d.Msg.Queue, q.next, w.batch.End())
}
