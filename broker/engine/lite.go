package engine

import (
	"time"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// liteTopics is what the writer keeps of the lite topics of one parent beside the views: how far each
// queue may be seen, and who subscribes.
type liteTopics struct {
	queues map[record.QueueID]*queueState
	groups map[record.GroupID]*liteGroup
}

// isLite reports whether a group reads the lite topics of t, instead of t's own queues.
func isLite(t *topicState, g *group.Definition) bool {
	return g.LiteTopic != "" && g.LiteTopic == t.def.Name
}

// queue returns the state of a queue of the topic or of one of its lite topics, nil if it does not exist.
func (t *topicState) queue(q record.QueueID) *queueState {
	if lite.Is(q) {
		return t.lite.queues[q]
	}
	if q < 0 || int(q) >= len(t.queues) {
		return nil
	}
	return &t.queues[q]
}

// loadLite builds the queues of a topic's lite topics from the views.
func (t *topics) loadLite(s *topicState, id record.TopicID) {
	s.lite = liteTopics{queues: map[record.QueueID]*queueState{}, groups: map[record.GroupID]*liteGroup{}}
	t.w.views.lite.Each(id, func(c *lite.Topic) {
		_, next := t.w.views.queues.Bounds(queue.Key{Topic: id, Queue: c.Queue})
		s.lite.queues[c.Queue] = &queueState{next: next, visible: next}
	})
}

// applyLite makes a lite topic, or deletes it with all that it holds.
func (v *views) applyLite(at int64, m *record.Meta) error {
	if v.hole != nil {
		return v.applyLiteBehind(at, m)
	}
	return v.applyLiteRecord(at, m)
}

func (v *views) applyLiteRecord(at int64, m *record.Meta) error {
	if v.topics.Get(record.TopicID(m.ID)) == nil {
		return mqerr.New(mqerr.Corrupt, "lite topic %q is of topic %d, which does not exist there", m.Name, m.ID)
	}
	if err := v.lite.Apply(m, at); err != nil {
		return err
	}
	if m.Deleted {
		k := queue.Key{Topic: record.TopicID(m.ID), Queue: record.QueueID(m.Version)}
		v.queues.DropQueue(k)
		v.carried.DropQueue(k)
		v.groups.Each(func(g *group.Definition) { v.pop.DropQueue(popKey(g, k)) })
	}
	return nil
}

// liteSend refuses messages whose lite topics do not fit one send.
func liteSend(messages []brokerapi.Message) error {
	name := messages[0].Lite
	for i := range messages {
		m := &messages[i]
		switch {
		case m.Lite != name:
			return mqerr.New(mqerr.Invalid, "messages of one send for the lite topics %q and %q: send them one by one", name, m.Lite)
		case (m.Type == brokerapi.Lite) != (name != ""):
			return mqerr.New(mqerr.Invalid, "a message of type %d with the lite topic %q", m.Type, name)
		case len(name) > lite.NameMax:
			return mqerr.New(mqerr.Invalid, "the name of a lite topic has %d bytes: at most %d", len(name), lite.NameMax)
		case name != "" && m.Queue != brokerapi.AnyQueue:
			return mqerr.New(mqerr.Invalid, "a message of lite topic %q for queue %d: the broker chooses it", name, m.Queue)
		}
	}
	return nil
}

// liteQueue returns the queue of a lite topic, which its first message makes. bytes is what the send
// needs beside.
func (w *writer) liteQueue(t *topicState, name string, bytes int) (record.QueueID, error) {
	if c := w.views.lite.Named(t.def.ID, name); c != nil {
		return c.Queue, nil
	}
	q, ok := w.views.lite.Next(t.def.ID)
	if n := w.views.lite.Count(t.def.ID); !ok || n >= w.e.o.LiteTopics {
		w.e.counts.LiteRefused.Add(1)
		return 0, mqerr.New(mqerr.QuotaExceeded, "topic %s has %d lite topics on this broker, as many as it may: they go by themselves after %v without a message",
			t.def.Name, n, time.Duration(w.e.liteExpiry(t.def))*time.Millisecond)
	}
	if !w.hasSpace(space.Producer, bytes+metaBytes) {
		return 0, w.noSpace(space.Producer)
	}
	m := lite.Meta(t.def.ID, q, name, false)
	w.meta(&m)
	t.lite.queues[q] = &queueState{}
	w.lite.watch(t.def.ID, q, w.stamp+w.e.liteExpiry(t.def))
	return q, nil
}

// shown lets those know who may want messages that became visible.
func (w *writer) shown(t *topicState, q record.QueueID) {
	if !lite.Is(q) {
		w.ready.topic(t)
		return
	}
	for id := range t.lite.groups {
		w.liteWake(t, id, q)
	}
}

// liteFree lets a group's clients look again at a queue in which a message was done: those behind it may
// have waited for that.
func (w *writer) liteFree(t *topicState, g *group.Definition, q record.QueueID) {
	if lite.Is(q) && w.readyIn(t, g, q) > 0 {
		w.liteWake(t, g.ID, q)
	}
}
