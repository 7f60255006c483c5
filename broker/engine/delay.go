package engine

import (
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/broker/timer"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// delays is what the writer keeps about messages that wait for their time, beside the view. It delivers
// what is due at the store time of the turn: a wall clock that steps forward delivers what has become due,
// one that steps back delays nothing that was due before.
type delays struct {
	pause int64 // lease clock, ms: there was no room for a record, none before
	due   []timer.Entry
	items []record.Place
	next  []record.QueueOffset // of each queue, before a record
}

// Bounds of deliveries.
const (
	deliverMax  = 4096 // messages in one record
	deliverTurn = 8192 // messages in one turn; then requests get theirs
	placeBytes  = 48   // the most that a message takes in a record
	// delaySleep is how long the writer sleeps at most while messages wait, ms: it sleeps on the boot-time
	// clock, and a step of the wall clock must not go unnoticed.
	delaySleep = 1000
	// onTimeMS is how late a delivery may be and still count as on time.
	onTimeMS = 100
)

// delayed tells whether a message waits for its time first.
func (w *writer) delayed(m *brokerapi.Message) bool {
	return m.DeliverAt > w.stamp && m.Type != brokerapi.Transaction
}

// deliverDue makes records of what is due, so much in one turn that requests are not kept waiting.
func (w *writer) deliverDue() {
	if w.lease < w.delays.pause {
		return
	}
	for left := deliverTurn; left > 0 && w.bug == nil; {
		id, due, ok := w.views.timers.Next()
		if !ok || due > w.stamp {
			return
		}
		n := w.deliver(id, min(left, deliverMax))
		if n == 0 {
			w.delays.pause = w.lease + noSpacePause
			return
		}
		left -= n
	}
}

// deliver gives messages of a topic that are due a place in their queues, at most limit, in one record. It
// returns how many; 0 if the record might find no room.
func (w *writer) deliver(id record.TopicID, limit int) int {
	t, d := w.topics.byID[id], &w.delays
	if t == nil {
		w.broken(mqerr.New(mqerr.Corrupt, "messages of topic %d wait, which does not exist", id))
		return 0
	}
	d.due = w.views.timers.Due(id, w.stamp, limit, d.due[:0])
	if !w.hasSpace(space.Broker, 64+placeBytes*len(d.due)) {
		return 0
	}
	d.next = d.next[:0]
	for q := range t.queues {
		d.next = append(d.next, t.queues[q].next)
	}
	d.items = d.items[:0]
	for i := range d.due {
		e := &d.due[i]
		q := e.Queue
		if q == timer.AnyQueue {
			q = w.queueFor(t, 0)
		}
		d.items = append(d.items, record.Place{
			Queue: q, Offset: t.queues[q].next, Ref: e.Pos, Size: e.Size, TagHash: e.TagHash, GroupHash: e.GroupHash,
		})
		t.queues[q].next++
		t.queues[q].note(e.GroupHash)
		w.late(w.stamp - e.Due)
	}
	rec := record.Deliver{Topic: id, Items: d.items}
	w.put(record.TypeDeliver, record.DeliverSize(&rec), func(body []byte) { record.PutDeliver(body, &rec) })
	if err := w.views.applyDeliver(w.stamp, &rec); err != nil {
		w.broken(err)
	}
	for q := range t.queues {
		if next := t.queues[q].next; next != d.next[q] {
			w.topics.hide(t, record.QueueID(q), next, w.batch.End())
		}
	}
	return len(d.due)
}

// late counts a delivery that is ms behind its time.
func (w *writer) late(ms int64) {
	c := &w.e.counts
	c.Delivered.Add(1)
	c.LateMS.Add(ms)
	if ms >= onTimeMS {
		c.DeliveredLate.Add(1)
	}
	if ms > c.LateMaxMS.Load() {
		c.LateMaxMS.Store(ms)
	}
}

// nextDelivery is when the next message is due, on the lease clock, or when to look at the wall clock
// again.
func (w *writer) nextDelivery() (int64, bool) {
	_, due, ok := w.views.timers.Next()
	if !ok {
		return 0, false
	}
	at := w.lease
	if due > w.stamp {
		at += min(due-w.e.clock.Wall(), delaySleep)
	}
	return max(at, w.delays.pause), true
}

// applyTimer lets a stored message wait for its time.
func (v *views) applyTimer(pos record.Pos, size uint32, at int64, m *record.Msg) error {
	if !v.exists(m.Topic) {
		return mqerr.New(mqerr.Corrupt, "the message at %d is of topic %d, which does not exist there", pos, m.Topic)
	}
	return v.timers.Add(m.Topic, timer.Entry{
		Due: m.DeliverAt, Pos: pos, Size: size, Queue: m.Queue, TagHash: m.TagHash, GroupHash: m.GroupHash,
	}, at)
}

// applyDeliver gives messages that were due at a time their places.
func (v *views) applyDeliver(at int64, d *record.Deliver) error {
	if v.hole != nil {
		return v.applyDeliverBehind(at, d)
	}
	if err := v.timers.ApplyDeliver(d, at); err != nil {
		return err
	}
	for i := range d.Items {
		p := &d.Items[i]
		if err := v.place(queue.Key{Topic: d.Topic, Queue: p.Queue}, p.Offset, entryOfPlace(p, at)); err != nil {
			return err
		}
	}
	return nil
}

// entryOfPlace is the queue entry of a message that was stored before: it shows as of at.
func entryOfPlace(p *record.Place, at int64) queue.Entry {
	return queue.Entry{Pos: p.Ref, Size: p.Size, Time: at, TagHash: p.TagHash, GroupHash: p.GroupHash}
}
