package engine

import (
	"sync"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// op is one request to the writer.
type op interface {
	// run acts on the views and the batch and says in its waiter what the answer waits for.
	run(w *writer)
	// finish answers, exactly once, with what run found or with err.
	finish(w *writer, err error)
	// bytes is what the request holds in memory until it is answered, at least 1.
	bytes() int
	waits() *waiter
}

// inbox is where requests wait for the writer. Its lock is held for an append or a swap only.
type inbox struct {
	wake chan struct{} // holds a token when there is something to do

	mu       sync.Mutex
	ops      []op
	waiting  int   // requests of callers without an answer: the engine's own count for nothing
	size     int64 // bytes of those
	maxOps   int
	maxBytes int64
	stuck    func() error // nil: never; why nothing can be stored just now
	closed   error        // what requests are told that come before Start or after the end
	failed   error        // the log failed
}

func (b *inbox) init(maxOps int, maxBytes int64) {
	b.wake = make(chan struct{}, 1)
	b.maxOps, b.maxBytes = maxOps, maxBytes
	b.closed = errNotStarted
}

// errNotStarted answers requests to an engine that has not begun its epoch.
var errNotStarted = mqerr.New(mqerr.Unavailable, "the broker is starting: it takes no requests yet")

// errPressed answers sends while memory is nearly used up.
var errPressed = mqerr.New(mqerr.Exhausted, "the memory of the broker is nearly used up: retry after a pause")

// open takes requests from now on, those of callers only while stuck, if there is one, says nothing.
func (b *inbox) open(stuck func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.stuck = nil, stuck
}

// put adds a request, or tells why not. One of the engine's own is taken however many wait.
func (b *inbox) put(o op, own bool) error {
	n := int64(o.bytes())
	b.mu.Lock()
	switch {
	case b.closed != nil:
		err := b.closed
		b.mu.Unlock()
		return err
	case !own && (b.waiting >= b.maxOps || b.size+n > b.maxBytes):
		waiting, size := b.waiting, b.size
		b.mu.Unlock()
		return mqerr.New(mqerr.Exhausted, "the broker has %d requests (%d bytes) under way: retry after a pause", waiting, size)
	}
	if !own && b.stuck != nil {
		if err := b.stuck(); err != nil {
			b.mu.Unlock()
			return err
		}
	}
	b.ops = append(b.ops, o)
	if !own {
		b.waiting++
		b.size += n
		o.waits().held = n
	}
	first := len(b.ops) == 1
	b.mu.Unlock()
	if first {
		b.ring()
	}
	return nil
}

// ring wakes the writer.
func (b *inbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take returns all waiting requests and keeps spare for those to come.
func (b *inbox) take(spare []op) []op {
	b.mu.Lock()
	defer b.mu.Unlock()
	ops := b.ops
	b.ops = spare[:0]
	return ops
}

// free takes requests off the count that were answered.
func (b *inbox) free(n int, size int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting -= n
	b.size -= size
}

// shut refuses all later requests with err and returns those that wait.
func (b *inbox) shut(err error) []op {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		b.closed = err
	}
	ops := b.ops
	b.ops = nil
	return ops
}

// fail remembers why the log failed.
func (b *inbox) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = err
}

func (b *inbox) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// submit hands a request to the writer; one that is refused is answered at once.
func (e *Engine) submit(o op) {
	if err := e.inbox.put(o, false); err != nil {
		e.counts.Refused.Add(1)
		o.finish(nil, err)
	}
}

// submitOwn hands over a request of the engine itself, which too many others do not keep out.
func (e *Engine) submitOwn(o op) {
	if err := e.inbox.put(o, true); err != nil {
		o.finish(nil, err)
	}
}
