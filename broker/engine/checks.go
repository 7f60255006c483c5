package engine

import (
	"context"
	"slices"

	"github.com/perigee-mq/perigee/broker/txn"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// checks knows which proxies have producers of which topics, and when half messages have to be looked at.
// It is soft state: proxies say it again after they have connected.
type checks struct {
	producers map[record.TopicID]*producers
	// at is when half messages have to be looked at next, store time; never if there are none.
	at     int64
	warned map[record.TopicID]int64 // when a topic's transactions were last said to be given up, lease clock
}

// producers are the proxies that have producers of a topic.
type producers struct {
	sessions []*session
	turn     int
}

const never = int64(1) << 62

// tellAgain is how long a proxy has to fetch checks before another one is told, ms.
const tellAgain = 5000

func (c *checks) init() {
	c.producers, c.warned = map[record.TopicID]*producers{}, map[record.TopicID]int64{}
}

// soon makes the next look come at a time, at the latest.
func (c *checks) soon(at int64) { c.at = min(c.at, at) }

// leave forgets the producers of a proxy.
func (c *checks) leave(s *session) {
	for _, id := range s.producing {
		p := c.producers[id]
		p.sessions = slices.DeleteFunc(p.sessions, func(o *session) bool { return o == s })
		if len(p.sessions) == 0 {
			delete(c.producers, id)
		}
	}
	s.producing = nil
}

// producersMax bounds the topics that a proxy may name.
const producersMax = 1 << 20

// Producers names the topics of which the proxy has producers.
func (s *session) Producers(ctx context.Context, req *brokerapi.ProducersRequest) (*brokerapi.ProducersReply, error) {
	if len(req.Topics) > producersMax {
		return nil, mqerr.New(mqerr.Invalid, "%d topics with producers: at most %d", len(req.Topics), producersMax)
	}
	err := s.call(ctx, func(w *writer) {
		c := &w.txns.checks
		c.leave(s)
		if s.closed {
			return
		}
		topics := make([]record.TopicID, len(req.Topics))
		for i, id := range req.Topics {
			topics[i] = record.TopicID(id)
		}
		slices.Sort(topics)
		s.producing, s.told = slices.Compact(topics), 0
		for _, id := range s.producing {
			p := c.producers[id]
			if p == nil {
				p = &producers{}
				c.producers[id] = p
			}
			p.sessions = append(p.sessions, s)
		}
		c.soon(0)
	})
	if err != nil {
		return nil, err
	}
	return &brokerapi.ProducersReply{}, nil
}

// nextCheck is when half messages have to be looked at, on the lease clock.
func (w *writer) nextCheck() (int64, bool) {
	at := w.txns.checks.at
	return w.lease + max(0, at-w.stamp), at < never
}

// lookAtHalves gives up half messages that nobody has ended, and tells a proxy of each topic whose checks
// are due.
func (w *writer) lookAtHalves() {
	c := &w.txns.checks
	if w.stamp < c.at {
		return
	}
	c.at = never
	if w.views.txns.Len() == 0 {
		return
	}
	left := giveUpsMax
	w.giveUps(&left)
	w.views.txns.EachTopic(func(id record.TopicID) {
		h, _ := w.views.txns.First(id)
		p := c.producers[id]
		switch {
		case left == 0: // there were too many for one turn
			c.soon(w.stamp)
		case w.overAt(&h) <= w.stamp: // no space
			c.soon(w.stamp + noSpacePause)
		case p == nil:
			c.soon(w.overAt(&h))
		case h.Next > w.stamp:
			c.soon(h.Next)
		default:
			p.tell(w)
			c.soon(w.stamp + tellAgain)
		}
	})
}

// tell sends a notice to the proxy whose turn it is, unless one that was told has yet to fetch.
func (p *producers) tell(w *writer) {
	for _, s := range p.sessions {
		if s.told != 0 && w.lease < s.told+tellAgain {
			return
		}
	}
	p.turn++
	s := p.sessions[p.turn%len(p.sessions)]
	s.told = max(w.lease, 1)
	if s.ev.Notice != nil {
		s.ev.Notice(brokerapi.NoticeChecks)
	}
}

// checked notes the next check of a half message in the view and in a record to come.
func (w *writer) checked(t *topicState, rec *record.TxnCheck, h *txn.Half, sent uint32) {
	one := record.TxnCheck{Topic: h.Topic, Items: []record.TxnChecked{{Half: h.Pos, Checks: sent, Next: w.stamp + t.checkInterval(&w.e.o.Txn)}}}
	if err := w.views.txns.Check(&one); err != nil {
		w.broken(err)
	}
	rec.Items = append(rec.Items, one.Items[0])
}

// putChecks makes the record of checks that are in the view already.
func (w *writer) putChecks(t *topicState, rec *record.TxnCheck) {
	if len(rec.Items) == 0 {
		return
	}
	rec.Topic = t.def.ID
	w.put(record.TypeTxnCheck, record.TxnCheckSize(rec), func(body []byte) { record.PutTxnCheck(body, rec) })
}
