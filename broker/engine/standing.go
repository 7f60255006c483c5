package engine

import (
	"context"

	"github.com/perigee-mq/perigee/broker/timer"
	"github.com/perigee-mq/perigee/broker/txn"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// What Found.State says.
const (
	isVisible    = "visible" // has a place in a queue
	isWaiting    = "waiting" // for its time
	isRecalled   = "recalled"
	isHalf       = "half" // waits for its verdict
	isCommitted  = "committed"
	isRolledBack = "rolled back"
	isPast       = "past" // waits no more: what became of it is known to a trace
)

// states says in a word how messages stand, as far as the views tell, and finds the place of those that got
// it after they were stored. How a message stands with its groups is the matter of a trace.
func (s *session) states(ctx context.Context, ms []brokerapi.Found) error {
	queues := 0
	look := func(w *writer) error {
		for i := range ms {
			ms[i].State = w.stateOf(&ms[i])
			w.placeHeld(&ms[i])
		}
		if t := w.topics.byID[record.TopicID(ms[0].Topic)]; t != nil {
			queues = len(t.queues)
		}
		return nil
	}
	_, err := query(ctx, s, look, func(ctx context.Context) (struct{}, error) {
		for i := range ms {
			if m := &ms[i]; m.Offset < 0 && (m.State == isPast || m.State == isCommitted) {
				if s.e.placeLate(ctx, m, queues) {
					m.State = isVisible
				}
			}
		}
		return struct{}{}, nil
	})
	return err
}

func (w *writer) stateOf(m *brokerapi.Found) string {
	topic, pos := record.TopicID(m.Topic), record.Pos(m.Pos)
	switch {
	case m.Offset >= 0:
		return isVisible
	case m.Type == brokerapi.Transaction:
		if _, open := w.views.txns.Get(pos); open {
			return isHalf
		}
		switch v, known := w.views.txns.Verdict(topic, txn.IDOf([]byte(m.ID))); {
		case !known || v.Pos != pos:
			return isPast
		case v.Commit:
			return isCommitted
		}
		return isRolledBack
	}
	switch state, _ := w.views.timers.State(topic, m.DeliverAt, pos); state {
	case timer.Waiting:
		return isWaiting
	case timer.Recalled:
		return isRecalled
	}
	return isPast
}

// placeHeld finds the place of a message that got it after it was stored and whose queue has given it up while
// somebody has it.
func (w *writer) placeHeld(m *brokerapi.Found) {
	if m.Offset >= 0 || m.State != isPast && m.State != isCommitted {
		return
	}
	if k, off, is := w.views.heldPlace(record.Pos(m.Pos)); is {
		m.Queue, m.Offset, m.State = brokerapi.QueueID(k.Queue), brokerapi.QueueOffset(off), isVisible
	}
}

// lateEntries bounds how many entries of each queue are looked at for a message that got its place late.
const lateEntries = 1 << 14

// placeLate looks for the place of a message that got it after it was stored: near the entries of the time
// from which on it could have one.
func (e *Engine) placeLate(ctx context.Context, m *brokerapi.Found, queues int) bool {
	var buf [256]queue.Entry
	for q := range queues {
		key := queue.Key{Topic: record.TopicID(m.Topic), Queue: record.QueueID(q)}
		at, err := e.o.Store.Queues().SeekTime(key, max(m.StoreTime, m.DeliverAt))
		if err != nil {
			continue
		}
		for seen := 0; seen < lateEntries && over(ctx) == nil; {
			n, err := e.o.Store.Queues().Read(key, at, buf[:])
			if err != nil || n == 0 {
				break
			}
			for i := range buf[:n] {
				if buf[i].Pos == record.Pos(m.Pos) {
					m.Queue, m.Offset = brokerapi.QueueID(q), brokerapi.QueueOffset(at)+brokerapi.QueueOffset(i)
					return true
				}
			}
			at, seen = at+record.QueueOffset(n), seen+n
		}
	}
	return false
}
