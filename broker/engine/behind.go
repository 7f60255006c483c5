package engine

import (
	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// Records of several parts behind a hole of the log: each part is taken for itself.

// placeBehind is place for one of several messages of a record: what finds no place is left out, and counted.
func (v *views) placeBehind(k queue.Key, off record.QueueOffset, e queue.Entry) (placed bool, err error) {
	err = v.place(k, off, e)
	if mqerr.Is(err, mqerr.Corrupt) && !v.unread {
		v.hole.dropped++
		return false, nil
	}
	return err == nil, err
}

// applyDeliverBehind takes deliveries behind a hole. Their messages leave the wait, whatever else waits there; one
// that finds no place stays, and is delivered anew.
func (v *views) applyDeliverBehind(at int64, d *record.Deliver) error {
	if !v.exists(d.Topic) {
		return mqerr.New(mqerr.Corrupt, "messages of topic %d are delivered, which does not exist there", d.Topic)
	}
	known := record.Deliver{Topic: d.Topic}
	for i := range d.Items {
		p := &d.Items[i]
		placed, err := v.placeBehind(queue.Key{Topic: d.Topic, Queue: p.Queue}, p.Offset, entryOfPlace(p, at))
		if err != nil {
			return err
		}
		if placed {
			known.Items = append(known.Items, *p)
		}
	}
	err := v.timers.ApplyDeliver(&known, at)
	if mqerr.Is(err, mqerr.Corrupt) {
		v.hole.forced++
		v.timers.Remove(&known, at)
		err = nil
	}
	return err
}

// applyEndsBehind takes verdicts behind a hole: those of half messages that are lost place a message that is
// gone, or nothing. A commit that finds no place is no verdict: the transaction is checked again.
func (v *views) applyEndsBehind(at int64, e *record.TxnEnd) error {
	if len(e.Committed) > 0 && !v.exists(e.Topic) {
		return nil
	}
	known := record.TxnEnd{Topic: e.Topic, Source: e.Source}
	for _, p := range e.Committed {
		entry := queue.Entry{Pos: p.Half, Time: at}
		h, is := v.txns.Get(p.Half)
		if is {
			entry.Size, entry.TagHash, entry.GroupHash = h.Size, h.TagHash, h.GroupHash
		} else {
			v.hole.forced++
		}
		placed, err := v.placeBehind(queue.Key{Topic: e.Topic, Queue: p.Queue}, p.Offset, entry)
		if err != nil {
			return err
		}
		if placed && is {
			known.Committed = append(known.Committed, p)
		}
	}
	for _, half := range e.RolledBack {
		if _, ok := v.txns.Get(half); ok {
			known.RolledBack = append(known.RolledBack, half)
		}
	}
	return v.txns.End(&known, at)
}

// applyChecksBehind leaves out checks of half messages that are lost.
func (v *views) applyChecksBehind(c *record.TxnCheck) error {
	known := *c
	known.Items = nil
	for _, it := range c.Items {
		if _, ok := v.txns.Get(it.Half); ok {
			known.Items = append(known.Items, it)
		}
	}
	return v.txns.Check(&known)
}

// applyLiteBehind makes or deletes a lite topic whatever became of those before it.
func (v *views) applyLiteBehind(at int64, m *record.Meta) error {
	id, q := record.TopicID(m.ID), record.QueueID(m.Version)
	if !v.exists(id) || !lite.Is(q) {
		return mqerr.New(mqerr.Corrupt, "lite topic %q in queue %d of topic %d", m.Name, q, id)
	}
	if m.Deleted {
		if v.lite.At(id, q) == nil {
			return nil
		}
		return v.applyLiteRecord(at, m)
	}
	if old := v.lite.Named(id, string(m.Name)); old != nil && old.Queue != q { // its deletion is lost
		gone := lite.Meta(id, old.Queue, old.Name, true)
		if err := v.applyLiteRecord(at, &gone); err != nil {
			return err
		}
	}
	v.lite.Lost(id, q)
	return v.applyLiteRecord(at, m)
}

// applyChecks takes checks that were sent, or put off.
func (v *views) applyChecks(c *record.TxnCheck) error {
	if v.hole != nil {
		return v.applyChecksBehind(c)
	}
	return v.txns.Check(c)
}

// applyRecall takes recalls. Those of messages that are lost are nothing.
func (v *views) applyRecall(at int64, c *record.Recall) error {
	if v.hole == nil {
		return v.timers.ApplyRecall(c, at)
	}
	for i := range c.Items {
		one := record.Recall{Topic: c.Topic, Items: c.Items[i : i+1]}
		if err := v.timers.ApplyRecall(&one, at); err != nil && !mqerr.Is(err, mqerr.Corrupt) {
			return err
		}
	}
	return nil
}
