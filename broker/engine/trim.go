package engine

import (
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
	if len(lost.unknown) > 0 && !v.live { // a replay of all of the log tells
		v.unread = true
		return lost.unknown[0]
	}
	for i := range lost.unknown {
		v.unbegun(&lost.unknown[i])
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
