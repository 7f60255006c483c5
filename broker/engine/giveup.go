package engine

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/broker/txn"
	"github.com/perigee-mq/perigee/store/record"
)

// giveUpsMax bounds the half messages that are given up in one turn.
const giveUpsMax = 256

// overAt is when a half message is given up, if nothing happens to it before.
func (w *writer) overAt(h *txn.Half) int64 {
	if t := w.topics.byID[h.Topic]; t != nil && int64(h.Checks) >= t.checkLimit(&w.e.o.Txn) {
		return h.Next
	}
	return max(h.Next, h.Stored+w.e.o.Txn.GiveUpAfter.Milliseconds())
}

// giveUps ends half messages that nobody has ended: each goes to the topic of its broker for such ones,
// where it can be read. Where that topic does not exist yet, they wait for another interval.
func (w *writer) giveUps(left *int) {
	var over []record.TopicID
	w.views.txns.EachTopic(func(id record.TopicID) {
		if h, _ := w.views.txns.First(id); w.overAt(&h) <= w.stamp {
			over = append(over, id)
		}
	})
	if len(over) == 0 || !w.hasSpace(space.Broker, giveUpsMax*(endingBytes+checkBytes)) {
		return
	}
	w.flushEndings()
	slices.Sort(over)
	for _, id := range over {
		w.giveUp(w.topics.byID[id], left)
	}
}

// giveUp ends the half messages of a topic that nobody has ended.
func (w *writer) giveUp(t *topicState, left *int) {
	to := w.wantTopic(txnPrefix + t.def.Name)
	var ended record.TxnEnd
	var waits record.TxnCheck
	for ; *left > 0; *left-- {
		h, ok := w.views.txns.First(t.def.ID)
		if !ok || w.overAt(&h) > w.stamp {
			break
		}
		if to == nil {
			w.checked(t, &waits, &h, h.Checks)
			continue
		}
		h.Queue = -1
		ended = record.TxnEnd{Topic: to.def.ID, Source: record.TxnByBroker, Committed: []record.TxnPlace{w.place(to, &h)}}
		w.endTxn(to, &ended)
		w.warnGivenUp(t, &h)
	}
	w.putChecks(t, &waits)
}

// warnGivenUp says once a minute and topic that transactions were given up.
func (w *writer) warnGivenUp(t *topicState, h *txn.Half) {
	c := &w.txns.checks
	if last, is := c.warned[t.def.ID]; is && w.lease < last+time.Minute.Milliseconds() {
		return
	}
	c.warned[t.def.ID] = w.lease
	w.e.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "transaction given up: no producer has answered; its message is kept, look at it with perigee dlq",
		slog.String("topic", t.def.Name), slog.String("to", txnPrefix+t.def.Name), slog.Int64("position", int64(h.Pos)),
		slog.Int("checks", int(h.Checks)), slog.Time("stored", time.UnixMilli(h.Stored)))
}
