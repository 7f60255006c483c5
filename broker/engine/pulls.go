package engine

import (
	"container/heap"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// pulls are the pulls that wait at the end of their queues. One that is woken, by a message or by the end
// of its time, runs again in the next turn. While they wait they do not count in the inbox: pulls have a
// bound of their own.
//
// Invariant: each is in the list of its queue, at its seat, and in the heap, at its heapAt.
type pulls struct {
	w       *writer
	byQueue map[queue.Key][]*pullOp
	ends    pullHeap
	over    bool // none may wait any more
}

func (p *pulls) init(w *writer) {
	p.w = w
	p.byQueue = map[queue.Key][]*pullOp{}
}

// park lets o wait, or says why not.
func (p *pulls) park(o *pullOp) error {
	if o.from != nil && o.from.closed {
		return errGone
	}
	if most := p.w.e.o.PullsWaiting; len(p.ends) >= most {
		p.w.e.counts.PullsRefused.Add(1)
		return mqerr.New(mqerr.Exhausted, "%d pulls wait at this broker, more are not taken: retry after a pause", most)
	}
	o.parked = true
	if o.held > 0 {
		p.w.off.n++
		p.w.off.bytes += o.held
		o.held = 0
	}
	k := o.key()
	o.seat = len(p.byQueue[k])
	p.byQueue[k] = append(p.byQueue[k], o)
	heap.Push(&p.ends, o)
	return nil
}

// remove takes o out, to run again.
func (p *pulls) remove(o *pullOp) {
	k := o.key()
	list := p.byQueue[k]
	last := len(list) - 1
	list[o.seat] = list[last]
	list[o.seat].seat = o.seat
	list[last] = nil
	if p.byQueue[k] = list[:last]; last == 0 {
		delete(p.byQueue, k)
	}
	heap.Remove(&p.ends, o.heapAt)
	p.w.later = append(p.w.later, o)
}

// wake lets those run that wait for a queue.
func (p *pulls) wake(topic record.TopicID, q record.QueueID) {
	if len(p.ends) == 0 {
		return
	}
	k := queue.Key{Topic: topic, Queue: q}
	for len(p.byQueue[k]) > 0 {
		p.remove(p.byQueue[k][0])
	}
}

// expire lets those run whose time is over.
func (p *pulls) expire() {
	for len(p.ends) > 0 && p.ends[0].until <= p.w.lease {
		p.remove(p.ends[0])
	}
}

// AnswerWaiting lets no pull wait any more: those that do are answered with no message, and the offset to go
// on with. It is for a broker that is about to stop.
func (e *Engine) AnswerWaiting() {
	e.submitOwn(&callOp{do: func(w *writer) {
		w.pulls.over = true
		for len(w.pulls.ends) > 0 {
			w.pulls.remove(w.pulls.ends[0])
		}
	}, done: func(error) {}})
}

// next is when the first one has waited long enough.
func (p *pulls) next() (int64, bool) {
	if len(p.ends) == 0 {
		return 0, false
	}
	return p.ends[0].until, true
}

// leave ends the pulls of a session that is closed.
func (p *pulls) leave(s *session) {
	for _, o := range p.ends.clone() {
		if o.from == s {
			o.err = errGone
			p.remove(o)
		}
	}
}

// all takes out all pulls, for the end of the engine.
func (p *pulls) all() []op {
	ops := make([]op, len(p.ends))
	for i, o := range p.ends {
		ops[i] = o
	}
	p.ends = nil
	clear(p.byQueue)
	return ops
}

// pullHeap has the pull whose time ends first at index 0.
type pullHeap []*pullOp

func (h pullHeap) clone() []*pullOp { return append([]*pullOp(nil), h...) }

func (h pullHeap) Len() int           { return len(h) }
func (h pullHeap) Less(i, j int) bool { return h[i].until < h[j].until }

func (h pullHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = i, j
}

// Push is part of heap.Interface.
func (h *pullHeap) Push(x any) {
	o := x.(*pullOp) //nolint:forcetypeassert // nothing else is in it
	o.heapAt = len(*h)
	*h = append(*h, o)
}

// Pop is part of heap.Interface.
func (h *pullHeap) Pop() any {
	last := len(*h) - 1
	o := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return o
}
