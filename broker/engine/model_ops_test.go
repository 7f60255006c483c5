package engine

import (
	"context"
	"crypto/md5"
	"fmt"
	"slices"
	"time"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/model"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// worldOp is one kind of operation. run reports whether there was something to do.
type worldOp struct {
	name   string
	weight int
	run    func(w *world) bool
}

var worldOps = []worldOp{
	{"send", 60, (*world).sendNormal},
	{"send to async", 20, (*world).sendAsync},
	{"send in order", 60, (*world).sendFIFO},
	{"send delayed", 40, (*world).sendDelayed},
	{"send half", 40, (*world).sendHalf},
	{"send with priority", 30, (*world).sendPriority},
	{"send lite", 40, (*world).sendLite},
	{"send again", 20, (*world).sendAgain},
	{"receive", 200, (*world).receive},
	{"receive for a session", 40, (*world).receiveSession},
	{"receive at a deadline", 40, (*world).receiveInTime},
	{"ack", 120, (*world).ack},
	{"ack late", 20, (*world).ackLate},
	{"nack", 40, (*world).nack},
	{"change", 30, (*world).change},
	{"give back", 30, (*world).giveBack},
	{"forward", 25, (*world).forward},
	{"recall", 30, (*world).recall},
	{"commit", 25, (*world).commit},
	{"roll back", 25, (*world).rollBack},
	{"check", 30, (*world).check},
	{"reset", 15, (*world).reset},
	{"a moment", 60, func(w *world) bool { return w.pass(w.rng.Int64N(40)) }},
	{"seconds", 60, func(w *world) bool { return w.pass(w.rng.Int64N(12_000)) }},
	{"minutes", 20, func(w *world) bool { return w.pass(w.rng.Int64N(300_000)) }},
	{"wall clock forward", 15, func(w *world) bool { return w.stepWall(w.rng.Int64N(60_000)) }},
	{"wall clock back", 15, func(w *world) bool { return w.stepWall(-w.rng.Int64N(60_000)) }},
	{"alive", 20, (*world).alive},
	{"goodbye", 15, (*world).goodbye},
	{"topic made anew", 10, (*world).newTopic},
	{"group made anew", 10, (*world).newGroup},
	{"group changes its order", 12, (*world).reorder},
	{"retention", 20, (*world).retain},
	{"restart from the log", 10, func(w *world) bool { w.restart(0); return true }},
	{"restart from a checkpoint", 10, func(w *world) bool { w.restart(1); return true }},
	{"restart without views", 10, func(w *world) bool { w.restart(3); return true }},
	{"clean restart", 10, func(w *world) bool { w.restart(2); return true }},
}

// message makes a message with a tag, and an id at the end of its body.
func (w *world) message(kind brokerapi.MessageType) brokerapi.Message {
	w.n++
	tag, id := fmt.Sprintf("t%d", w.rng.IntN(3)), fmt.Sprintf("id-%d", w.n)
	body := fmt.Appendf(nil, "%s %s %0*d", tag, id, w.rng.IntN(300), 0)
	return brokerapi.Message{
		Queue: brokerapi.AnyQueue, Type: kind, TagHash: brokerapi.HashTag([]byte(tag)), ID: []byte(id), Body: body, Digest: md5.Sum(body),
		Sys: append([]byte{tagField<<3 | 2, byte(len(tag))}, tag...),
	}
}

func (w *world) send(name string, ms ...brokerapi.Message) bool {
	req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(w.topics[name].ID), Messages: ms}
	w.sent = append(w.sent, req)
	w.sendRequest(req)
	return true
}

func (w *world) sendRequest(req *brokerapi.SendRequest) {
	r, err := wait(w.t, func(done func(*brokerapi.SendReply, error)) { w.b.proxy.Send(req, done) })
	w.ok(err)
	w.ok(w.m.Sent(req, r, modelWindow))
}

func (w *world) several(kind brokerapi.MessageType, change func(*brokerapi.Message)) []brokerapi.Message {
	var ms []brokerapi.Message
	for range 1 + w.rng.IntN(4) {
		m := w.message(kind)
		if change != nil {
			change(&m)
		}
		ms = append(ms, m)
	}
	return ms
}

func (w *world) sendNormal() bool { return w.send("normal", w.several(brokerapi.Normal, nil)...) }
func (w *world) sendAsync() bool  { return w.send("async", w.several(brokerapi.Normal, nil)...) }

// sendFIFO sends messages of one message group, or of none, to that group's queue.
func (w *world) sendFIFO() bool {
	g := uint64(w.rng.IntN(5))
	return w.send("fifo", w.several(brokerapi.FIFO, func(m *brokerapi.Message) {
		m.GroupHash, m.Queue = g, brokerapi.QueueID(g%2)
	})...)
}

func (w *world) sendDelayed() bool {
	m := w.message(brokerapi.Delay)
	m.DeliverAt = w.m.Wall() - 1000 + w.rng.Int64N(20_000)
	if w.rng.IntN(4) == 0 {
		m.DeliverAt += w.rng.Int64N(3600_000)
	}
	return w.send("delay", m)
}

func (w *world) sendHalf() bool {
	m := w.message(brokerapi.Transaction)
	if w.rng.IntN(2) == 0 {
		m.CheckAfter = time.Duration(1+w.rng.IntN(20)) * time.Second
	}
	return w.send("txn", m)
}

func (w *world) sendPriority() bool {
	m := w.message(brokerapi.Priority)
	m.Priority = int32(w.rng.IntN(5))
	return w.send("prio", m)
}

func (w *world) sendLite() bool {
	m := w.message(brokerapi.Lite)
	m.Lite = liteNames[w.rng.IntN(len(liteNames))]
	return w.send("lite", m)
}

var liteNames = []string{"a", "b", "c", "d"}

// subscribe makes a client of a lite group subscribe to some lite topics and to no other.
func (w *world) subscribe(t brokerapi.TopicID, g brokerapi.GroupID, client string) map[string]bool {
	names := map[string]bool{}
	req := &brokerapi.SyncLiteRequest{Topic: t, Group: g, Client: client, Action: brokerapi.LiteCompleteAdd}
	for _, name := range liteNames {
		if w.rng.IntN(2) == 0 {
			names[name] = true
			req.Names = append(req.Names, name)
		}
	}
	_, err := w.b.proxy.SyncLite(context.Background(), req)
	w.ok(err)
	return names
}

// sendAgain repeats a request, as a client does that has not heard the answer.
func (w *world) sendAgain() bool {
	if len(w.sent) == 0 {
		return false
	}
	again := w.sent[max(0, len(w.sent)-20):]
	req := again[w.rng.IntN(len(again))]
	if req.Messages[0].Type == brokerapi.Normal && w.rng.IntN(3) == 0 { // the id is used again, for something else
		req = &brokerapi.SendRequest{Topic: req.Topic, Messages: slices.Clone(req.Messages)}
		m := &req.Messages[w.rng.IntN(len(req.Messages))]
		m.Body = fmt.Appendf(nil, "%s %d", m.Body, w.rng.IntN(3))
		m.Digest = md5.Sum(m.Body)
		w.sent = append(w.sent, req)
	}
	for _, d := range w.topics {
		if d.ID == record.TopicID(req.Topic) {
			w.observe(d)
			w.sendRequest(req)
			return true
		}
	}
	return false
}

// sub draws a group with its topic.
func (w *world) sub() (t brokerapi.TopicID, g brokerapi.GroupID, name string, tags []string) {
	s := worldSubs[w.rng.IntN(len(worldSubs))]
	return brokerapi.TopicID(w.topics[s.topic].ID), brokerapi.GroupID(w.groups[s.group].ID), s.topic, s.tags
}

func (w *world) client() string { return fmt.Sprintf("c%d", w.rng.IntN(4)) }

func (w *world) receive() bool { return w.receiveAs(false) }

func (w *world) receiveSession() bool { return w.receiveAs(true) }

// receiveInTime receives in the last millisecond of a lease, or in the first one after it.
func (w *world) receiveInTime() bool {
	i := w.rng.IntN(len(worldSubs))
	s := worldSubs[i]
	all := w.m.Deadlines(brokerapi.TopicID(w.topics[s.topic].ID), brokerapi.GroupID(w.groups[s.group].ID))
	if len(all) == 0 {
		return false
	}
	w.pass(all[w.rng.IntN(min(2, len(all)))] - w.m.Now() - w.rng.Int64N(2))
	return w.receiveBy(i, false)
}

func (w *world) receiveAs(session bool) bool { return w.receiveBy(w.rng.IntN(len(worldSubs)), session) }

func (w *world) receiveBy(sub int, session bool) bool {
	s := worldSubs[sub]
	t, g, name, tags := brokerapi.TopicID(w.topics[s.topic].ID), brokerapi.GroupID(w.groups[s.group].ID), s.topic, s.tags
	w.observe(w.topics[name])
	w.dead(g)
	p := &model.Popped{
		Topic: t, Group: g, Client: w.client(), Max: 1 + w.rng.IntN(8), Invisible: 1 + w.rng.Int64N(20_000), Session: session,
	}
	req := &brokerapi.PopRequest{
		Topic: t, Group: g, Client: p.Client, Max: p.Max, Invisible: time.Duration(p.Invisible) * time.Millisecond, Session: session,
	}
	if tags != nil {
		req.Filter = brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: tags}
	}
	if name == "lite" {
		p.Lite = w.subscribe(t, g, p.Client)
	}
	r, err := wait(w.t, func(done func(*brokerapi.PopReply, error)) { w.b.proxy.Pop(req, done) })
	w.ok(err)
	defer r.Release()
	p.More, p.Messages = r.More, r.Messages
	for i := range r.Messages {
		p.IDs = append(p.IDs, worldID(r.Messages[i].Body))
	}
	w.ok(w.m.Popped(p))
	return true
}

// handles draws some of those that fit.
func (w *world) handles(from []brokerapi.Handle) []brokerapi.Handle {
	var out []brokerapi.Handle
	for _, h := range from {
		if w.rng.IntN(2) == 0 {
			h.Epoch = brokerapi.Epoch(w.b.epoch)
			out = append(out, h)
		}
	}
	return out
}

func (w *world) ack() bool {
	t, g, _, _ := w.sub()
	return w.acks(t, g, w.handles(w.m.Held(t, g)))
}

// ackLate names what is done already, or an earlier lease.
func (w *world) ackLate() bool {
	t, g, _, _ := w.sub()
	hs := w.handles(w.m.Handles(t, g))
	for i := range hs {
		if w.rng.IntN(3) == 0 {
			hs[i].Lease -= 8
		}
	}
	return w.acks(t, g, hs)
}

func (w *world) acks(t brokerapi.TopicID, g brokerapi.GroupID, hs []brokerapi.Handle) bool {
	if len(hs) == 0 {
		return false
	}
	w.dead(g) // an ack may come in time to save a message, or not
	r, err := wait(w.t, func(done func(*brokerapi.AckReply, error)) {
		w.b.proxy.Ack(&brokerapi.AckRequest{Topic: t, Group: g, Handles: hs}, done)
	})
	w.ok(err)
	for i, h := range hs {
		w.ok(w.m.Acked(t, g, h, r.Errors[i] == nil))
	}
	return true
}

func (w *world) nack() bool { return w.changeTo(0, brokerapi.ChangeLease) }

func (w *world) change() bool { return w.changeTo(w.rng.Int64N(30_000), brokerapi.ChangeLease) }

func (w *world) giveBack() bool {
	return w.changeTo(int64(w.rng.IntN(2))*w.rng.Int64N(10_000), brokerapi.ChangeKeep)
}

func (w *world) changeTo(ms int64, mode brokerapi.ChangeMode) bool {
	t, g, _, _ := w.sub()
	hs := w.handles(w.m.Held(t, g))
	if len(hs) == 0 {
		return false
	}
	w.dead(g)
	r, err := wait(w.t, func(done func(*brokerapi.ChangeReply, error)) {
		w.b.proxy.Change(&brokerapi.ChangeRequest{Topic: t, Group: g, Handles: hs, Invisible: time.Duration(ms) * time.Millisecond, Mode: mode}, done)
	})
	w.ok(err)
	for i, h := range hs {
		w.ok(w.m.Changed(t, g, h, ms, mode == brokerapi.ChangeKeep, r.Errors[i] == nil))
	}
	return true
}

// forward gives messages up. The topic for them must be there: nobody makes it while the call waits.
func (w *world) forward() bool {
	t, g, _, _ := w.sub()
	hs := w.handles(w.m.Held(t, g))
	if len(hs) == 0 {
		return false
	}
	w.dead(g)
	if name := deadPrefix + w.groupName(g); w.topics[name] == nil {
		w.putTopic(name, 1, 1, topic.FlushSync)
	}
	r, err := wait(w.t, func(done func(*brokerapi.ForwardReply, error)) {
		w.b.proxy.Forward(&brokerapi.ForwardRequest{Topic: t, Group: g, Handles: hs}, done)
	})
	w.ok(err)
	for i, h := range hs {
		w.ok(w.m.Forwarded(t, g, h, r.Errors[i] == nil))
	}
	w.dead(g)
	return true
}

// pick draws a message of a topic in one of some states.
func (w *world) pick(name string, states ...model.State) *model.Message {
	var all []*model.Message
	for _, s := range states {
		all = append(all, w.m.Messages(brokerapi.TopicID(w.topics[name].ID), s)...)
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.rng.IntN(len(all))]
}

func (w *world) recall() bool {
	w.observe(w.topics["delay"])
	states := []model.State{model.Waiting}
	if w.rng.IntN(3) == 0 {
		states = []model.State{model.Visible, model.Recalled}
	}
	x := w.pick("delay", states...)
	if x == nil {
		return false
	}
	r, err := wait(w.t, func(done func(*brokerapi.RecallReply, error)) {
		w.b.proxy.Recall(&brokerapi.RecallRequest{Topic: x.Topic, Ref: x.Pos, DeliverAt: x.DeliverAt}, done)
	})
	if err != nil && !mqerr.Is(err, mqerr.NotFound) {
		w.ok(err)
	}
	if err == nil && string(r.ID) != x.ID {
		w.t.Fatalf("recall of %s answered %q", x.ID, r.ID)
	}
	w.ok(w.m.Recalled(x, err == nil))
	return true
}

func (w *world) commit() bool   { return w.end(true) }
func (w *world) rollBack() bool { return w.end(false) }

func (w *world) end(commit bool) bool {
	states := []model.State{model.Half}
	if w.rng.IntN(3) == 0 {
		states = []model.State{model.Visible, model.RolledBack}
	}
	x := w.pick("txn", states...)
	if x == nil {
		return false
	}
	t := x.Topic
	if x = w.m.Newest(x); x.Topic != t {
		return false // it was sent again and given up
	}
	_, err := wait(w.t, func(done func(*brokerapi.EndTxnReply, error)) {
		w.b.proxy.EndTxn(&brokerapi.EndTxnRequest{Topic: x.Topic, ID: []byte(x.ID), Commit: commit, Source: brokerapi.TxnByClient}, done)
	})
	if err != nil && !mqerr.Is(err, mqerr.Invalid) {
		w.ok(err)
	}
	w.ok(w.m.Ended(x, commit, err == nil))
	return true
}

// check takes the checks that are due, all of them.
func (w *world) check() bool {
	t := brokerapi.TopicID(w.topics["txn"].ID)
	_, err := w.b.proxy.Producers(context.Background(), &brokerapi.ProducersRequest{Topics: []brokerapi.TopicID{t}})
	w.ok(err)
	for {
		r, err := wait(w.t, func(done func(*brokerapi.ChecksReply, error)) {
			w.b.proxy.Checks(&brokerapi.ChecksRequest{Max: 1 + w.rng.IntN(8)}, done)
		})
		w.ok(err)
		for i := range r.Checks {
			w.ok(w.m.Checked(r.Checks[i].Half, r.Checks[i].Checks))
		}
		more := r.More
		r.Release()
		if !more {
			break
		}
	}
	if id := w.m.ToCheck(t); id != "" {
		w.t.Fatalf("seed %d, operation %d: the check of %s is due and was not handed out", w.seed, w.step, id)
	}
	return true
}

// reset moves a group, after a dry run that must tell the same.
func (w *world) reset() bool {
	t, g, name, _ := w.sub()
	if name == "lite" {
		return false // a lite group has no position of its own
	}
	w.observe(w.topics[name])
	w.dead(g)
	req := &brokerapi.ResetRequest{Topic: t, Group: g, To: brokerapi.ResetTo(1 + w.rng.IntN(4)), DryRun: true}
	switch req.To {
	case brokerapi.ResetTime:
		req.TimeMS = w.m.Wall() - w.rng.Int64N(100_000)
	case brokerapi.ResetSkip:
		req.Skip = w.rng.Int64N(5)
	}
	dry, err := w.b.proxy.Reset(context.Background(), req)
	w.ok(err)
	req.DryRun = false
	r, err := w.b.proxy.Reset(context.Background(), req)
	w.ok(err)
	if fmt.Sprint(dry.Queues) != fmt.Sprint(r.Queues) {
		w.t.Fatalf("reset: the dry run said %v, it did %v", dry.Queues, r.Queues)
	}
	to := map[brokerapi.QueueID]brokerapi.QueueOffset{}
	for _, q := range r.Queues {
		to[q.Queue] = q.To
		if end := w.m.Seen(t, q.Queue); q.To > end || req.To == brokerapi.ResetEnd && q.To != end || req.To == brokerapi.ResetBegin && q.To != w.m.Begin(t, q.Queue) {
			w.t.Fatalf("reset %d: queue %d goes to %d, it has %d messages", req.To, q.Queue, q.To, end)
		}
	}
	w.m.Reset(t, g, to)
	return true
}

func (w *world) pass(ms int64) bool {
	w.b.clock.advance(time.Duration(ms) * time.Millisecond)
	w.tell()
	return true
}

func (w *world) stepWall(ms int64) bool {
	w.b.clock.step.Add(ms)
	w.tell()
	return true
}

// tell makes engine and model see the time.
func (w *world) tell() {
	w.turn()
	w.m.Step(w.b.clock.Lease(), w.b.clock.Wall())
	w.givenUp()
}

// givenUp tells the model of half messages that nobody has ended: they must show up in a topic for such ones.
// Producers take their checks first, as they would.
func (w *world) givenUp() {
	if len(w.m.GivenUp(brokerapi.TopicID(w.topics["txn"].ID))) == 0 {
		return
	}
	w.check()
	to := w.topics[txnPrefix+"txn"]
	for _, x := range w.m.GivenUp(brokerapi.TopicID(w.topics["txn"].ID)) {
		w.m.GiveUp(x, brokerapi.TopicID(to.ID))
		w.count["(given up)"]++
	}
	w.observe(to)
}

func (w *world) alive() bool {
	c := w.client()
	w.ok(w.b.proxy.Alive(context.Background(), []string{c}))
	w.m.Alive(c)
	return true
}

func (w *world) goodbye() bool {
	c := w.client()
	w.ok(w.b.proxy.EndSession(context.Background(), c))
	w.m.Goodbye(c)
	return true
}

func (w *world) newTopic() bool {
	w.settle()
	d := worldTopics[w.rng.IntN(len(worldTopics))]
	w.putTopic(d.name, d.kind, d.queues, d.flush)
	return true
}

func (w *world) newGroup() bool {
	w.settle()
	w.putGroup(worldSubs[w.rng.IntN(len(worldSubs))].group)
	return true
}

// reorder makes an ordered group a plain one, or back.
func (w *world) reorder() bool {
	w.settle()
	s := worldSubs[w.rng.IntN(len(worldSubs))]
	if s.topic == "lite" {
		return false // always in order
	}
	d := w.groups[s.group]
	d.Ordered = !d.Ordered
	w.version++
	d.Version = w.version
	w.ok(w.b.engine.Define(context.Background(), &Definitions{Groups: []group.Definition{*d}, Version: w.version}))
	w.m.Group(brokerapi.GroupID(d.ID)).Ordered = d.Ordered
	return true
}
