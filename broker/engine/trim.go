package engine

import (
	"math"
	"slices"

	"github.com/perigee-mq/perigee/broker/carry"
	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/broker/offset"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/redriven"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// applyTrim takes a TRIM record: queues begin later, for every group. The last one of a step says that
// nothing refers to what lies below its position any more.
func (v *views) applyTrim(t *record.Trim) error {
	items, err := v.trimmable(t.Queues)
	if err != nil {
		return err
	}
	lost, err := v.unreadOf(items)
	if err != nil {
		return err
	}
	for r, n := range lost.of {
		v.carried.Lose(r, n)
	}
	v.trimPop(items)
	for i := range items {
		it := &items[i]
		v.queues.DropBefore(keyOf(it), it.First)
		v.redriven.Forget(redriven.Key{Topic: it.Topic, Queue: it.Queue}, it.First)
		if err := v.carried.Hold(keyOf(it), it.Held); err != nil {
			return err
		}
	}
	if t.Last {
		v.carried.Finish(t.At)
		v.epochs.dropBelow(t.At)
		v.index.DropBefore(t.At)
		v.dups.LostBefore(t.At, t.Time)
	}
	return nil
}

// trimmable are the queues of a TRIM, none of which may end before it is to begin. Behind a hole one that does gets
// what it lacks, or is left out, and counted.
func (v *views) trimmable(items []record.TrimQueue) ([]record.TrimQueue, error) {
	fit := items[:0:0]
	for i := range items {
		it := &items[i]
		if v.hole != nil {
			if err := v.fill(keyOf(it), it.First, v.stamp); err != nil && !mqerr.Is(err, mqerr.Corrupt) {
				return nil, err
			}
		}
		_, hi := v.queues.Bounds(keyOf(it))
		switch {
		case it.First <= hi:
			fit = append(fit, *it)
		case v.hole == nil:
			return nil, mqerr.New(mqerr.Corrupt, "topic %d queue %d is to begin at offset %d, it ends at %d", it.Topic, it.Queue, it.First, hi)
		default:
			v.hole.dropped++
		}
	}
	return fit, nil
}

func keyOf(it *record.TrimQueue) queue.Key { return queue.Key{Topic: it.Topic, Queue: it.Queue} }

// trimPop ends what lies below the new first offsets for every group, but for what is held.
func (v *views) trimPop(items []record.TrimQueue) {
	if len(items) == 0 {
		return
	}
	named := byKey(items)
	var keys []pop.Key
	v.pop.EachKnown(func(k pop.Key) {
		if named[queue.Key{Topic: k.Topic, Queue: k.Queue}] != nil {
			keys = append(keys, k)
		}
	})
	for _, k := range keys {
		it := named[queue.Key{Topic: k.Topic, Queue: k.Queue}]
		held := make([]record.QueueOffset, len(it.Held))
		for i := range it.Held {
			held[i] = it.Held[i].Offset
		}
		v.pop.Trim(k, it.First, held, nil)
	}
}

func byKey(items []record.TrimQueue) map[queue.Key]*record.TrimQueue {
	named := make(map[queue.Key]*record.TrimQueue, len(items))
	for i := range items {
		named[keyOf(&items[i])] = &items[i]
	}
	return named
}

// losses are the messages that queues lose before somebody has read them.
type losses struct {
	of map[carry.Reader]int64
	// orphans are messages of queues that nobody reads.
	orphans int64
}

// total is how many times a message is lost to somebody.
func (l *losses) total() int64 {
	n := int64(0)
	for _, lost := range l.of {
		n += lost
	}
	return n
}

// readers are those who read queues, by what the views know of them: groups that were handed messages of a
// topic, which read all of its queues; groups that were handed messages of a lite topic, which is a queue of
// its own; and groups that have stored a position in a queue.
type readers struct {
	handed map[queue.Key][]record.GroupID
	topics map[record.TopicID]map[record.GroupID]bool
	pulled map[queue.Key][]pulling
}

type pulling struct {
	group record.GroupID
	at    record.QueueOffset
}

// readersOf finds the readers of topics; nil stands for all topics.
func (v *views) readersOf(of map[record.TopicID]bool) readers {
	r := readers{handed: map[queue.Key][]record.GroupID{}, topics: map[record.TopicID]map[record.GroupID]bool{}, pulled: map[queue.Key][]pulling{}}
	v.pop.EachQueue(func(k pop.Key) {
		if of != nil && !of[k.Topic] {
			return
		}
		key := queue.Key{Topic: k.Topic, Queue: k.Queue}
		r.handed[key] = append(r.handed[key], k.Group)
		if lite.Is(k.Queue) {
			return
		}
		if r.topics[k.Topic] == nil {
			r.topics[k.Topic] = map[record.GroupID]bool{}
		}
		r.topics[k.Topic][k.Group] = true
	})
	v.pulled.Each(func(k offset.Key, at record.QueueOffset) {
		if of != nil && !of[k.Topic] || r.topics[k.Topic][k.Group] {
			return // who receives as well is judged by what it received
		}
		key := queue.Key{Topic: k.Topic, Queue: k.Queue}
		r.pulled[key] = append(r.pulled[key], pulling{k.Group, at})
	})
	return r
}

// fresh calls fn for the groups that read a queue as one of its topic and were handed nothing of it yet.
func (r *readers) fresh(key queue.Key, fn func(g record.GroupID)) {
	if lite.Is(key.Queue) {
		return
	}
	for g := range r.topics[key.Topic] {
		if !slices.Contains(r.handed[key], g) {
			fn(g)
		}
	}
}

// none tells whether nobody reads a queue.
func (r *readers) none(key queue.Key) bool {
	return len(r.handed[key]) == 0 && len(r.pulled[key]) == 0 && (lite.Is(key.Queue) || len(r.topics[key.Topic]) == 0)
}

// unreadOf counts what items make queues lose before somebody has read it. It changes nothing.
func (v *views) unreadOf(items []record.TrimQueue) (losses, error) {
	l := losses{of: map[carry.Reader]int64{}}
	of := map[record.TopicID]bool{}
	for i := range items {
		of[items[i].Topic] = true
	}
	if len(of) == 0 {
		return l, nil
	}
	r := v.readersOf(of)
	for i := range items {
		it := &items[i]
		key := keyOf(it)
		lo, _ := v.queues.Bounds(key)
		lose := func(g record.GroupID, from record.QueueOffset) {
			if from = max(from, lo); from < it.First {
				l.of[reader(g, it.Topic)] += v.unmoved(key, from, it.First)
			}
		}
		for _, g := range r.handed[key] {
			v.pop.Unread(pop.Key{Group: g, Topic: it.Topic, Queue: it.Queue}, it.First, func(from, to record.QueueOffset) {
				if from = max(from, lo); from < to {
					l.of[reader(g, it.Topic)] += v.unmoved(key, from, to)
				}
			})
		}
		for _, p := range r.pulled[key] {
			lose(p.group, p.at)
		}
		var failed error
		r.fresh(key, func(g record.GroupID) {
			at, err := v.startOf(key, v.groups.Get(g))
			if err != nil {
				failed = err
			}
			lose(g, at)
		})
		if failed != nil {
			v.unread = true
			return l, failed
		}
		if r.none(key) && lo < it.First {
			l.orphans += v.unmoved(key, lo, it.First)
		}
	}
	return l, nil
}

// unmoved is how many messages of [from, to) are no dead letters that were moved on.
func (v *views) unmoved(key queue.Key, from, to record.QueueOffset) int64 {
	return int64(to-from) - v.redriven.Count(redriven.Key{Topic: key.Topic, Queue: key.Queue}, from, to)
}

// startOf is where a group begins on a queue of which it was handed nothing; nil begins nowhere.
func (v *views) startOf(key queue.Key, g *group.Definition) (record.QueueOffset, error) {
	first, _ := v.queues.Bounds(key)
	switch {
	case g == nil:
		return math.MaxInt64, nil
	case g.From == group.FromLast:
		return v.afterLogged(key, g)
	case g.From == group.FromTime:
		return v.queues.SeekTime(key, g.FromMS)
	}
	return first, nil
}

// oldestUnread is the first offset of a queue that somebody who reads it has not been handed, or the first
// of all if nobody reads it.
func (v *views) oldestUnread(r *readers, key queue.Key) (record.QueueOffset, error) {
	lo, hi := v.queues.Bounds(key)
	if r.none(key) {
		return lo, nil
	}
	at := hi
	for _, g := range r.handed[key] {
		if off, known := v.pop.OldestUnread(pop.Key{Group: g, Topic: key.Topic, Queue: key.Queue}); known {
			at = min(at, off)
		}
	}
	for _, p := range r.pulled[key] {
		at = min(at, p.at)
	}
	var failed error
	r.fresh(key, func(g record.GroupID) {
		off, err := v.startOf(key, v.groups.Get(g))
		if err != nil {
			failed = err
		}
		at = min(at, off)
	})
	return max(at, lo), failed
}

// isDone tells whether everybody who reads a queue has done a message; false if nobody reads it.
func (v *views) isDone(r *readers, key queue.Key, off record.QueueOffset) bool {
	if r.none(key) {
		return false
	}
	for _, g := range r.handed[key] {
		if v.pop.IsUndone(pop.Key{Group: g, Topic: key.Topic, Queue: key.Queue}, off) {
			return false
		}
	}
	for _, p := range r.pulled[key] {
		if off >= p.at {
			return false
		}
	}
	done := true
	r.fresh(key, func(record.GroupID) { done = false })
	return done
}
