package engine

import (
	"context"

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
	err := e.call(ctx, func(w *writer) {
		var s sizesOp
		s.run(w)
		out.Sizes = s.out
		for _, d := range w.views.topics.All() {
			t := w.topics.byID[d.ID]
			out.Topics = append(out.Topics, TopicFigures{Topic: d.Name, Messages: t.in.messages, Bytes: t.in.bytes, Timers: w.views.timers.Waiting(d.ID)})
			for id, u := range t.subs {
				if g := w.views.groups.Get(id); g != nil {
					out.Groups = append(out.Groups, w.figures(t, u, g.Name))
				}
			}
		}
	})
	if err != nil {
		return nil, err // the writer may still be at it
	}
	return out, nil
}

func (w *writer) figures(t *topicState, u *sub, name string) GroupFigures {
	f := GroupFigures{Topic: t.def.Name, Group: name, Messages: u.out.messages, Bytes: u.out.bytes, NowMS: w.stamp}
	g := w.views.groups.Get(u.group)
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
