package engine

import (
	"context"
	"slices"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

const (
	// liteListMax bounds the lite topics of one reply.
	liteListMax = 1024
	// liteSumOnce is how many lite topics one turn of the writer adds up.
	liteSumOnce = 512
	// liteSumQueue stands for all lite topics of a parent in a group's figures.
	liteSumQueue brokerapi.QueueID = -1
)

// LiteList lists lite topics of a parent by name.
func (s *session) LiteList(ctx context.Context, req *brokerapi.LiteListRequest) (*brokerapi.LiteListReply, error) {
	if req.Max < 0 || req.Max > liteListMax {
		return nil, mqerr.New(mqerr.Invalid, "%d lite topics in one answer: 0 to %d", req.Max, liteListMax)
	}
	out := &brokerapi.LiteListReply{}
	var names []string
	var failed error
	err := s.call(ctx, func(w *writer) {
		t, err := w.topicOf(req.Topic)
		if err != nil {
			failed = err
			return
		}
		out.Count = w.views.lite.Count(t.def.ID)
		if req.Max > 0 {
			w.views.lite.Each(t.def.ID, func(c *lite.Topic) {
				if c.Name > req.After {
					names = append(names, c.Name)
				}
			})
		}
	})
	if err != nil {
		return nil, err // the writer may still be at it
	}
	if failed != nil || len(names) == 0 {
		return out, failed
	}
	slices.Sort(names)
	if out.More = len(names) > req.Max; out.More {
		names = names[:req.Max]
	}
	err = s.call(ctx, func(w *writer) {
		if t := w.topics.byID[record.TopicID(req.Topic)]; t != nil {
			for _, name := range names {
				if c := w.views.lite.Named(t.def.ID, name); c != nil {
					out.Topics = append(out.Topics, w.describeLite(t, c))
				}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (w *writer) describeLite(t *topicState, c *lite.Topic) brokerapi.LiteTopic {
	first, _ := w.views.queues.Bounds(queue.Key{Topic: t.def.ID, Queue: c.Queue})
	out := brokerapi.LiteTopic{Name: c.Name, Min: brokerapi.QueueOffset(first), Max: brokerapi.QueueOffset(t.queue(c.Queue).visible), ActiveMS: c.ActiveMS}
	for _, lg := range t.lite.groups {
		out.Subscribers += len(lg.names[c.Name])
	}
	return out
}

// liteSum adds up what a group has left to do in the lite topics of a parent, turn by turn: in those that it
// has read or that a living client of it subscribes to. The figures are of the time of their turns. They
// are 0 for a group that does not read lite topics of this topic.
func (e *Engine) liteSum(ctx context.Context, topic brokerapi.TopicID, id brokerapi.GroupID) (sum brokerapi.GroupQueue, err error) {
	sum.Queue = liteSumQueue
	var children []record.QueueID
	var failed error
	err = e.call(ctx, func(w *writer) {
		t, g, err := w.lookUp(&brokerapi.Head{}, topic, id)
		if failed = err; err != nil {
			return
		}
		if isLite(t, g) {
			w.views.lite.Each(t.def.ID, func(c *lite.Topic) { children = append(children, c.Queue) })
		}
		sum.MaxInFlight, sum.MaxInFlightClient = w.inFlightBounds(g)
		sum.Lost = w.views.carried.Lost(reader(g.ID, t.def.ID))
		if u := t.subs[g.ID]; u != nil {
			for _, n := range u.overMax {
				sum.OverMax += n
			}
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return brokerapi.GroupQueue{}, err
	}
	for some := range slices.Chunk(children, liteSumOnce) {
		var part brokerapi.GroupQueue
		if err := e.call(ctx, func(w *writer) {
			t, g, err := w.lookUp(&brokerapi.Head{}, topic, id)
			if err != nil {
				return // deleted meanwhile: nothing is left of it
			}
			for _, q := range some {
				if c := w.views.lite.At(t.def.ID, q); c != nil {
					w.addLite(t, g, c, &part)
				}
			}
		}); err != nil {
			return brokerapi.GroupQueue{}, err
		}
		sum.InFlight, sum.Ready, sum.Waiting = sum.InFlight+part.InFlight, sum.Ready+part.Ready, sum.Waiting+part.Waiting
		sum.Used = sum.Used || part.Used
		sum.OldestMS = older(sum.OldestMS, part.OldestMS)
	}
	return sum, nil
}

// addLite adds what a group has left to do in one lite topic.
func (w *writer) addLite(t *topicState, g *group.Definition, c *lite.Topic, sum *brokerapi.GroupQueue) {
	read := w.views.pop.Started(popKey(g, queue.Key{Topic: t.def.ID, Queue: c.Queue}))
	if lg := t.lite.groups[g.ID]; !read && (lg == nil || len(lg.names[c.Name]) == 0) {
		return
	}
	s := w.groupQueue(t, g, c.Queue)
	sum.InFlight += s.InFlight
	sum.Ready += s.Ready
	sum.Waiting += s.Waiting
	sum.Used = true
	sum.OldestMS = older(sum.OldestMS, s.OldestMS)
}

// older is the earlier of two times, 0 being none.
func older(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
