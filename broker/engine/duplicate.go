package engine

import (
	"bytes"
	"errors"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// A client that had no answer sends its message again, with the same id. Within the duplicate window
// (store/dedup) the second one is not stored: it is answered with what the first one came to. The window, the
// broker's or the topic's, only says where to look; the record there decides: topic, type, id, body size and digest are equal. What a
// client sends counts, nothing else: neither dead letters nor what the broker delivers from a wait.
// Half messages have a memory of their own (txn.go), which knows how they ended.

// first is a stored message that one which is sent now may repeat.
type first struct {
	msg  record.Msg // without what is long; its id is a copy
	size int        // of the body
	at   int64      // store time, ms
	err  error      // it cannot be read
}

// firstOf keeps what is needed of a record that was read.
func firstOf(rec record.Record, err error) first {
	if err == nil && rec.Type != record.TypeMsg {
		err = mqerr.New(mqerr.NotFound, "no message")
	}
	var m record.Msg
	if err == nil {
		m, err = record.DecodeMsg(rec.Body)
	}
	if err != nil {
		return first{err: err}
	}
	f := first{msg: m, size: len(m.Body), at: rec.Time}
	f.msg.ID, f.msg.User, f.msg.Sys, f.msg.Body = bytes.Clone(m.ID), nil, nil, nil
	return f
}

// repeats tells whether m is f again.
func (f *first) repeats(t record.TopicID, m *brokerapi.Message) bool {
	return f.sameID(t, m) && f.msg.Type == record.MsgType(m.Type) && f.size == len(m.Body) && f.msg.Digest == m.Digest
}

func (f *first) sameID(t record.TopicID, m *brokerapi.Message) bool {
	return f.err == nil && f.msg.Topic == t && bytes.Equal(f.msg.ID, m.ID)
}

func (f *first) result(pos record.Pos) brokerapi.SendResult {
	return brokerapi.SendResult{
		Queue: brokerapi.QueueID(f.msg.Queue), Offset: brokerapi.QueueOffset(f.msg.Offset), Pos: brokerapi.LogPos(pos), StoreTime: f.at, Duplicate: true, DeliverAt: f.msg.DeliverAt,
	}
}

// copies is what one request knows of the messages that it may repeat.
type copies struct {
	read   map[record.Pos]first // read beside the writer
	absent []record.Pos         // must be read beside the writer first
	found  []record.Pos
}

// clockSlack is by how much the clocks of two masters may differ, where a time in the log is compared with the clock.
const clockSlack = 5 * time.Second

// recognised refuses messages that may have been stored so long ago, if the duplicate window may not have them.
func (w *writer) recognised(t *topicState, age time.Duration) error {
	if age <= 0 {
		return nil
	}
	window := min(time.Duration(w.views.duplicateWindow(t.def))*time.Millisecond, w.views.dups.InForce(w.stamp))
	if window > 0 && age+clockSlack <= window {
		return nil
	}
	return mqerr.New(mqerr.Timeout, "it was sent %v ago and may have been stored then: messages of this topic are recognised for %v now", age.Round(time.Millisecond), window)
}

// sent notes a stored message in the duplicate window.
func (v *views) sent(pos record.Pos, at int64, m *record.Msg) {
	if v.remembers(m) {
		v.dups.Add(hashOf(m), pos, at)
	}
}

// remembers tells whether the duplicate window has messages such as m.
func (v *views) remembers(m *record.Msg) bool {
	return m.Type != record.MsgTransaction && v.duplicateWindow(v.topics.Get(m.Topic)) > 0
}

func hashOf(m *record.Msg) uint64 { return brokerapi.HashMessage(brokerapi.TopicID(m.Topic), m.ID) }

// fillDuplicates takes from the log what files of the duplicate window have lost. It reads on behind damage, which
// may have been no message: the window knows by a checksum whether it has all.
func (v *views) fillDuplicates() {
	v.dups.Fill(func(from record.Pos, fn func(hash uint64, pos record.Pos, at int64) bool) error {
		_, _, err := v.store.Log().ScanPast(from, func(r record.Record) error {
			if r.Type != record.TypeMsg {
				return nil
			}
			m, err := record.DecodeMsg(r.Body)
			if err == nil && v.remembers(&m) && !fn(hashOf(&m), r.Pos, r.Time) {
				return errEnd
			}
			return err
		}, func(commitlog.Past) error { return nil })
		if errors.Is(err, errEnd) {
			return nil
		}
		return err
	})
}

// applySent is applyMsg for what a client has sent.
func (v *views) applySent(pos record.Pos, size uint32, at int64, m *record.Msg) error {
	v.sent(pos, at, m)
	return v.applyMsg(pos, size, at, m)
}

// duplicates fills in the results of messages that were stored before, and returns how many. It is false
// if a record must be read beside the writer first.
func (o *sendOp) duplicates(w *writer, t *topicState) (n int, known bool) {
	window := w.views.duplicateWindow(t.def)
	if window == 0 {
		return 0, true
	}
	differ := int64(0)
	o.copies.absent = o.copies.absent[:0]
	for i := range o.req.Messages {
		m := &o.req.Messages[i]
		hash := brokerapi.HashMessage(o.req.Topic, m.ID)
		o.copies.found = w.views.dups.Find(hash, o.copies.found[:0])
		for _, pos := range o.copies.found {
			f, ok := o.copy(w, pos)
			if !ok {
				continue
			}
			if w.stamp-f.at >= window && f.err == nil {
				continue
			}
			if f.repeats(t.def.ID, m) {
				o.reply.Results[i] = f.result(pos)
				n++
				break
			}
			if f.sameID(t.def.ID, m) {
				differ++
			}
		}
	}
	if len(o.copies.absent) > 0 {
		return 0, false
	}
	w.e.counts.DuplicatesDiffer.Add(differ)
	return n, true
}

// copy returns the message at pos, false if it must be read beside the writer.
func (o *sendOp) copy(w *writer, pos record.Pos) (first, bool) {
	if f, is := o.copies.read[pos]; is {
		return f, true
	}
	if pos >= w.e.log.Written() {
		return firstOf(w.batch.Read(pos)), true
	}
	if !w.atHand([]leased{{pos: pos}}) {
		o.copies.absent = append(o.copies.absent, pos)
		return first{}, false
	}
	return w.e.readFirst(pos), true
}

func (e *Engine) readFirst(pos record.Pos) first {
	rec, ref, err := e.read(pos, 0)
	if err != nil {
		return first{err: err}
	}
	defer ref.Release()
	return firstOf(rec, nil)
}

// readCopies reads beside the writer what the request needs to know, and puts it back.
func (o *sendOp) readCopies(w *writer) {
	e := w.e
	if o.copies.read == nil {
		o.copies.read = map[record.Pos]first{}
	}
	e.reads.Go(func() {
		e.cold <- struct{}{}
		for _, pos := range o.copies.absent {
			o.copies.read[pos] = e.readFirst(pos)
		}
		<-e.cold
		e.submitOwn(o)
	})
}

// within marks messages of a request that repeat an earlier one of the same request: twin[i] is its index,
// -1 if there is none. It is nil for a single message.
func (o *sendOp) within(w *writer, t *topicState) []int {
	ms := o.req.Messages
	if len(ms) == 1 || w.views.duplicateWindow(t.def) == 0 {
		return nil
	}
	twin, seen := make([]int, len(ms)), make(map[string]int, len(ms))
	for i := range ms {
		m := &ms[i]
		twin[i] = -1
		j, is := seen[string(m.ID)]
		switch {
		case !is:
			seen[string(m.ID)] = i
		case ms[j].Type == m.Type && len(ms[j].Body) == len(m.Body) && ms[j].Digest == m.Digest:
			twin[i] = j
		}
	}
	return twin
}
