package engine

import (
	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

// sub is a group's use of a topic: where its next receive starts, and which proxies want to hear when
// something becomes ready.
type sub struct {
	topic *topicState
	group record.GroupID
	turn  int
	armed map[*session]struct{}
	told  bool // is in ready.changed
	// overMax counts deliveries past the group's max attempts, per queue, since the start.
	overMax map[record.QueueID]int64
	out     flow
	judges  map[string]*judge // SQL filters of receives that are under way, by their text
}

// sub returns the state of a group on a topic.
func (t *topicState) sub(g record.GroupID) *sub {
	u := t.subs[g]
	if u == nil {
		u = &sub{topic: t, group: g, armed: map[*session]struct{}{}, overMax: map[record.QueueID]int64{}}
		t.subs[g] = u
	}
	return u
}

// ready tells proxies that a group may have something, once for each time they armed.
type ready struct {
	armed    int // (sub, session) pairs
	sessions map[*session]struct{}
	changed  []*sub        // armed subs for which something may have become ready
	clients  []*liteClient // same, of clients of lite groups
}

func (r *ready) init() { r.sessions = map[*session]struct{}{} }

// arm notes that a proxy wants to hear.
func (r *ready) arm(u *sub, s *session) {
	if s == nil || s.closed {
		return
	}
	if _, is := u.armed[s]; !is {
		u.armed[s] = struct{}{}
		r.armed++
	}
}

// disarm forgets all who wait on u.
func (r *ready) disarm(u *sub) {
	r.armed -= len(u.armed)
	clear(u.armed)
}

// topic notes that messages of a topic became visible.
func (r *ready) topic(t *topicState) {
	if r.armed == 0 {
		return
	}
	for _, u := range t.subs {
		r.note(u)
	}
}

func (r *ready) note(u *sub) {
	if len(u.armed) > 0 && !u.told {
		u.told = true
		r.changed = append(r.changed, u)
	}
}

// due is called by the in-flight table for messages that came back.
func (w *writer) due(k pop.Key, _ int) {
	t := w.topics.byID[k.Topic]
	if t != nil && lite.Is(k.Queue) {
		w.liteWake(t, k.Group, k.Queue)
		return
	}
	if t != nil && w.ready.armed > 0 {
		if u := t.subs[k.Group]; u != nil {
			w.ready.note(u)
		}
	}
}

// fire sends the events of this turn, gathered per proxy.
func (r *ready) fire(w *writer) {
	if w.views.pop.HasFreed() {
		w.views.pop.Freed(w.unfill)
	}
	if len(r.changed)+len(r.clients)+len(w.full.freed) == 0 {
		return
	}
	events := map[*session][]brokerapi.Ready{}
	w.fireFreed(events)
	r.fireLite(w, events)
	for _, u := range r.changed {
		u.told = false
		n := w.readyCount(u)
		if n == 0 {
			continue // not visible yet, deleted, or the group is full: stays armed
		}
		for s := range u.armed {
			events[s] = append(events[s], brokerapi.Ready{Topic: brokerapi.TopicID(u.topic.def.ID), Group: brokerapi.GroupID(u.group), Count: n})
		}
		r.disarm(u)
	}
	clear(r.changed)
	r.changed = r.changed[:0]
	for s, ev := range events {
		if s.ev.Ready != nil {
			s.ev.Ready(ev)
		}
	}
}

// readyCount is how many messages are ready for u, before filtering.
func (w *writer) readyCount(u *sub) int {
	g := w.views.groups.Get(u.group)
	if g == nil {
		return 0
	}
	n := int64(0)
	for q := range u.topic.queues {
		n += w.readyIn(u.topic, g, record.QueueID(q))
	}
	room, _ := w.room(g, 0)
	if n > 0 && room == 0 {
		w.awaitGroup(u.topic, g.ID, nil)
	}
	return int(min(n, room))
}

// down tells every proxy that the broker has stopped serving.
func (r *ready) down(err error) {
	for s := range r.sessions {
		if s.ev.Down != nil {
			s.ev.Down(err)
		}
	}
}
