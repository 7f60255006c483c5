package longpoll

import (
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Wait is one receive that is under way.
//
// Invariants, under Polls.mu: at most one pop of a Wait is in flight; it is in the idle list of each
// of its places or of none; it is in none unless it is open and no pop of it is in flight.
type Wait struct {
	polls *Polls
	req   *Request
	done  func(Answer)

	// state decides the race between answer, deadline and cancel: whoever moves it away from open
	// has ended the receive, and the others find it so. Guarded by Polls.mu.
	state   state
	seq     uint64    // order of arrival
	key     *group    // where it counts
	stops   []stop    // one for each shard, in the order in which they are asked
	popping *stop     // the pop in flight, nil if none
	popAt   *place    // its place then
	seen    uint64    // events of that place when the pop was sent
	others  uint64    // events for clients of its group then
	fresh   bool      // has not waited yet
	doubted bool      // at is when it is answered with an error if its brokers cannot be asked then
	heapAt  int       // index in the heap of deadlines, -1 if it is not there
	at      time.Time // deadline

	pop   brokerapi.PopRequest // of the pop in flight
	phase atomic.Uint32        // of the pop in flight, see call
	reply *brokerapi.PopReply  // of the pop that was answered
	err   error                // same
	onPop func(*brokerapi.PopReply, error)
}

type state uint8

const (
	open      state = iota // waits or pops
	answered               // done was or will be called
	cancelled              // done is not called
)

// stop is one shard on a receive's way.
type stop struct {
	w          *Wait
	place      *place
	aside      *group // that place is of, if the receive waits aside (full.go), else nil
	ask        bool   // it must be popped before the receive may wait
	err        error  // why the last pop there failed, nil if it did not
	lost       bool   // an answer may have been lost on the way: the pop is made again by this receive, as the broker knows it
	prev, next *stop  // in the idle list of place
	idle       bool   // in that list
}

func newWait(p *Polls, req *Request, done func(Answer)) *Wait {
	w := &Wait{polls: p, req: req, done: done, heapAt: -1, at: req.Deadline, pop: req.Pop, fresh: true}
	w.pop.Arm = true
	w.pop.Deadline = req.Deadline
	w.onPop = w.popped
	return w
}

// Cancel ends the receive without an answer. It reports false when the answer came first: then done
// was called or is about to be.
func (w *Wait) Cancel() bool { return w.polls.cancel(w) }

// Phases of a pop in flight. A broker may answer before its Pop returns, also on the same
// goroutine; the answer is then handled by the one that called Pop, in a loop and not deeper and
// deeper in the stack.
const (
	calling uint32 = iota
	answeredAtOnce
	returned
)

// popped is the broker's answer to a pop.
func (w *Wait) popped(reply *brokerapi.PopReply, err error) {
	w.reply, w.err = reply, err
	if w.phase.CompareAndSwap(calling, answeredAtOnce) {
		return
	}
	w.polls.replied(w)
}

// call sends w's pop to a shard and reports whether it is answered already.
func (w *Wait) call(shard brokerapi.ShardID) bool {
	b, epoch, err := w.polls.o.Brokers.Broker(shard)
	if err != nil {
		w.reply, w.err = nil, err
		return true
	}
	w.pop.Epoch = epoch
	w.phase.Store(calling)
	b.Pop(&w.pop, w.onPop)
	return !w.phase.CompareAndSwap(calling, returned)
}

// final tells failures that the next try would meet again. After any other the receive goes on: the
// broker could not be asked, cannot answer now, or its answer got lost.
func final(err error) bool {
	switch mqerr.KindOf(err) {
	case mqerr.Invalid, mqerr.TopicNotFound, mqerr.GroupNotFound, mqerr.NotFound, mqerr.Unsupported, mqerr.Denied:
		return true
	}
	return false
}
