package engine

import (
	"context"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// LiteSlack is how many subscriptions beyond its quota a client may have: those of requests that overtake
// each other.
const LiteSlack = 300

// SyncLite changes what a client of a lite group subscribes to.
func (s *session) SyncLite(ctx context.Context, req *brokerapi.SyncLiteRequest) (*brokerapi.SyncLiteReply, error) {
	var failed error
	if err := s.call(ctx, func(w *writer) { failed = w.syncLite(s, req) }); err != nil {
		return nil, err // the writer may still be at it
	}
	if failed != nil {
		return nil, failed
	}
	return &brokerapi.SyncLiteReply{}, nil
}

func (w *writer) syncLite(s *session, req *brokerapi.SyncLiteRequest) error {
	t, g, err := w.lookUp(&brokerapi.Head{}, req.Topic, req.Group)
	if err != nil {
		return err
	}
	if !isLite(t, g) {
		return mqerr.New(mqerr.Invalid, "consumer group %s is not bound to lite topics of %s", g.Name, t.def.Name)
	}
	if req.Client == "" || len(req.Client) > nameMax {
		return mqerr.New(mqerr.Invalid, "a client id of %d bytes: from 1 to %d", len(req.Client), nameMax)
	}
	for _, name := range req.Names {
		if name == "" || len(name) > lite.NameMax {
			return mqerr.New(mqerr.Invalid, "the name of a lite topic has %d bytes: from 1 to %d", len(name), lite.NameMax)
		}
	}
	c := w.lite.client(w, t, g.ID, req.Client, s)
	if req.Version != 0 && req.Version < c.version {
		return nil // overtaken by a later change
	}
	if err := w.changeLite(g, c, req); err != nil {
		return err
	}
	c.version = max(c.version, req.Version)
	return nil
}

func (w *writer) changeLite(g *group.Definition, c *liteClient, req *brokerapi.SyncLiteRequest) error {
	switch req.Action {
	case brokerapi.LitePartialAdd, brokerapi.LiteCompleteAdd:
	case brokerapi.LitePartialRemove:
		for _, name := range req.Names {
			if s := c.subs[name]; s != nil {
				w.lite.unsubscribe(s)
			}
		}
		return nil
	case brokerapi.LiteCompleteRemove:
		for _, s := range c.subs {
			w.lite.unsubscribe(s)
		}
		return nil
	default:
		return mqerr.New(mqerr.Invalid, "unknown action %d on lite subscriptions", req.Action)
	}
	names := make(map[string]bool, len(req.Names))
	for _, name := range req.Names {
		names[name] = true
	}
	n := len(names)
	if req.Action == brokerapi.LitePartialAdd {
		for name := range c.subs {
			if !names[name] {
				n++
			}
		}
	}
	if most := w.e.o.LiteSubscriptions + LiteSlack; n > most {
		w.e.counts.LiteRefused.Add(1)
		return mqerr.New(mqerr.QuotaExceeded, "client %s would subscribe to %d lite topics: the quota is %d", c.id, n, w.e.o.LiteSubscriptions)
	}
	if req.From != brokerapi.LiteFromDefault {
		if err := w.liteStarts(c.topic, g, req); err != nil {
			return err
		}
	}
	if req.Action == brokerapi.LiteCompleteAdd {
		for name, s := range c.subs {
			if !names[name] {
				w.lite.unsubscribe(s)
			}
		}
	}
	for _, name := range req.Names {
		w.lite.subscribe(w, c, name)
	}
	return nil
}

// liteStartBytes is the most that the record of a beginning takes.
const liteStartBytes = 256

// liteStarts makes a group begin where a request says on the lite topics that it has not read.
func (w *writer) liteStarts(t *topicState, g *group.Definition, req *brokerapi.SyncLiteRequest) error {
	if req.From > brokerapi.LiteFromTime {
		return mqerr.New(mqerr.Invalid, "unknown beginning %d on lite topics", req.From)
	}
	if !w.hasSpace(space.Consumer, liteStartBytes*len(req.Names)) {
		return w.noSpace(space.Consumer)
	}
	for _, name := range req.Names {
		l := w.views.lite.Named(t.def.ID, name)
		if l == nil {
			continue // it will begin with its first message
		}
		k := queue.Key{Topic: t.def.ID, Queue: l.Queue}
		if w.views.pop.Started(popKey(g, k)) {
			continue
		}
		at, err := w.liteStart(k, req.From, req.Value)
		if err != nil {
			return err
		}
		w.views.pop.Start(popKey(g, k), at)
		w.skip(&record.Skip{Topic: k.Topic, Group: g.ID, Queue: k.Queue, From: at, To: at})
	}
	return nil
}

// liteStart finds a beginning in a queue.
func (w *writer) liteStart(k queue.Key, from brokerapi.LiteFrom, value int64) (record.QueueOffset, error) {
	lo, hi := w.views.queues.Bounds(k)
	switch from {
	case brokerapi.LiteFromEnd:
		return hi, nil
	case brokerapi.LiteFromOffset:
		return min(max(record.QueueOffset(value), lo), hi), nil
	case brokerapi.LiteFromTail:
		return max(lo, hi-record.QueueOffset(min(max(value, 0), int64(hi)))), nil
	case brokerapi.LiteFromTime:
		return w.views.queues.SeekTime(k, value)
	}
	return lo, nil
}

func popKey(g *group.Definition, k queue.Key) pop.Key {
	return pop.Key{Group: g.ID, Topic: k.Topic, Queue: k.Queue}
}

// liteGoneMax bounds the notices that wait for one proxy. A client that misses one says at its next
// synchronisation that it still subscribes, and does.
const liteGoneMax = 1 << 16

// LiteGone takes the notices of ended lite subscriptions.
func (s *session) LiteGone(ctx context.Context, _ *brokerapi.LiteGoneRequest) (*brokerapi.LiteGoneReply, error) {
	out := &brokerapi.LiteGoneReply{}
	if err := s.call(ctx, func(*writer) {
		n := min(len(s.ended), liteGoneOnce)
		out.Gone, s.ended = s.ended[:n:n], s.ended[n:]
	}); err != nil {
		return nil, err
	}
	return out, nil
}

// liteGoneOnce is how many notices one reply has at most.
const liteGoneOnce = 1024

// liteGone tells a subscriber's proxy that a subscription has ended, and ends it.
func (w *writer) liteGone(sub *liteSub) {
	c := sub.client
	w.lite.unsubscribe(sub)
	s := c.from
	if s == nil || s.closed || len(s.ended) >= liteGoneMax {
		return
	}
	s.ended = append(s.ended, brokerapi.LiteGone{
		Topic: brokerapi.TopicID(c.topic.def.ID), Group: brokerapi.GroupID(c.group.id), Client: c.id, Name: sub.name,
	})
	if len(s.ended)%liteGoneOnce == 1 && s.ev.Notice != nil { // more than once: a proxy may have given up
		s.ev.Notice(brokerapi.NoticeLite)
	}
}
