package engine

import (
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// A PRIORITY topic has a queue for each level, on every shard that serves it: a message of priority p is
// in queue p, or in the last one if there are fewer. A receive takes from the highest queue that has
// something ready, and then from those below it. So that low ones are not kept waiting for ever, one of
// oldestEvery receives of a group begins with the queue that has the oldest ready message.

// oldestEvery is how many receives of a group on a topic there are for each one that begins with the oldest
// message.
const oldestEvery = 8

// leveled tells whether the queues of a topic are levels.
func (t *topicState) leveled() bool { return t.def.Type == topic.Priority }

// queueFor chooses the queue of a message whose sender chose none: its level, or each in turn.
func (w *writer) queueFor(t *topicState, priority int32) record.QueueID {
	if t.leveled() {
		return record.QueueID(min(max(priority, 0), int32(len(t.queues)-1)))
	}
	q := record.QueueID(t.turn % len(t.queues))
	t.turn++
	return q
}

// placer chooses the queues of the messages of one request.
type placer struct {
	w      *writer
	t      *topicState
	chosen record.QueueID // for those without a choice, -1: none yet
}

func (p *placer) queue(m *brokerapi.Message) record.QueueID {
	switch {
	case m.Queue != brokerapi.AnyQueue:
		return record.QueueID(m.Queue)
	case p.t.leveled():
		return p.w.queueFor(p.t, m.Priority)
	case p.chosen < 0:
		p.chosen = p.w.queueFor(p.t, 0)
	}
	return p.chosen
}

// order is the order in which a receive looks at the queues of a topic.
type order struct {
	n      int
	first  int // of a topic without levels; of one with levels, the queue with the oldest message or -1
	levels bool
}

// orderFor returns the order of the next receive of a group.
func (s *scan) orderFor(u *sub) order {
	o := order{n: len(s.t.queues), levels: s.t.leveled()}
	switch {
	case !o.levels:
		o.first = u.turn % o.n
		u.turn = (u.turn + 1) % o.n
		return o
	case u.turn%oldestEvery == oldestEvery-1:
		o.first = s.oldest()
	default:
		o.first = -1
	}
	u.turn = (u.turn + 1) % oldestEvery
	return o
}

// at returns the i-th queue.
func (o order) at(i int) record.QueueID {
	switch {
	case !o.levels:
		return record.QueueID((o.first + i) % o.n)
	case o.first < 0:
		return record.QueueID(o.n - 1 - i)
	case i == 0:
		return record.QueueID(o.first)
	}
	q := o.n - i // the others, from the highest
	if q <= o.first {
		q--
	}
	return record.QueueID(q)
}

// oldest finds the queue with the oldest message that is ready for the group, -1 if none is.
func (s *scan) oldest() int {
	best, pos := -1, record.Pos(0)
	for q := range s.t.queues {
		if at, ok := s.firstReady(record.QueueID(q)); ok && (best < 0 || at < pos) {
			best, pos = q, at
		}
	}
	return best
}

// firstReady returns the log position of the oldest message in a queue that is ready for the group.
func (s *scan) firstReady(q record.QueueID) (record.Pos, bool) {
	k := pop.Key{Group: s.g.ID, Topic: s.t.def.ID, Queue: q}
	off := record.QueueOffset(-1)
	if !s.w.views.pop.Started(k) {
		off = s.w.startOf(s.t, s.g, q)
	} else if st := s.w.views.pop.Stats(k); st.FirstReady >= 0 {
		off = st.FirstReady
	} else {
		off = st.Next
	}
	if off >= s.t.queues[q].visible {
		return 0, false
	}
	e, err := s.w.views.entryAt(queue.Key{Topic: s.t.def.ID, Queue: q}, off)
	return e.Pos, err == nil
}
