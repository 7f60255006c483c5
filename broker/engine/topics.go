package engine

import (
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// topics is what the writer keeps per topic beside the views: how far each queue may be seen, whose
// turn it is, who waits. It is rebuilt at every start.
type topics struct {
	w    *writer
	byID map[record.TopicID]*topicState
	// byName finds topics by name; where two have one, because the old is about to go, it is the new one.
	byName map[string]*topicState
	// hidden are queues with messages that nobody may see yet, in log order.
	hidden []hidden
}

// topicState is one topic.
type topicState struct {
	def    *topic.Definition
	sync   bool // messages show when durable, and records of leases follow
	queues []queueState
	turn   int // queue of the next message without a choice
	in     flow
	bad    bool // a damaged consume queue was reported
	subs   map[record.GroupID]*sub
	lite   liteTopics
}

// flow counts messages and the bytes of their records since the start.
type flow struct{ messages, bytes int64 }

func (f *flow) add(bytes int64) {
	f.messages++
	f.bytes += bytes
}

// queueState is one queue.
type queueState struct {
	next    record.QueueOffset // of the next message
	visible record.QueueOffset // messages below may be handed out
	grouped record.QueueOffset // none at or above has a message group; after a start that of the next message
}

// hidden says that the messages of a queue below off show once the log is written (durable) to end.
type hidden struct {
	topic *topicState
	queue record.QueueID
	off   record.QueueOffset
	end   record.Pos
	sync  bool
}

func (t *topics) init(w *writer) {
	t.w = w
	t.byID, t.byName = map[record.TopicID]*topicState{}, map[string]*topicState{}
}

// load builds the state of all topics from the views. Everything recovered is durable, so visible.
func (t *topics) load() {
	for _, d := range t.w.views.topics.All() {
		t.define(d)
	}
}

// define makes or changes the state of a topic.
func (t *topics) define(d *topic.Definition) {
	s := t.byID[d.ID]
	if s == nil {
		s = &topicState{subs: map[record.GroupID]*sub{}}
		t.byID[d.ID] = s
		t.loadLite(s, d.ID)
	}
	old := d.Limits
	if s.def != nil {
		old = s.def.Limits
	}
	s.def = d
	s.sync = d.Flush == topic.FlushSync || d.Flush == topic.FlushDefault && !t.w.e.o.Async
	for q := len(s.queues); q < d.Queues; q++ {
		_, next := t.w.views.queues.Bounds(queue.Key{Topic: d.ID, Queue: record.QueueID(q)})
		s.queues = append(s.queues, queueState{next: next, visible: next, grouped: next})
	}
	t.own(s)
	t.relimit(s, old)
}

// drop forgets a deleted topic and who waited on it.
func (t *topics) drop(id record.TopicID) {
	if s := t.byID[id]; s != nil {
		for _, u := range s.subs {
			t.w.ready.disarm(u)
		}
		for q := range s.queues {
			t.w.pulls.wake(id, record.QueueID(q))
		}
		t.w.lite.dropTopic(t.w, s)
		delete(t.byID, id)
		t.disown(id, s)
	}
}

// hide notes that messages of a queue up to off show later.
func (t *topics) hide(s *topicState, q record.QueueID, off record.QueueOffset, end record.Pos) {
	t.hidden = append(t.hidden, hidden{topic: s, queue: q, off: off, end: end, sync: s.sync})
}

// publish shows what may be seen by now. Entries of asynchronous topics are written when this runs;
// those of synchronous ones wait for the log's durable end.
func (t *topics) publish() {
	durable, written := t.w.e.shown(true), t.w.e.shown(false)
	keep := t.hidden[:0]
	for _, h := range t.hidden {
		if h.sync && h.end > durable || h.end > written {
			keep = append(keep, h)
			continue
		}
		if q := h.topic.queue(h.queue); q != nil && h.off > q.visible {
			q.visible = h.off
			t.w.pulls.wake(h.topic.def.ID, h.queue)
			t.w.shown(h.topic, h.queue)
		}
	}
	clear(t.hidden[len(keep):])
	t.hidden = keep
}

// waitSync reports whether messages wait for fdatasync to be seen.
func (t *topics) waitSync() bool { return len(t.hidden) > 0 }
