package engine

import (
	"context"
	"slices"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/offset"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// Snapshot is what metrics show of the views. The figures of each group are exact at one moment; those of
// different groups may be of different moments, so that no turn of the writer looks at many.
type Snapshot struct {
	Sizes
	Topics []TopicFigures
	Groups []GroupFigures
	// TopicsLeft is how many topics are not in Topics because of the limit.
	TopicsLeft int
	// GroupsLeft is how many pairs of a topic and a group are not in Groups: because of the limit, or because
	// there was no time to look at them.
	GroupsLeft int
	// AgesLeft is how many of Groups have ready messages whose age there was no time to look up.
	AgesLeft int
}

// TopicFigures are the figures of one topic.
type TopicFigures struct {
	Topic           string
	Messages, Bytes int64 // stored since the start
	Timers          int   // messages that wait for their time
}

// GroupFigures are the figures of a group on a topic that it reads: it has received or pulled from it at any
// time, or waits for its messages now.
type GroupFigures struct {
	Topic, Group             string
	Messages, Bytes          int64 // handed out since the start
	Ready, InFlight, Waiting int64
	OldestMS                 int64 // store time of the oldest ready message, 0 if none or unknown
	NowMS                    int64 // store time of the figures
	OverMax                  int64 // deliveries past the group's max attempts, since the start
	Lost                     int64 // messages that retention deleted before the group had read them, since the group exists

	oldest []queueSpot // the first ready message of each queue
}

// queueSpot is one message of a queue.
type queueSpot struct {
	key queue.Key
	off record.QueueOffset
}

// pair is a group on a topic.
type pair struct {
	topic record.TopicID
	group record.GroupID
}

// What one turn of the writer does at most for a snapshot, and how many entries of consume queues are read
// for one beside it: each may be a read from the disk.
const (
	topicsATurn = 500
	queuesATurn = 1000
	agesMax     = 20_000
)

// Snapshot returns figures of at most limit topics, and of at most limit groups on these topics, the first by id. A
// bounded part of them is taken in each turn of the writer. When ctx ends meanwhile, what is not known yet
// is left out.
func (e *Engine) Snapshot(ctx context.Context, limit int) (*Snapshot, error) {
	out := new(Snapshot)
	var ids []record.TopicID
	err := e.call(ctx, func(w *writer) {
		var s sizesOp
		s.run(w)
		out.Sizes = s.out
		for _, d := range w.views.topics.All() {
			ids = append(ids, d.ID)
		}
	})
	if err != nil {
		return nil, err // the writer may still be at it
	}
	if n := len(ids) - limit; n > 0 {
		out.TopicsLeft, ids = n, ids[:limit]
	}
	var pairs []pair
	for some := range slices.Chunk(ids, topicsATurn) {
		var topics []TopicFigures
		var found []pair
		if err := e.call(ctx, func(w *writer) {
			topics, found = w.topicFigures(some)
		}); err != nil {
			return nil, err
		}
		out.Topics = append(out.Topics, topics...)
		out.GroupsLeft += max(0, len(found)-(limit-len(pairs)))
		pairs = append(pairs, found[:min(len(found), limit-len(pairs))]...)
	}
	e.groupFigures(ctx, pairs, out)
	e.ages(ctx, out)
	return out, nil
}

// topicFigures returns the figures of topics and the groups that read them.
func (w *writer) topicFigures(ids []record.TopicID) (figures []TopicFigures, pairs []pair) {
	var groups []record.GroupID
	for _, id := range ids {
		t := w.topics.byID[id]
		if t == nil {
			continue // deleted meanwhile
		}
		figures = append(figures, TopicFigures{Topic: t.def.Name, Messages: t.in.messages, Bytes: t.in.bytes, Timers: w.views.timers.Waiting(id)})
		groups = w.views.pop.AppendGroups(groups[:0], id)
		groups = w.views.pulled.AppendGroups(groups, id)
		for g := range t.subs {
			groups = append(groups, g)
		}
		slices.Sort(groups)
		for _, g := range slices.Compact(groups) {
			if w.views.groups.Get(g) != nil {
				pairs = append(pairs, pair{id, g})
			}
		}
	}
	return figures, pairs
}

// groupFigures adds the figures of pairs to out, a bounded number of queues a turn.
func (e *Engine) groupFigures(ctx context.Context, pairs []pair, out *Snapshot) {
	begun := new(figures)
	if len(pairs) > 0 && e.caughtUp(ctx) != nil {
		out.GroupsLeft += len(pairs)
		return
	}
	for len(pairs) > 0 {
		var done []*figures
		if err := e.call(ctx, func(w *writer) { done, begun = w.addUp(pairs, begun) }); err != nil {
			out.GroupsLeft += len(pairs)
			return
		}
		for i, f := range done {
			switch {
			case f.of == nil: // deleted meanwhile
			case f.lite && e.addLites(ctx, pairs[i], &f.GroupFigures) != nil:
				out.GroupsLeft++
			default:
				out.Groups = append(out.Groups, f.GroupFigures)
			}
		}
		pairs = pairs[len(done):]
	}
}

// addUp adds up the first of pairs, as many as a turn may, and returns one more that is begun.
func (w *writer) addUp(pairs []pair, f *figures) (done []*figures, begun *figures) {
	budget := queuesATurn
	for len(done) < len(pairs) && budget > 0 {
		if !f.add(w, pairs[len(done)], &budget) {
			break
		}
		done, f = append(done, f), new(figures)
	}
	return done, f
}

// addLites fills the figures of a group that reads lite topics: they are added up turn by turn.
func (e *Engine) addLites(ctx context.Context, p pair, f *GroupFigures) error {
	sum, err := e.liteSum(ctx, brokerapi.TopicID(p.topic), brokerapi.GroupID(p.group))
	f.Ready, f.InFlight, f.Waiting, f.OldestMS = sum.Ready, sum.InFlight, sum.Waiting, sum.OldestMS
	return err
}

// figures are those of one pair while they are added up.
type figures struct {
	GroupFigures
	of    *group.Definition // nil: the pair is gone
	lite  bool              // it reads lite topics
	queue int               // the next to look at
}

// seekCost is what it costs, in queues, to find where a group begins that has not read a queue yet: entries may
// have to be read from the disk.
const seekCost = 50

// add looks at queues of a pair while there is budget for them, and tells whether all were looked at. The
// figures of a pair that takes more than one turn are exact for each queue.
func (f *figures) add(w *writer, p pair, budget *int) (over bool) {
	*budget--
	t, g := w.topics.byID[p.topic], w.views.groups.Get(p.group)
	if f.of = g; t == nil || g == nil {
		f.of = nil
		return true
	}
	f.Topic, f.Group, f.NowMS, f.lite = t.def.Name, g.Name, w.stamp, isLite(t, g)
	if u := t.subs[p.group]; u != nil && f.queue == 0 {
		f.Messages, f.Bytes = u.out.messages, u.out.bytes
		for _, n := range u.overMax {
			f.OverMax += n
		}
	}
	f.Lost = w.views.carried.Lost(reader(p.group, p.topic))
	if f.lite {
		return true
	}
	w.catchUp()
	for ; f.queue < len(t.queues); f.queue++ {
		if *budget <= 0 {
			return false
		}
		*budget--
		f.addQueue(w, t, p, record.QueueID(f.queue), budget)
	}
	return true
}

// addQueue adds one queue. A group that only pulls has everything behind its position before it.
func (f *figures) addQueue(w *writer, t *topicState, p pair, q record.QueueID, budget *int) {
	key, visible := queue.Key{Topic: p.topic, Queue: q}, t.queues[q].visible
	k := pop.Key{Group: p.group, Topic: p.topic, Queue: q}
	s := w.views.pop.Stats(k)
	if !w.views.pop.Started(k) {
		at, pulls := w.views.pulled.Get(offset.Key{Group: p.group, Topic: p.topic, Queue: q})
		if !pulls {
			if f.of.From != group.FromFirst {
				*budget -= seekCost
			}
			at = w.startOf(t, f.of, q)
		}
		first, _ := w.views.queues.Bounds(key)
		s.Next = max(at, first)
	}
	fresh := max(0, int64(visible-s.Next))
	f.InFlight += s.InFlight
	f.Waiting += s.Waiting
	f.Ready += s.Ready + fresh
	switch {
	case s.Ready > 0:
		f.oldest = append(f.oldest, queueSpot{key, s.FirstReady})
	case fresh > 0:
		f.oldest = append(f.oldest, queueSpot{key, s.Next})
	}
}

// ages looks up how old the oldest ready messages are, beside the writer. A message that was looked up before
// is as old as it was: entries never change.
func (e *Engine) ages(ctx context.Context, out *Snapshot) {
	e.ageMu.Lock()
	defer e.ageMu.Unlock()
	known := make(map[queueSpot]int64, len(e.agesKnown))
	reads := 0
	for i := range out.Groups {
		g := &out.Groups[i]
		least, whole := int64(0), true
		for _, s := range g.oldest {
			at, ok := e.agesKnown[s]
			if !ok {
				if at, ok = known[s]; !ok && reads < agesMax && ctx.Err() == nil {
					reads++
					entry, err := e.o.Store.Queues().At(s.key, s.off)
					at, ok = entry.Time, err == nil
				}
			}
			if whole = whole && ok; !ok {
				break
			}
			known[s] = at
			least = older(least, at)
		}
		if g.oldest = nil; whole {
			g.OldestMS = older(g.OldestMS, least)
		} else {
			g.OldestMS = 0
			out.AgesLeft++
		}
	}
	e.agesKnown = known
}
