package engine

import (
	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// topicOf finds a topic that is served here.
func (w *writer) topicOf(id brokerapi.TopicID) (*topicState, error) {
	t := w.topics.byID[record.TopicID(id)]
	if t == nil {
		return nil, mqerr.New(mqerr.TopicNotFound, "topic %d is not served here", id)
	}
	return t, nil
}

// subscription finds the topic and group of a request that makes a record
// of at most need bytes.
func (w *writer) subscription(h *brokerapi.Head, topic brokerapi.TopicID, id brokerapi.GroupID, need int) (*topicState, *group.Definition, error) {
	t, g, err := w.lookUp(h, topic, id)
	if err == nil && !w.hasSpace(space.Consumer, need) {
		err = w.noSpace(space.Consumer)
	}
	return t, g, err
}

// lookUp finds the topic and group of a request.
func (w *writer) lookUp(h *brokerapi.Head, topic brokerapi.TopicID, id brokerapi.GroupID) (*topicState, *group.Definition, error) {
	if err := w.current(h); err != nil {
		return nil, nil, err
	}
	t, err := w.topicOf(topic)
	if err != nil {
		return nil, nil, err
	}
	g := w.views.groups.Get(record.GroupID(id))
	if g == nil {
		return nil, nil, mqerr.New(mqerr.GroupNotFound, "group %d does not exist here", id)
	}
	return t, g, nil
}

// hasReady tells whether the group could get something on the topic right now.
func (w *writer) hasReady(t *topicState, g *group.Definition) bool {
	for q := range t.queues {
		if w.readyIn(t, g, record.QueueID(q)) > 0 {
			return true
		}
	}
	return false
}

// readyIn counts what is ready for the group in one queue, before filtering.
func (w *writer) readyIn(t *topicState, g *group.Definition, q record.QueueID) int64 {
	k := pop.Key{Group: g.ID, Topic: t.def.ID, Queue: q}
	if !w.views.pop.Started(k) {
		return max(0, int64(t.queue(q).visible-w.startOf(t, g, q)))
	}
	s := w.views.pop.Stats(k)
	return s.Ready + max(0, int64(t.queue(q).visible-s.Next))
}

// afterLogged is the first message that shows since a group was logged. Store times tell, since the
// position of a delayed message is older than its place. Within the millisecond of the group positions do:
// no older message gets a place in it behind the group.
func (v *views) afterLogged(key queue.Key, g *group.Definition) (record.QueueOffset, error) {
	if g.LoggedMS == 0 { // of a checkpoint from before there were delayed messages
		return v.queues.Seek(key, func(e *queue.Entry) bool { return e.Pos <= g.Logged })
	}
	return v.queues.Seek(key, func(e *queue.Entry) bool {
		return e.Time < g.LoggedMS || e.Time == g.LoggedMS && e.Pos <= g.Logged
	})
}

// startOf is where a group begins on a queue that it has not read. A queue that cannot be searched is
// read from its first message: rather twice than never.
func (w *writer) startOf(t *topicState, g *group.Definition, q record.QueueID) record.QueueOffset {
	key := queue.Key{Topic: t.def.ID, Queue: q}
	at, err := w.views.startOf(key, g)
	if err != nil {
		at, _ = w.views.queues.Bounds(key)
	}
	return at
}

// beginOf is startOf for a group that begins now. While the queue is mended that is an error: the group begins when
// it can be searched.
func (w *writer) beginOf(t *topicState, g *group.Definition, q record.QueueID) (record.QueueOffset, error) {
	key := queue.Key{Topic: t.def.ID, Queue: q}
	at, err := w.views.startOf(key, g)
	if err == nil {
		return at, nil
	}
	if _, damaged := queue.DamageOf(err); damaged && !w.e.mender.hopeless(key) {
		return 0, err
	}
	w.e.o.Log.Error("cannot find where a group begins, it begins at the first message; check the disk, and move the group with perigee group reset if that is wrong", "group", g.Name, "topic", t.def.Name, "queue", int(q), "error", err.Error())
	return w.startOf(t, g, q), nil
}
