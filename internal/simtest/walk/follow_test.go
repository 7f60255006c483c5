package walk

import (
	"slices"

	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// connect opens a stream to the master that a follower knows.
func (n *node) connect() {
	if n.f == nil || n.inc == 0 || n.f.State() == follower.Failed {
		return
	}
	if n.w.calm && n.f.State() == follower.Reconciling { // what it waits for got lost
		n.hangUp()
	}
	h, err := n.f.Hello()
	if err != nil {
		return
	}
	w := n.w
	w.conns++
	n.conn = w.conns
	master, _ := n.f.Master()
	conn, who, promised, tail, to := n.conn, n.member(), n.f.Promised(), n.tail(), w.nodes[master.Replica-1]
	w.send("hello", func() { to.hello(n, who, promised, h, tail, conn) })
}

func (n *node) closed(conn uint64) {
	if n.f != nil && n.conn == conn {
		n.hangUp()
	}
}

func (n *node) welcome(conn uint64, welcome follower.Welcome) {
	if n.f == nil || n.conn != conn {
		return // another stream
	}
	n.w.trace("welcome of %d: %+v", n.id, welcome)
	t, err := n.f.Welcome(welcome)
	if n.refused(err) {
		return
	}
	if t.MoreSpans || t.Snapshot {
		n.w.fail("replica %d: %v of a log that is all there", n.id, welcome.Verdict)
	}
	n.do(t)
}

// refused closes the stream for an error other than a message that is out of date.
func (n *node) refused(err error) bool {
	switch {
	case err == nil:
		return false
	case n.f.Failed() != nil:
		n.w.fail("I12: replica %d: %v", n.id, err)
	case !mqerr.Is(err, mqerr.Fenced):
		n.hangUp()
	}
	return true
}

func (n *node) batch(b follower.Batch, recs []rec) {
	if n.f == nil {
		return
	}
	t, err := n.f.Batch(b)
	if n.refused(err) || !t.Append {
		return
	}
	n.log = append(slices.Clip(n.log), recs...)
	t, err = n.f.Appended(b)
	if err != nil {
		n.w.fail("replica %d: %v", n.id, err)
		return
	}
	n.do(t)
}

func (n *node) beat(b follower.Beat) {
	if n.f == nil {
		return
	}
	t, err := n.f.Beat(b)
	if !n.refused(err) {
		n.do(t)
	}
}

// do carries out what a follower's core wants. The process may end before a step is done.
func (n *node) do(t follower.Todo) {
	w := n.w
	if t.Close {
		n.conn = 0
		w.broken(n)
	}
	if t.Promise != 0 {
		if n.ends() {
			return
		}
		n.promised = t.Promise
		n.do(n.f.PromiseKept(t.Promise))
	}
	if t.Cut {
		if n.ends() {
			return
		}
		if t.CutAt < n.confirm {
			w.fail("I12: replica %d cuts at %d what is acknowledged to %d", n.id, t.CutAt, n.confirm)
		}
		if int(t.CutAt) < len(n.log) {
			w.stats.cuts++
		}
		n.log = n.log[:t.CutAt]
		n.durable = min(n.durable, len(n.log))
		after, err := n.f.CutDone(t.CutAt)
		if n.refused(err) {
			return
		}
		n.do(after)
	}
	if n.f == nil {
		return
	}
	if err := n.f.Check(); err != nil {
		w.fail("follower %d: %v", n.id, err)
	}
	if c := n.f.Confirm(); c != n.confirm {
		if c < n.confirm {
			w.fail("C of %d goes back from %d to %d", n.id, n.confirm, c)
		}
		n.confirm = c
		w.shown(n)
	}
	if t.Ack {
		n.ack()
	}
}

func (n *node) ends() bool {
	w := n.w
	if w.calm || !w.chance(40) || !w.mayTaint(n) {
		return false
	}
	n.tainted = w.cfg.mode == quorum.Memory
	w.kill(n)
	return true
}

func (n *node) ack() {
	a, ok := n.f.Ack()
	if !ok {
		return
	}
	if a.Epoch < n.promised || a.Written != record.Pos(len(n.log)) {
		n.w.fail("I10: replica %d acks %+v, promised is %d, its log has %d", n.id, a, n.promised, len(n.log))
	}
	master, _ := n.f.Master()
	to := n.w.nodes[master.Replica-1]
	n.w.send("ack", func() { to.acked(n, a) })
}
