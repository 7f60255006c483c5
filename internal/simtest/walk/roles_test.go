package walk

import (
	"slices"

	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// promote begins an epoch: promise, EPOCH record, flush, sessions. It may end between any two of these.
func (n *node) promote(v quorum.View) {
	w := n.w
	n.hangUp()
	n.promised, n.done = v.Epoch, v.Epoch
	if !w.calm && w.chance(20) && w.mayTaint(n) {
		n.tainted = w.cfg.mode == quorum.Memory
		w.kill(n)
		return
	}
	if owner, ok := w.owners[v.Epoch]; ok {
		w.fail("I1: epoch %d of %v is begun by %v", v.Epoch, owner, n.member())
	}
	w.owners[v.Epoch] = n.member()
	n.append(v.Epoch)
	if !w.calm && w.chance(20) && w.mayTaint(n) {
		n.tainted = w.cfg.mode == quorum.Memory
		w.kill(n)
		return
	}
	n.durable = len(n.log)
	n.lead(v, record.Pos(len(n.log)))
}

// lead makes the core of an epoch whose EPOCH record ends at start.
func (n *node) lead(v quorum.View, start record.Pos) {
	end := record.Pos(len(n.log))
	m, err := quorum.New(quorum.Options{
		Self: n.member(), View: v, Mode: n.w.cfg.mode,
		Start: start, Written: end, Durable: record.Pos(n.durable), Confirm: n.confirm, Times: n.w.times,
	}, n.w.now)
	if err != nil {
		n.w.fail("replica %d: %v", n.id, err)
		return
	}
	n.m, n.f, n.feeds, n.asked = m, nil, nil, 0
	n.led(m.Tick(n.w.now))
}

// goOn resumes an epoch after a restart, which is against the rules.
func (n *node) goOn() {
	v := n.w.view()
	n.inc = v.Master.Inc
	if v.Epoch == 0 || v.Epoch < n.promised || !slices.Contains(v.Set, n.member()) || len(n.log) == 0 {
		n.inc = 0
		n.register(true)
		return
	}
	n.promised = v.Epoch
	n.lead(v, record.Pos(len(n.log)))
}

func (n *node) append(epoch record.Epoch) {
	n.w.value++
	n.log = append(slices.Clip(n.log), rec{epoch, n.w.value})
	if err := n.spans.Append(epoch, n.spans.End(), n.spans.End()+1); err != nil {
		n.w.fail("replica %d: %v", n.id, err)
	}
}

// led is what came of a call of the master's core.
func (n *node) led(o quorum.Out) {
	w := n.w
	if n.m == nil {
		return
	}
	if err := n.m.Check(); err != nil {
		w.fail("master %d: %v", n.id, err)
	}
	c := o.Confirm
	if w.off.anyTwo {
		c = n.anyTwo()
	}
	if c > n.confirm {
		n.confirm = c
		w.acknowledged(n)
	}
	if o.Propose {
		p, _ := n.m.Pending()
		m := n.m
		n.asked = p.Number
		w.send("proposal", func() { w.alter(n, m, p) })
	}
	if o.Over {
		w.trace("over: %v", n.m.Over())
		n.follow()
	}
}

// anyTwo is how far any two replicas have acked, which is not enough.
func (n *node) anyTwo() record.Pos {
	best := record.Pos(0)
	for _, p := range n.m.Peers(nil) {
		end := p.Durable
		if n.w.cfg.mode == quorum.Memory {
			end = p.Written
		}
		best = max(best, end)
	}
	if n.w.cfg.mode == quorum.Durable {
		best = min(best, record.Pos(n.durable))
	}
	return max(best, n.confirm)
}

func (n *node) write() {
	if n.m == nil || len(n.log) > 400 {
		return
	}
	for range 1 + n.w.rng.IntN(3) {
		n.append(n.m.Epoch())
	}
	n.led(n.m.OwnEnd(record.Pos(len(n.log)), record.Pos(n.durable)))
}

func (n *node) tick() {
	if n.m != nil {
		n.led(n.m.Tick(n.w.now))
	}
}

// timeOut gives up waiting for the answer to a proposal, which may be on its way.
func (n *node) timeOut() {
	if n.m != nil && n.asked != 0 {
		number := n.asked
		n.asked = 0
		n.led(n.m.Answered(n.w.now, number, quorum.Unknown, quorum.View{}))
	}
}

func (n *node) resign() {
	if n.m != nil && n.w.chance(3) {
		n.w.resign(n)
	}
}

// feed sends records, or a beat, to one of the followers.
func (n *node) feed() {
	w := n.w
	if n.m == nil || len(n.feeds) == 0 {
		return
	}
	f := n.feeds[w.rng.IntN(len(n.feeds))]
	if !n.m.Sent(w.now, f.session, record.Pos(len(n.log))) {
		n.feeds = slices.DeleteFunc(n.feeds, func(other *feed) bool { return other == f })
		return
	}
	epoch, to := n.m.Epoch(), f.to
	if f.next >= len(n.log) {
		b := follower.Beat{Session: f.session, Epoch: epoch, LogEnd: record.Pos(len(n.log)), Confirm: n.m.Confirm()}
		w.send("beat", func() { to.beat(b) })
		return
	}
	end := f.next + 1
	for end < len(n.log) && n.log[end].epoch == n.log[f.next].epoch && w.rng.IntN(4) > 0 {
		end++
	}
	recs := slices.Clone(n.log[f.next:end])
	b := follower.Batch{
		Session: f.session, Epoch: epoch, Start: record.Pos(f.next), End: record.Pos(end), RecordEpoch: recs[0].epoch, Confirm: n.m.Confirm(),
	}
	f.next = end
	w.send("batch", func() { to.batch(b, recs) })
}

func (n *node) tail() replica.Tail {
	if len(n.log) == 0 {
		return replica.Tail{}
	}
	return tailAt(n.log, len(n.log))
}

func tailAt(log []rec, end int) replica.Tail {
	if end < 1 || end > len(log) {
		return replica.Tail{}
	}
	return replica.Tail{Pos: record.Pos(end - 1), Size: 1, CRC: uint32(log[end-1].value)}
}

// hello is a follower's stream that arrives at a replica which it takes for the master.
func (n *node) hello(from *node, who quorum.Member, promised record.Epoch, h replica.Hello, tail replica.Tail, conn uint64) {
	w := n.w
	if !n.up || n.m == nil {
		w.send("close", func() { from.closed(conn) })
		return
	}
	if promised > n.m.Epoch() {
		n.led(n.m.Higher(promised))
		return
	}
	a, err := n.spans.Reconcile(&h)
	if err != nil {
		w.fail("hello of %d: %v", from.id, err)
		return
	}
	a = a.CheckTail(tail, tailAt(n.log, int(h.End)))
	welcome := follower.Welcome{
		Epoch: n.m.Epoch(), Master: n.member(), Answer: a, Confirm: n.m.Confirm(), LogEnd: record.Pos(len(n.log)),
		Session: 1 << 60,
	}
	if a.Verdict == replica.Resume || a.Verdict == replica.Truncate {
		s, _, err := n.m.Open(w.now, who, false)
		if err != nil {
			if !mqerr.Is(err, mqerr.Fenced) {
				w.fail("session of %d: %v", from.id, err)
			}
			w.send("close", func() { from.closed(conn) })
			return
		}
		welcome.Session = s
		n.feeds = slices.DeleteFunc(n.feeds, func(f *feed) bool {
			if f.to == from { // superseded: that stream ends
				w.send("close", func() { from.closed(f.conn) })
			}
			return f.to == from
		})
		n.feeds = append(n.feeds, &feed{to: from, conn: conn, session: s, next: int(a.At)})
	}
	w.send("welcome", func() { from.welcome(conn, welcome) })
}

// acked is an ack that arrives at a master.
func (n *node) acked(from *node, a follower.Ack) {
	if n.m == nil {
		return
	}
	if n.w.off.noSessions {
		for _, f := range n.feeds {
			if f.to == from {
				a.Session, a.Epoch = f.session, n.m.Epoch()
				a.Written = min(a.Written, record.Pos(len(n.log)))
				a.Durable = min(a.Durable, a.Written)
			}
		}
	}
	o, err := n.m.Acked(n.w.now, a.Session, a.Epoch, a.Written, a.Durable)
	if err != nil && !mqerr.Is(err, mqerr.Fenced) {
		n.w.fail("ack of %d: %v", from.id, err)
	}
	n.led(o)
}
