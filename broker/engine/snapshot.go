package engine

import (
	"context"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

// Snapshot is what metrics show of the views: exact at one moment.
type Snapshot struct {
	Sizes
	Topics []TopicFigures
	Groups []GroupFigures
}

// TopicFigures are the figures of one topic.
type TopicFigures struct {
	Topic           string
	Messages, Bytes int64 // stored since the start
	Timers          int   // messages that wait for their time
}

// GroupFigures are the figures of a group on a topic that it has read.
type GroupFigures struct {
	Topic, Group             string
	Messages, Bytes          int64 // handed out since the start
	Ready, InFlight, Waiting int64
	OldestMS                 int64 // store time of the oldest ready message, 0 if none
	NowMS                    int64 // store time of the snapshot
}

// Snapshot returns figures of all topics and groups.
func (e *Engine) Snapshot(ctx context.Context) (*Snapshot, error) {
	out := new(Snapshot)
	type pair struct {
		topic record.TopicID
		group record.GroupID
	}
	lites := map[int]pair{} // index in Groups
	err := e.call(ctx, func(w *writer) {
		var s sizesOp
		s.run(w)
		out.Sizes = s.out
		for _, d := range w.views.topics.All() {
			t := w.topics.byID[d.ID]
			out.Topics = append(out.Topics, TopicFigures{Topic: d.Name, Messages: t.in.messages, Bytes: t.in.bytes, Timers: w.views.timers.Waiting(d.ID)})
			for id, u := range t.subs {
				if g := w.views.groups.Get(id); g != nil {
					if isLite(t, g) {
						lites[len(out.Groups)] = pair{t.def.ID, id}
					}
					out.Groups = append(out.Groups, w.figures(t, u, g.Name))
				}
			}
		}
	})
	if err != nil {
		return nil, err // the writer may still be at it
	}
	for i, p := range lites {
		sum, err := e.liteSum(ctx, brokerapi.TopicID(p.topic), brokerapi.GroupID(p.group))
		if err != nil {
			continue // deleted meanwhile, or there was no time: what is known is shown
		}
		f := &out.Groups[i]
		f.Ready, f.InFlight, f.Waiting, f.OldestMS = sum.Ready, sum.InFlight, sum.Waiting, sum.OldestMS
	}
	return out, nil
}

func (w *writer) figures(t *topicState, u *sub, name string) GroupFigures {
	f := GroupFigures{Topic: t.def.Name, Group: name, Messages: u.out.messages, Bytes: u.out.bytes, NowMS: w.stamp}
	g := w.views.groups.Get(u.group)
	if isLite(t, g) {
		return f // added up turn by turn
	}
	for q := range t.queues {
		s := w.groupQueue(t, g, record.QueueID(q))
		f.Ready += s.Ready
		f.InFlight += s.InFlight
		f.Waiting += s.Waiting
		if s.OldestMS != 0 && (f.OldestMS == 0 || s.OldestMS < f.OldestMS) {
			f.OldestMS = s.OldestMS
		}
	}
	return f
}
