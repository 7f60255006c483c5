package engine

import (
	"context"
	"log/slog"
	"math"
	"slices"

	"github.com/perigee-mq/perigee/broker/carry"
	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/broker/offset"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/redriven"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// losses are the messages that queues lose before somebody has read them.
type losses struct {
	of map[carry.Reader]int64
	// orphans are messages of queues that nobody reads.
	orphans int64
	// unknown are readers of whom a damaged queue does not tell where they begin: what they lose is not counted.
	unknown []unknownBegin
}

// unknownBegin is a group that was handed nothing of a queue yet, and the damage that hides where it begins there.
type unknownBegin struct {
	carry.Reader
	*queue.Damage
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
			if d, damaged := queue.DamageOf(err); damaged {
				l.unknown = append(l.unknown, unknownBegin{reader(g, it.Topic), d})
				return
			}
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
// of all if nobody reads it, or if the queue is damaged where it would tell.
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
		if _, damaged := queue.DamageOf(err); damaged {
			off, err = lo, nil
		}
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

// report counts and logs what went before it was read: one line for each group.
func (s *step) report(ctx context.Context) {
	unread := int64(0)
	for _, n := range s.lost {
		unread += n
	}
	if unread == 0 {
		return
	}
	s.k.note(func(t *Retention) { t.Unread += unread })
	names := map[carry.Reader][2]string{}
	if err := s.e.call(ctx, func(w *writer) {
		for who := range s.lost {
			if t, g := w.views.topics.Get(who.Topic), w.views.groups.Get(who.Group); t != nil && g != nil {
				names[who] = [2]string{t.Name, g.Name}
			}
		}
	}); err != nil {
		return
	}
	for who, n := range s.lost {
		if n > 0 {
			s.e.o.Log.LogAttrs(ctx, slog.LevelWarn, "retention has deleted messages that a consumer group had not read; see perigee group describe, and --retention",
				slog.String("topic", names[who][0]), slog.String("group", names[who][1]), slog.Int64("messages", n))
		}
	}
}
