package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

// powerOp is one kind of call. start makes it and returns what takes note of its answer, nil if there is
// nothing to do.
type powerOp struct {
	name   string
	weight int
	alone  bool // not beside other calls
	start  func(p *power) func()
}

var powerOps []powerOp

func init() { // the operations name each other's kinds
	powerOps = []powerOp{
		{"send", 12, false, func(p *power) func() { return p.several("send", topicSync, brokerapi.Normal, nil) }},
		{"send to async", 6, false, func(p *power) func() { return p.several("send to async", topicAsync, brokerapi.Normal, nil) }},
		{"send in order", 10, false, (*power).sendFIFO},
		{"send delayed", 10, false, func(p *power) func() { return p.several("send delayed", topicDelay, brokerapi.Delay, p.later) }},
		{"send delayed to async", 4, false, func(p *power) func() { return p.several("send delayed to async", topicAsync, brokerapi.Delay, p.later) }},
		{"send half", 8, false, (*power).sendHalf},
		{"send to lite", 8, false, (*power).sendLite},
		{"send again", 8, false, (*power).sendAgain},
		{"receive", 26, false, (*power).receiveSome},
		{"ack", 18, false, (*power).ack},
		{"change", 8, false, (*power).change},
		{"forward", 8, false, (*power).forward},
		{"redrive", 5, true, (*power).redrive},
		{"recall", 8, false, (*power).recall},
		{"commit", 6, false, func(p *power) func() { return p.end("commit", true) }},
		{"roll back", 6, false, func(p *power) func() { return p.end("roll back", false) }},
		{"check", 5, false, (*power).check},
		{"set offsets", 6, false, (*power).setOffsets},
		{"reset", 6, false, (*power).reset},
		{"begin at lite", 4, true, (*power).beginLite},
		{"define", 4, true, (*power).defineTopic},
	}
}

var powerLites = []string{"x0", "x1", "x2", "x3"}

// powerSubs are the groups and what they read.
var powerSubs = []struct {
	group record.GroupID
	topic record.TopicID
}{
	{groupA, topicSync},
	{groupB, topicSync},
	{groupReset, topicSync},
	{groupA, topicAsync},
	{groupA, topicDelay},
	{groupA, topicTxn},
	{groupA, topicDead},
	{groupOrdered, topicFIFO},
	{groupLite, topicLite},
	{groupLite2, topicLite},
}

// send sends notes in one request.
func (p *power) send(kind string, notes ...*note) func() {
	req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(notes[0].topic)}
	for _, n := range notes {
		n.at = p.b.clock.Wall()
		req.Messages = append(req.Messages, n.message)
		if p.notes[n.id] == nil {
			n.with = notes
			p.notes[n.id] = n
			p.order = append(p.order, n)
		}
	}
	answer := begin(p, func(done func(*brokerapi.SendReply, error)) { p.b.proxy.Send(req, done) })
	return func() {
		r, err := answer()
		for i, n := range notes {
			if err != nil {
				n.lost = n.lost || n.stored == nil
				continue
			}
			p.wasStored(n, r.Results[i])
		}
		if err == nil {
			p.answered(kind)
		} else if refused(err) {
			p.t.Errorf("%s: %v", kind, err)
		}
	}
}

// wasStored takes the answer to a send. The answer to a repeated one is the first.
func (p *power) wasStored(n *note, r brokerapi.SendResult) {
	if n.stored != nil {
		want := again(*n.stored)
		want.DeliverAt = n.message.DeliverAt
		require.Equal(p.t, want, r, "%s was sent again", n.id)
		return
	}
	if r.Duplicate && (!n.lost || n.gone) {
		p.t.Errorf("%s is taken for a duplicate and was not stored before", n.id)
	}
	r.Duplicate, r.DeliverAt, n.gone = false, 0, false
	n.stored, n.firm = &r, n.firm || n.topic != topicAsync
	if at := (spot{n.topic, r.Queue, r.Offset}); r.Offset >= 0 {
		if n.place != nil && *n.place != at {
			p.t.Errorf("%s is at %v, its send was answered with %v", n.id, *n.place, at)
		}
		n.place = &at
	}
}

func (p *power) several(kind string, t record.TopicID, of brokerapi.MessageType, change func(*brokerapi.Message)) func() {
	var notes []*note
	for range 1 + p.rng.IntN(3) {
		n := p.message(t, of)
		if change != nil {
			change(&n.message)
		}
		notes = append(notes, n)
	}
	return p.send(kind, notes...)
}

func (p *power) later(m *brokerapi.Message) {
	m.DeliverAt = p.b.clock.Wall() + 1 + p.rng.Int64N(40_000)
}

func (p *power) sendFIFO() func() {
	g := uint64(1 + p.rng.IntN(3))
	return p.several("send in order", topicFIFO, brokerapi.FIFO, func(m *brokerapi.Message) { m.GroupHash, m.Queue = g, brokerapi.QueueID(g%2) })
}

func (p *power) sendHalf() func() {
	return p.send("send half", p.message(topicTxn, brokerapi.Transaction))
}

func (p *power) sendLite() func() {
	name := powerLites[p.rng.IntN(len(powerLites))]
	var notes []*note
	for range 1 + p.rng.IntN(2) {
		n := p.message(topicLite, brokerapi.Lite)
		n.message.Lite = name
		notes = append(notes, n)
	}
	return p.send("send to lite", notes...)
}

// sendAgain repeats what was sent not long ago, whatever came of it.
func (p *power) sendAgain() func() {
	recent := p.order[max(0, len(p.order)-30):]
	if len(recent) == 0 {
		return nil
	}
	n := recent[p.rng.IntN(len(recent))]
	if n.at+60_000 < p.b.clock.Wall() || n.commit != untried || n.roll != untried || n.message.DeliverAt > 0 && n.recall != untried {
		return nil
	}
	at := n.at
	finish := p.send("send again", n.with...)
	for _, o := range n.with {
		o.at = at // of its first copy, perhaps
	}
	return finish
}

func (p *power) receiveSome() func() {
	s := powerSubs[p.rng.IntN(len(powerSubs))]
	return p.receiving(s.group, s.topic, 1+p.rng.IntN(6))
}

func (p *power) receiving(g record.GroupID, t record.TopicID, max int) func() {
	if g == groupReset {
		if p.moves.flying {
			return nil
		}
		p.moves.popping++
	}
	req := &brokerapi.PopRequest{
		Topic: brokerapi.TopicID(t), Group: brokerapi.GroupID(g), Max: max, Client: "client", Invisible: time.Duration(5+p.rng.IntN(25)) * time.Second,
	}
	if g == groupB && p.rng.IntN(2) == 0 {
		req.Invisible = time.Second
	}
	answer := begin(p, func(done func(*brokerapi.PopReply, error)) { p.b.proxy.Pop(req, done) })
	return func() {
		r, err := answer()
		if err != nil {
			return
		}
		defer r.Release()
		p.delivered(g, t, r.Messages, req.Invisible)
		if len(r.Messages) > 0 {
			p.answered("receive")
		}
	}
}

// receive receives once and returns what came.
func (p *power) receive(g record.GroupID, t record.TopicID) []got {
	ms, _, err := p.b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(t), Group: brokerapi.GroupID(g), Invisible: 12 * time.Hour})
	require.NoError(p.t, err)
	var ds []brokerapi.Delivery
	for _, m := range ms {
		d := m.Delivery
		d.Body = []byte(m.body)
		ds = append(ds, d)
	}
	p.delivered(g, t, ds, 12*time.Hour)
	return ms
}

// taking draws messages that a group holds and nobody else may get now.
func (p *power) taking(g record.GroupID, most int) []*taken {
	now := p.b.clock.Lease()
	p.held[g] = slices.DeleteFunc(p.held[g], func(k *taken) bool {
		return k.until <= now || k.acked != untried || k.dead != untried
	})
	if len(p.held[g]) == 0 {
		return nil
	}
	p.rng.Shuffle(len(p.held[g]), func(i, j int) { p.held[g][i], p.held[g][j] = p.held[g][j], p.held[g][i] })
	var out []*taken
	for _, k := range p.held[g] {
		if len(out) < most && (len(out) == 0 || k.spot.topic == out[0].spot.topic) {
			out = append(out, k)
		}
	}
	return out
}

func (p *power) heldGroup() record.GroupID { return powerSubs[p.rng.IntN(len(powerSubs))].group }

func handles(ks []*taken) []brokerapi.Handle {
	var out []brokerapi.Handle
	for _, k := range ks {
		out = append(out, k.lease.handle())
	}
	return out
}

func (p *power) ack() func() {
	g := p.heldGroup()
	ks := p.taking(g, 4)
	if ks == nil {
		return nil
	}
	for _, k := range ks {
		k.acked = maybe
	}
	req := &brokerapi.AckRequest{Topic: brokerapi.TopicID(ks[0].spot.topic), Group: brokerapi.GroupID(g), Handles: handles(ks)}
	answer := begin(p, func(done func(*brokerapi.AckReply, error)) { p.b.proxy.Ack(req, done) })
	return func() {
		r, err := answer()
		if err != nil {
			return
		}
		for i, k := range ks {
			switch {
			case p.moves.on(g): // a reset may have undone it
			case r.Errors[i] == nil:
				k.acked = surely
			default:
				p.t.Errorf("ack of %s with the lease of its latest delivery: %v", k.note.id, r.Errors[i])
			}
		}
		p.answered("ack")
	}
}

func (p *power) change() func() {
	g := p.heldGroup()
	ks := p.taking(g, 2)
	if ks == nil {
		return nil
	}
	d := time.Duration(min(1, p.rng.IntN(3))*(1+p.rng.IntN(90))) * time.Second
	now := p.b.clock.Lease()
	for _, k := range ks {
		k.until = 0 // until it is answered
	}
	req := &brokerapi.ChangeRequest{Topic: brokerapi.TopicID(ks[0].spot.topic), Group: brokerapi.GroupID(g), Handles: handles(ks), Invisible: d}
	answer := begin(p, func(done func(*brokerapi.ChangeReply, error)) { p.b.proxy.Change(req, done) })
	return func() {
		r, err := answer()
		if err != nil {
			return
		}
		for i, k := range ks {
			switch {
			case r.Errors[i] == nil:
				k.until = max(k.until, now+d.Milliseconds())
				if !p.moves.on(g) && !slices.Contains(p.held[g], k) {
					p.held[g] = append(p.held[g], k)
				}
			case !p.moves.on(g) && k.acked == untried && k.dead == untried && k.until == 0:
				p.t.Errorf("change of %s with the lease of its latest delivery: %v", k.note.id, r.Errors[i])
			}
		}
		p.answered("change")
	}
}

// forward moves messages to the dead letters.
func (p *power) forward() func() {
	ks := p.taking(groupB, 2)
	if ks == nil {
		return nil
	}
	for _, k := range ks {
		k.dead = maybe
	}
	req := &brokerapi.ForwardRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupB), Handles: handles(ks)}
	answer := begin(p, func(done func(*brokerapi.ForwardReply, error)) { p.b.proxy.Forward(req, done) })
	return func() {
		r, err := answer()
		if err != nil {
			return
		}
		for i, k := range ks {
			switch {
			case r.Errors[i] == nil:
				k.dead = surely
			default:
				p.t.Errorf("forward of %s with the lease of its latest delivery: %v", k.note.id, r.Errors[i])
			}
		}
		p.answered("forward")
	}
}

func (p *power) redrive() func() {
	req := &brokerapi.RedriveRequest{Dead: brokerapi.TopicID(topicDead), Max: 1 + p.rng.IntN(3)}
	answer := blocking(p, func() (*brokerapi.RedriveReply, error) { return p.b.proxy.Redrive(context.Background(), req) })
	return func() {
		r, err := answer()
		if err != nil {
			p.redrivenMaybe += req.Max
			return
		}
		require.Empty(p.t, r.Failed)
		if p.redriven += r.Redriven; r.Redriven > 0 {
			p.answered("redrive")
		}
	}
}

// some draws a message that was sent with an answer, nil if there is none.
func (p *power) some(fits func(*note) bool) *note {
	var all []*note
	for _, n := range p.order {
		if n.stored != nil && fits(n) {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[p.rng.IntN(len(all))]
}

func (p *power) recall() func() {
	now := p.b.clock.Wall()
	n := p.some(func(n *note) bool { return n.message.DeliverAt > now-2000 })
	if n == nil {
		return nil
	}
	was := n.recall
	n.recall = max(n.recall, maybe)
	req := &brokerapi.RecallRequest{Topic: brokerapi.TopicID(n.topic), Ref: n.stored.Pos, DeliverAt: n.message.DeliverAt}
	answer := begin(p, func(done func(*brokerapi.RecallReply, error)) { p.b.proxy.Recall(req, done) })
	return func() {
		r, err := answer()
		switch {
		case err == nil:
			require.Equal(p.t, n.id, string(r.ID))
			n.recall = surely
			p.answered("recall")
		case refused(err):
			n.recall = was
			if was == surely || now < n.message.DeliverAt {
				p.t.Errorf("recall of %s, %d ms before its time, recalled before: %d: %v", n.id, n.message.DeliverAt-now, was, err)
			}
		}
	}
}

func (p *power) end(kind string, commit bool) func() {
	again := p.rng.IntN(4) == 0
	n := p.some(func(n *note) bool {
		return n.topic == topicTxn && (n.commit == surely || n.roll == surely) == again
	})
	if n == nil {
		return nil
	}
	return p.ending(kind, n, commit)
}

// ending gives a verdict. The first one stands.
func (p *power) ending(kind string, n *note, commit bool) func() {
	mine, other := &n.commit, &n.roll
	if !commit {
		mine, other = other, mine
	}
	was := *mine
	*mine = max(*mine, maybe)
	req := &brokerapi.EndTxnRequest{Topic: brokerapi.TopicID(n.topic), ID: []byte(n.id), Commit: commit, Source: brokerapi.TxnByClient}
	answer := begin(p, func(done func(*brokerapi.EndTxnReply, error)) { p.b.proxy.EndTxn(req, done) })
	return func() {
		_, err := answer()
		switch {
		case err == nil:
			if *other == surely {
				p.t.Errorf("%s: two verdicts were taken, the last one is %s", n.id, kind)
			}
			*mine, *other = surely, untried
			p.answered(kind)
		case refused(err):
			if was == surely || n.stored != nil && *other == untried && !p.mayBeGivenUp(n) {
				p.t.Errorf("%s: %s: %v", kind, n.id, err)
			}
			*mine = was
			if was == maybe && *other == surely {
				*mine = untried
			}
		}
	}
}

// mayBeGivenUp tells whether a transaction is so old that the broker may have ended it.
func (p *power) mayBeGivenUp(n *note) bool { return p.b.clock.Wall() >= n.stored.StoreTime+36_000 }

// check takes checks: nobody is asked about what was ended before.
func (p *power) check() func() {
	ended := map[string]bool{}
	for _, n := range p.order {
		if n.commit == surely || n.roll == surely {
			ended[n.id] = true
		}
	}
	answer := begin(p, func(done func(*brokerapi.ChecksReply, error)) {
		p.b.proxy.Checks(&brokerapi.ChecksRequest{Max: 2}, done)
	})
	return func() {
		r, err := answer()
		if err != nil {
			return
		}
		defer r.Release()
		for i := range r.Checks {
			c := &r.Checks[i]
			n := p.noteOf(string(c.Message.Body))
			switch {
			case ended[n.id]:
				p.t.Errorf("%s is checked, its verdict was answered before", n.id)
			case n.stored != nil && n.stored.Pos != c.Half:
				p.t.Errorf("%s is checked at %d, it was stored at %d", n.id, c.Half, n.stored.Pos)
			case c.Checks > 2 || c.Checks < 1:
				p.t.Errorf("check %d of %s", c.Checks, n.id)
			}
		}
		if len(r.Checks) > 0 {
			p.answered("check")
		}
	}
}

// setOffsets stores positions in some queues with one request.
func (p *power) setOffsets() func() {
	if p.setting != nil { // of two that are unknown nothing could be said
		return nil
	}
	n := p.some(func(n *note) bool { return n.topic == topicSync && n.stored.Offset >= 0 })
	if n == nil {
		return nil
	}
	p.setting = nil
	for q := range brokerapi.QueueID(4) {
		off := brokerapi.QueueOffset(0)
		if q == n.stored.Queue {
			off = brokerapi.QueueOffset(p.rng.Int64N(int64(n.stored.Offset) + 2))
		} else if p.rng.IntN(2) == 0 {
			continue
		}
		p.setting = append(p.setting, brokerapi.SetOffset{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupPull), Queue: q, Offset: off})
	}
	req := &brokerapi.SetOffsetsRequest{Offsets: p.setting}
	answer := blocking(p, func() (*brokerapi.SetOffsetsReply, error) { return p.b.proxy.SetOffsets(context.Background(), req) })
	return func() {
		_, err := answer()
		if err != nil {
			if refused(err) {
				p.t.Errorf("set offsets: %v", err)
			}
			return
		}
		for _, s := range p.setting {
			p.position[s.Queue] = s.Offset
		}
		p.setting = nil
		p.answered("set offsets")
	}
}

// beginLite makes the second group begin at the end of a lite topic that it has not read.
func (p *power) beginLite() func() {
	name := powerLites[p.rng.IntN(len(powerLites))]
	if _, is := p.starts[name]; is || p.some(func(n *note) bool { return n.message.Lite == name }) == nil {
		return nil
	}
	req := &brokerapi.SyncLiteRequest{
		Topic: brokerapi.TopicID(topicLite), Group: brokerapi.GroupID(groupLite2), Client: "client", Action: brokerapi.LitePartialAdd,
		Names: []string{name}, From: brokerapi.LiteFromEnd,
	}
	before := p.n
	answer := blocking(p, func() (*brokerapi.SyncLiteReply, error) { return p.b.proxy.SyncLite(context.Background(), req) })
	return func() {
		if _, err := answer(); err != nil {
			p.starts[name] = 0
			return
		}
		p.starts[name] = before
		p.answered("begin at lite")
	}
}

// defineTopic makes a topic, or deletes one that was made so.
func (p *power) defineTopic() func() {
	p.version++
	d := &Definitions{Version: p.version}
	id := record.TopicID(1000 + len(p.defined))
	for old, f := range p.defined {
		if f == surely && p.deleted[old] == untried && p.rng.IntN(2) == 0 {
			id = old
		}
	}
	state := p.defined
	if p.defined[id] == untried {
		d.Topics = []topic.Definition{{ID: id, Name: fmt.Sprintf("extra-%d", id), Type: 1, Queues: 1, Version: p.version}}
	} else {
		d.DeletedTopics, state = []record.TopicID{id}, p.deleted
	}
	state[id] = maybe
	answer := blocking(p, func() (struct{}, error) { return struct{}{}, p.b.engine.Define(context.Background(), d) })
	return func() {
		if _, err := answer(); err == nil {
			state[id] = surely
			p.answered("define")
		}
	}
}
