package engine

import (
	"container/heap"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// A lite topic goes LiteExpiry, or what its parent states, after its last message if no group has anything left to do in it. A group
// counts if it has read from it or has a living subscriber. After twice that time it goes in any case:
// what was left is counted and reported, and the log keeps it as long as it keeps anything of that time.

const (
	// liteExpiryMin is the least Options.LiteExpiry.
	liteExpiryMin = 15 * time.Minute
	// liteLook is when a lite topic with work left is looked at again, ms.
	liteLook = 15 * 60_000
	// litesOnce bounds what one turn of the writer looks at or lets go.
	litesOnce = 16
)

// liteEnd is when a client or a lite topic may go.
type liteEnd struct {
	at     int64
	client *liteClient
	topic  record.TopicID
	queue  record.QueueID
}

// load watches all lite topics of the views.
func (l *lites) load(w *writer) {
	for _, d := range w.views.topics.All() {
		l.add(w, d)
	}
	heap.Init(&l.old)
}

// add appends the lite topics of a parent; the heap has to be put in order again.
func (l *lites) add(w *writer, d *topic.Definition) {
	expiry := w.e.liteExpiry(d)
	w.views.lite.Each(d.ID, func(c *lite.Topic) {
		l.old = append(l.old, liteEnd{at: c.ActiveMS + expiry, topic: d.ID, queue: c.Queue})
	})
}

// reload watches the lite topics of a parent whose expiry has changed.
func (l *lites) reload(w *writer, d *topic.Definition) {
	l.old = slices.DeleteFunc(l.old, func(e liteEnd) bool { return e.topic == d.ID })
	l.add(w, d)
	heap.Init(&l.old)
}

// watch notes when a lite topic may go.
func (l *lites) watch(t record.TopicID, q record.QueueID, at int64) {
	heap.Push(&l.old, liteEnd{at: at, topic: t, queue: q})
}

// next is when the next client or lite topic may go, on the lease clock.
func (l *lites) next(w *writer) (int64, bool) {
	at, ok := int64(0), false
	if len(l.silent) > 0 {
		at, ok = l.silent[0].at, true
	}
	if len(l.old) > 0 {
		if t := w.lease + max(0, l.old[0].at-w.stamp); !ok || t < at {
			at, ok = t, true
		}
	}
	return at, ok
}

// endLites ends the subscriptions of clients that were silent for too long, and deletes lite topics that
// are over.
func (w *writer) endLites() {
	l := &w.lite
	for len(l.silent) > 0 && l.silent[0].at <= w.lease {
		c := heap.Pop(&l.silent).(liteEnd).client
		switch at := c.last + liteSilent; {
		case c.gone:
		case at > w.lease:
			heap.Push(&l.silent, liteEnd{at: at, client: c})
		default:
			l.forget(w, c)
		}
	}
	lost := map[string]int64{}
	for n := 0; n < litesOnce && len(l.old) > 0 && l.old[0].at <= w.stamp; n++ {
		w.endLite(heap.Pop(&l.old).(liteEnd), lost)
	}
	for name, n := range lost {
		w.e.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "lite topics without messages for long were deleted, messages in them were not consumed",
			slog.String("topic", name), slog.Int64("messages", n))
	}
}

// endLite deletes a lite topic, or looks at it again later.
func (w *writer) endLite(e liteEnd, lost map[string]int64) {
	t, c := w.topics.byID[e.topic], w.views.lite.At(e.topic, e.queue)
	if t == nil || c == nil {
		return
	}
	expiry := w.e.liteExpiry(t.def)
	if at := c.ActiveMS + expiry; at > w.stamp {
		w.lite.watch(e.topic, e.queue, at)
		return
	}
	undone, held := w.liteUndone(t, c)
	last := c.ActiveMS + 2*expiry
	switch {
	case held && w.stamp < last:
		w.lite.watch(e.topic, e.queue, min(last, w.stamp+liteLook))
		return
	case !w.hasSpace(space.Broker, metaBytes):
		w.lite.watch(e.topic, e.queue, w.stamp+noSpacePause)
		return
	}
	if undone > 0 {
		w.e.counts.LiteUndone.Add(undone)
		lost[t.def.Name] += undone
	}
	w.deleteLite(t, c)
}

// liteUndone counts the messages of a lite topic that the group with most to do has not done, all if
// nobody has read any. It is held if such a group has read from it or has a subscriber.
func (w *writer) liteUndone(t *topicState, c *lite.Topic) (undone int64, held bool) {
	k := queue.Key{Topic: t.def.ID, Queue: c.Queue}
	lo, hi := w.views.queues.Bounds(k)
	read := false
	w.views.groups.Each(func(g *group.Definition) {
		if !isLite(t, g) {
			return
		}
		left := int64(0)
		if pk := popKey(g, k); w.views.pop.Started(pk) {
			s := w.views.pop.Stats(pk)
			left = s.Ready + s.InFlight + s.Waiting + max(0, int64(hi-s.Next))
		} else if lg := t.lite.groups[g.ID]; lg != nil && len(lg.names[c.Name]) > 0 {
			left = max(0, int64(hi-w.startOf(t, g, c.Queue)))
		} else {
			return
		}
		read, undone = true, max(undone, left)
	})
	if !read {
		return int64(hi - lo), false
	}
	return undone, undone > 0
}

// deleteLite records that a lite topic is over, and tells its subscribers.
func (w *writer) deleteLite(t *topicState, c *lite.Topic) {
	m := lite.Meta(t.def.ID, c.Queue, c.Name, true)
	w.meta(&m)
	w.e.counts.LiteExpired.Add(1)
	delete(t.lite.queues, c.Queue)
	for _, u := range t.subs {
		delete(u.overMax, c.Queue)
	}
	for _, lg := range t.lite.groups {
		for s := range maps.Clone(lg.names[c.Name]) {
			w.liteGone(s)
		}
	}
}

// liteHeap has the earliest end first.
type liteHeap []liteEnd

func (h liteHeap) Len() int           { return len(h) }
func (h liteHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h liteHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *liteHeap) Push(x any)        { *h = append(*h, x.(liteEnd)) }
func (h *liteHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = liteEnd{}
	*h = old[:len(old)-1]
	return x
}
