package engine

import (
	"context"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// DescribeGroup shows the exact state of a group on a topic, queue by queue; of a group that reads lite
// topics, the sums over them in one.
func (s *session) DescribeGroup(ctx context.Context, topic brokerapi.TopicID, id brokerapi.GroupID) ([]brokerapi.GroupQueue, error) {
	var out []brokerapi.GroupQueue
	var failed error
	lite := false
	if err := s.e.caughtUp(ctx); err != nil {
		return nil, err
	}
	err := s.call(ctx, func(w *writer) {
		t, g, err := w.lookUp(&brokerapi.Head{}, topic, id)
		if err != nil {
			failed = err
			return
		}
		if lite = isLite(t, g); lite {
			return
		}
		for q := range t.queues {
			out = append(out, w.groupQueue(t, g, record.QueueID(q)))
		}
		out[0].Lost = w.views.carried.Lost(reader(g.ID, t.def.ID))
	})
	if err != nil {
		return nil, err // the writer may still be at it
	}
	if lite {
		sum, err := s.e.liteSum(ctx, topic, id)
		return []brokerapi.GroupQueue{sum}, err
	}
	return out, failed
}

func (w *writer) groupQueue(t *topicState, g *group.Definition, q record.QueueID) brokerapi.GroupQueue {
	key := queue.Key{Topic: t.def.ID, Queue: q}
	first, _ := w.views.queues.Bounds(key)
	out := brokerapi.GroupQueue{Queue: brokerapi.QueueID(q), Min: brokerapi.QueueOffset(first), Max: brokerapi.QueueOffset(t.queue(q).visible)}
	w.catchUp()
	k := pop.Key{Group: g.ID, Topic: t.def.ID, Queue: q}
	s := w.views.pop.Stats(k)
	out.Used = w.views.pop.Started(k)
	if !out.Used {
		s.Next = w.startOf(t, g, q)
		s.Floor = s.Next
	}
	if u := t.subs[g.ID]; u != nil {
		out.OverMax = u.overMax[q]
	}
	out.MaxInFlight, out.MaxInFlightClient = w.inFlightBounds(g)
	fresh := max(0, int64(t.queue(q).visible-s.Next))
	oldest := s.Next
	if s.Ready > 0 {
		oldest = s.FirstReady
	}
	out.Floor, out.Next = brokerapi.QueueOffset(s.Floor), brokerapi.QueueOffset(s.Next)
	out.InFlight, out.Waiting, out.Ready = s.InFlight, s.Waiting, s.Ready+fresh
	if out.Ready > 0 {
		if e, err := w.views.entryAt(key, oldest); err == nil {
			out.OldestMS = e.Time
		}
	}
	return out
}

// DescribeTopic shows the exact state of a topic, queue by queue.
func (s *session) DescribeTopic(ctx context.Context, topic brokerapi.TopicID) ([]brokerapi.TopicQueue, error) {
	var out []brokerapi.TopicQueue
	var failed error
	err := s.call(ctx, func(w *writer) {
		t, err := w.topicOf(topic)
		if err != nil {
			failed = err
			return
		}
		for q := range t.queues {
			out = append(out, w.topicQueue(t, record.QueueID(q)))
		}
	})
	if err != nil {
		return nil, err // the writer may still be at it
	}
	return out, failed
}

func (w *writer) topicQueue(t *topicState, q record.QueueID) brokerapi.TopicQueue {
	key := queue.Key{Topic: t.def.ID, Queue: q}
	first, _ := w.views.queues.Bounds(key)
	end := t.queues[q].visible
	out := brokerapi.TopicQueue{Queue: brokerapi.QueueID(q), Min: brokerapi.QueueOffset(first), Max: brokerapi.QueueOffset(end)}
	if end > first {
		if e, err := w.views.queues.At(key, end-1); err == nil {
			out.LastMS = e.Time
		}
	}
	return out
}

// Sizes are the sizes of the views, for metrics and tests.
type Sizes struct {
	Topics, Groups, Clients int
	Halves                  int   // half messages without a verdict
	OldestHalfMS            int64 // when the oldest of them was stored, 0 if there is none
	NowMS                   int64 // store time of these figures
	Verdicts                int   // verdicts that are remembered
	LiteTopics              int   // of all parents
	LiteSubscriptions       int   // of all clients
	Timers                  int   // messages that wait for their time
	DueMS                   int64 // when the first of them is due, 0 if there is none
	Recalls                 int   // recalled messages that are remembered
	DuplicateWindowMS       int64 // how far back messages that are sent again are found
	DuplicateWindowSetMS    int64 // how far back they should be: the longest window that is set
	DuplicateEntries        int64
	InFlight                int64 // messages of all groups that were handed out and are not done
	Epoch                   record.Epoch
	Written, Durable        record.Pos
	Checkpoint              record.Pos // where a recovery would begin: the newest checkpoint, or the log's first record

	CheckpointSaved                                    bool // one was saved since the start; else what follows is unknown
	CheckpointAgeMS, CheckpointBytes, CheckpointTookMS int64
}

type sizesOp struct {
	waiter
	done func(Sizes, error)
	out  Sizes
}

func (o *sizesOp) bytes() int { return 64 }

func (o *sizesOp) finish(_ *writer, err error) { o.done(o.out, err) }

func (o *sizesOp) run(w *writer) {
	o.out = Sizes{
		Topics: w.views.topics.Len(), Groups: w.views.groups.Len(), Clients: len(w.live.last),
		LiteTopics: w.views.lite.Len(), LiteSubscriptions: w.lite.subscriptions, InFlight: w.views.pop.Len(),
		Epoch: w.epoch, Written: w.e.log.Written(), Durable: w.e.log.Durable(), Checkpoint: w.saved.at,
	}
	if s := &w.saved; s.done != 0 && !s.busy {
		o.out.CheckpointSaved, o.out.CheckpointAgeMS, o.out.CheckpointBytes, o.out.CheckpointTookMS = true, w.lease-s.done, s.size, s.took
	}
	o.out.Timers, o.out.Recalls = w.views.timers.Len(), w.views.timers.Recalled()
	if _, due, ok := w.views.timers.Next(); ok {
		o.out.DueMS = due
	}
	o.out.Halves, o.out.Verdicts, o.out.NowMS = w.views.txns.Len(), w.views.txns.Verdicts(), w.stamp
	o.out.DuplicateWindowSetMS = w.views.dups.Window().Milliseconds()
	o.out.DuplicateWindowMS, o.out.DuplicateEntries = w.views.dups.InForce(w.stamp).Milliseconds(), w.views.dups.Len()
	if h, ok := w.views.txns.Oldest(); ok {
		o.out.OldestHalfMS = h.Stored
	}
}

// catchUp lets every lease end that has ended by now: one Advance does a bounded amount of work.
func (w *writer) catchUp() {
	for at, ok := w.views.pop.NextDue(); ok && at <= w.lease; at, ok = w.views.pop.NextDue() {
		w.views.pop.Advance(w.lease, w.due)
	}
}

// caughtUp returns when leases that have ended by now were looked at, a bounded number in each turn, so that
// catchUp soon after has little to do: millions may end at once.
func (e *Engine) caughtUp(ctx context.Context) error {
	for behind, began := true, e.clock.Lease(); behind; {
		if err := e.call(ctx, func(w *writer) {
			at, ok := w.views.pop.NextDue()
			behind = ok && at <= began
		}); err != nil {
			return err
		}
	}
	return nil
}
