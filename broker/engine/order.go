package engine

import (
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// ordered tells whether a group is handed messages in order, as of this place in the log.
func (v *views) ordered(id record.GroupID) bool {
	g := v.groups.Get(id)
	return g != nil && g.InOrder()
}

// applyGroup creates, changes or deletes a group. What is in flight stays as it is when the group is
// handed messages in order from here on, or not any more.
func (v *views) applyGroup(pos record.Pos, at int64, m *record.Meta) error {
	id := record.GroupID(m.ID)
	was := v.ordered(id)
	if err := v.groups.Apply(pos, at, m); err != nil {
		return err
	}
	if is := v.ordered(id); is != was {
		return v.pop.SetOrdered(id, is)
	}
	return nil
}

// messageGroups reads the message-group hashes of messages from off on. Of what retention deleted those that
// are held have theirs, all else counts
// as one without a message group.
func (v *views) messageGroups(k pop.Key, off record.QueueOffset, dst []uint64) (int, error) {
	key := queue.Key{Topic: k.Topic, Queue: k.Queue}
	if first, _ := v.queues.Bounds(key); off < first {
		n := int(min(int64(first-off), int64(len(dst))))
		for i := range n {
			e, _ := v.carried.Held(key, off+record.QueueOffset(i))
			dst[i] = e.GroupHash
		}
		return n, nil
	}
	var entries [scanBuffer]queue.Entry
	n, err := v.queues.Read(key, off, entries[:min(len(dst), scanBuffer)])
	for i := range n {
		dst[i] = entries[i].GroupHash
	}
	if n > 0 {
		return n, nil
	}
	v.unread = v.unread || err != nil
	return 0, err
}

// putLease logs and applies a lease, which may have no item. Acks of this turn come first if the group
// is ordered: a message must not stand in the log before the end of the one it waited for.
func (w *writer) putLease(ck *record.PopCk) record.Pos {
	if ck.Ordered && w.acks.ordered {
		w.flushAcks()
	}
	pos := w.put(record.TypePopCk, record.PopCkSize(ck), func(body []byte) { record.PutPopCk(body, ck) })
	if err := w.views.pop.ApplyLease(pos, ck); err != nil {
		w.broken(err)
	}
	return pos
}

// changed notes that a group was defined anew: what waited for its turn may be ready.
func (w *writer) changed(id record.GroupID) {
	w.refit(id)
	for _, t := range w.topics.byID {
		if u := t.subs[id]; u != nil {
			w.ready.note(u)
		}
	}
}
