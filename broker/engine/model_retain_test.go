package engine

import (
	"context"
	"crypto/md5"
	"fmt"
	"strings"
	"time"

	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/model"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// fillerID is a topic that makes the log long; the model does not know it.
const fillerID = 1 << 30

var (
	fillerBody   = []byte(strings.Repeat("f", 250_000))
	fillerDigest = md5.Sum(fillerBody)
)

// filler makes the log longer by a segment or two.
func (w *world) filler() {
	w.ok(w.b.engine.Define(context.Background(), &Definitions{Topics: []topic.Definition{{ID: fillerID, Name: "filler", Queues: 1, Version: 1}}}))
	for range 4 + w.rng.IntN(5) {
		w.n++
		m := brokerapi.Message{Queue: 0, Type: brokerapi.Normal, ID: fmt.Appendf(nil, "filler-%d", w.n), Body: fillerBody, Digest: fillerDigest}
		_, err := wait(w.t, func(done func(*brokerapi.SendReply, error)) {
			w.b.proxy.Send(&brokerapi.SendRequest{Topic: fillerID, Messages: []brokerapi.Message{m}}, done)
		})
		w.ok(err)
	}
}

// retain does a step of retention by a random policy, and compares what queues lost with what they may lose.
func (w *world) retain() bool {
	w.filler()
	w.settle()
	w.pass(w.rng.Int64N(3000))
	w.settle()
	limits := retain.Limits{Age: time.Duration(1+w.rng.Int64N(200_000)) * time.Millisecond, Room: retain.Room(w.rng.IntN(3))}
	switch w.rng.IntN(3) {
	case 0:
		limits.Age = time.Millisecond
	case 1:
		limits.Bytes = 1<<20 + w.rng.Int64N(4<<20)
	}
	before := w.lost()
	p, err := w.b.engine.Retain(context.Background(), limits)
	w.ok(err)
	if p.Why != retain.Goes {
		return false
	}
	w.count["(deleted)"]++
	w.m.Begins = brokerapi.LogPos(w.b.engine.log.First())
	if w.m.Begins != brokerapi.LogPos(p.D) {
		w.t.Fatalf("retention: the log begins at %d, not at %d", w.m.Begins, p.D)
	}
	first, reads := map[queue.Key]record.QueueOffset{}, map[pop.Key]bool{}
	w.ok(w.b.engine.call(context.Background(), func(wr *writer) {
		for _, k := range wr.views.queues.Keys() {
			first[k], _ = wr.views.queues.Bounds(k)
		}
		wr.views.pop.EachQueue(func(k pop.Key) { reads[pop.Key{Group: k.Group, Topic: k.Topic}] = true })
	}))
	after, want, most := w.lost(), map[string]int64{}, map[string]int64{}
	for _, d := range w.topics {
		for k, lo := range first {
			if k.Topic != d.ID {
				continue
			}
			lost, before := w.m.Trimmed(brokerapi.TopicID(d.ID), brokerapi.QueueID(k.Queue), brokerapi.QueueOffset(lo))
			for g, n := range lost {
				want[fmt.Sprint(g, d.ID)] += n
			}
			for g, n := range before {
				most[fmt.Sprint(g, d.ID)] += n
			}
		}
	}
	w.holes()
	for _, s := range worldSubs {
		g, d := w.groups[s.group], w.topics[s.topic]
		key := fmt.Sprint(g.ID, d.ID)
		switch lost := after[key] - before[key]; {
		case p.Early && limits.Room == retain.Consumed && lost != 0:
			w.t.Fatalf("retention: group %s lost %d unread messages, only consumed ones may go", s.group, lost)
		case s.tags != nil || s.topic == "lite" || !reads[pop.Key{Group: g.ID, Topic: d.ID}]:
			// what a filter would have let pass counts as well; of lite topics only those that were read count
		case lost < want[key] || lost > want[key]+most[key]:
			w.t.Fatalf("retention: group %s lost %d messages and perhaps %d more, the broker counts %d", s.group, want[key], most[key], lost)
		}
	}
	return true
}

// holes tells the model of messages that got their places late, stay in their queues and are deleted: everybody
// must have done them.
func (w *world) holes() {
	for _, d := range w.topics {
		for _, x := range w.m.Messages(brokerapi.TopicID(d.ID), model.Visible) {
			if x.Pos < 0 || x.Trimmed || x.Hole || x.Pos >= w.m.Begins {
				continue
			}
			if _, carried := w.b.engine.views.carried.At(record.Pos(x.Pos)); carried {
				continue
			}
			x.Hole = true
			w.count["(hole)"]++
			for _, s := range worldSubs {
				if g := w.groups[s.group]; s.topic == d.Name && s.tags == nil && !w.m.IsOver(x, brokerapi.GroupID(g.ID)) {
					w.t.Fatalf("retention: %s was deleted, group %s has not done it", x.ID, s.group)
				}
			}
		}
	}
}

// lost is what the views count as lost, by group and topic.
func (w *world) lost() map[string]int64 {
	out := map[string]int64{}
	w.ok(w.b.engine.call(context.Background(), func(wr *writer) {
		for _, d := range wr.views.topics.All() {
			for _, g := range wr.views.groups.All() {
				if n := wr.views.carried.Lost(reader(g.ID, d.ID)); n > 0 {
					out[fmt.Sprint(g.ID, d.ID)] = n
				}
			}
		}
	}))
	return out
}
