package engine

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/perigee-mq/perigee/broker/txn"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
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

// giveUpsMax bounds the half messages that are given up in one turn.
const giveUpsMax = 256

// checksMax bounds the checks of one reply, checksBytes their messages: one goes in any case.
const (
	checksMax   = 256
	checksBytes = 4 << 20
)

// checkBytes is the most that one check takes in a record.
const checkBytes = 32

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

// overAt is when a half message is given up, if nothing happens to it before.
func (w *writer) overAt(h *txn.Half) int64 {
	if t := w.topics.byID[h.Topic]; t != nil && int64(h.Checks) >= t.checkLimit(&w.e.o.Txn) {
		return h.Next
	}
	return max(h.Next, h.Stored+w.e.o.Txn.GiveUpAfter.Milliseconds())
}

// giveUps ends half messages that nobody has ended: each goes to the topic of its broker for such ones,
// where it can be read. Where that topic does not exist yet, they wait for another interval.
func (w *writer) giveUps(left *int) {
	var over []record.TopicID
	w.views.txns.EachTopic(func(id record.TopicID) {
		if h, _ := w.views.txns.First(id); w.overAt(&h) <= w.stamp {
			over = append(over, id)
		}
	})
	if len(over) == 0 || !w.hasSpace(w.e.o.SpaceReserve/consumersShare, giveUpsMax*(endingBytes+checkBytes)) {
		return
	}
	w.flushEndings()
	slices.Sort(over)
	for _, id := range over {
		w.giveUp(w.topics.byID[id], left)
	}
}

// giveUp ends the half messages of a topic that nobody has ended.
func (w *writer) giveUp(t *topicState, left *int) {
	to := w.wantTopic(txnPrefix + t.def.Name)
	var ended record.TxnEnd
	var waits record.TxnCheck
	for ; *left > 0; *left-- {
		h, ok := w.views.txns.First(t.def.ID)
		if !ok || w.overAt(&h) > w.stamp {
			break
		}
		if to == nil {
			w.checked(t, &waits, &h, h.Checks)
			continue
		}
		h.Queue = -1
		ended = record.TxnEnd{Topic: to.def.ID, Source: record.TxnByBroker, Committed: []record.TxnPlace{w.place(to, &h)}}
		w.endTxn(to, &ended)
		w.warnGivenUp(t, &h)
	}
	w.putChecks(t, &waits)
}

// warnGivenUp says once a minute and topic that transactions were given up.
func (w *writer) warnGivenUp(t *topicState, h *txn.Half) {
	c := &w.txns.checks
	if last, is := c.warned[t.def.ID]; is && w.lease < last+time.Minute.Milliseconds() {
		return
	}
	c.warned[t.def.ID] = w.lease
	w.e.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "transaction given up: no producer has answered; its message is kept, look at it with perigee dlq",
		slog.String("topic", t.def.Name), slog.String("to", txnPrefix+t.def.Name), slog.Int64("position", int64(h.Pos)),
		slog.Int("checks", int(h.Checks)), slog.Time("stored", time.UnixMilli(h.Stored)))
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

// checksOp takes checks that are due.
type checksOp struct {
	waiter
	from *session
	req  *brokerapi.ChecksRequest
	done func(*brokerapi.ChecksReply, error)
	got  []txn.Half
	more bool
	err  error
}

func (o *checksOp) bytes() int { return 128 }

func (o *checksOp) run(w *writer) {
	if o.err = w.current(&o.req.Head); o.err != nil {
		return
	}
	if o.req.Max < 1 {
		o.err = mqerr.New(mqerr.Invalid, "%d checks asked for", o.req.Max)
		return
	}
	most := min(o.req.Max, checksMax)
	if !w.hasSpace(w.e.o.SpaceReserve/consumersShare, most*checkBytes) {
		o.err = errNoSpace
		return
	}
	w.flushEndings() // what is ended in this turn is not asked for
	o.from.told = 0
	left, size := 0, 0
	if w.hasSpace(w.e.o.SpaceReserve/consumersShare, most*checkBytes+giveUpsMax*(endingBytes+checkBytes)) {
		left = giveUpsMax
	}
	for _, id := range o.from.producing {
		t := w.topics.byID[id]
		if t == nil {
			continue
		}
		var rec record.TxnCheck
		for !o.more {
			h, ok := w.views.txns.First(id)
			if !ok || h.Next > w.stamp {
				break
			}
			if w.overAt(&h) <= w.stamp { // it stands in front of others that are due
				if left == 0 {
					break
				}
				w.giveUp(t, &left)
				continue
			}
			if len(o.got) == most || len(o.got) > 0 && size+int(h.Size) > checksBytes {
				o.more = true
				break
			}
			size += int(h.Size)
			h.Checks++
			w.checked(t, &rec, &h, h.Checks)
			if int64(h.Checks) >= t.checkLimit(&w.e.o.Txn) {
				w.wantTopic(txnPrefix + t.def.Name)
			}
			o.got = append(o.got, h)
		}
		w.putChecks(t, &rec)
	}
	w.e.counts.Checks.Add(int64(len(o.got)))
	w.txns.checks.soon(w.stamp)
	o.end = w.batch.End()
}

// finish reads the messages beside the writer: they may be as old as a transaction may get.
func (o *checksOp) finish(w *writer, err error) {
	if err == nil {
		err = o.err
	}
	if err != nil {
		o.done(nil, err)
		return
	}
	if len(o.got) == 0 {
		o.done(brokerapi.NewChecksReply(nil, nil), nil)
		return
	}
	e := w.e
	w.readAside(o.held, func() { o.read(e) })
}

// read answers. A message whose bytes are damaged is left out and reported.
func (o *checksOp) read(e *Engine) {
	refs := make([]commitlog.Ref, 0, len(o.got))
	out := make([]brokerapi.Check, 0, len(o.got))
	for i := range o.got {
		h := &o.got[i]
		rec, ref, err := e.log.Read(h.Pos, h.Size)
		var m record.Msg
		if err == nil {
			if m, err = record.DecodeMsg(rec.Body); err != nil {
				ref.Release()
			}
		}
		if err != nil {
			e.damaged(leased{pos: h.Pos, queue: h.Queue, offset: -1}, err)
			continue
		}
		refs = append(refs, ref)
		out = append(out, brokerapi.Check{
			Topic: brokerapi.TopicID(h.Topic), Half: brokerapi.LogPos(h.Pos), Checks: int(h.Checks),
			Message: brokerapi.Delivery{
				Epoch: brokerapi.Epoch(e.writer.epoch), Attempt: 1, Type: brokerapi.MessageType(m.Type), StoreTime: rec.Time, Digest: m.Digest,
				User: m.User, Sys: m.Sys, Body: m.Body,
			},
		})
	}
	reply := brokerapi.NewChecksReply(out, func() {
		for _, r := range refs {
			r.Release()
		}
	})
	reply.More = o.more
	o.done(reply, nil)
}

func (s *session) Checks(req *brokerapi.ChecksRequest, done func(*brokerapi.ChecksReply, error)) {
	if s.gone.Load() {
		done(nil, errGone)
		return
	}
	s.e.submit(&checksOp{from: s, req: req, done: done})
}
