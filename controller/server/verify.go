package server

import (
	"context"
	"sync"
	"time"
)

// verifyTimeout bounds one question to the other controllers whether this node still leads.
const verifyTimeout = 2 * time.Second

// verifier asks whether this node still leads, once for everybody who wants to know: whoever comes while a question
// is on its way waits for the next one, since the answer has to be younger than the wish.
type verifier struct {
	ask func(context.Context) error

	mu   sync.Mutex // guards the rest
	busy bool       // a goroutine asks
	next *round     // of those who wait for the next question; nil: nobody
}

// round is one question. err is set when done is closed.
type round struct {
	done chan struct{}
	err  error
}

// sure returns nil if this node was the leader at some moment after the call.
func (v *verifier) sure(ctx context.Context, wg *sync.WaitGroup) error {
	v.mu.Lock()
	if v.next == nil {
		v.next = &round{done: make(chan struct{})}
	}
	r := v.next
	if !v.busy {
		v.busy = true
		wg.Go(v.run)
	}
	v.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run asks until nobody waits.
func (v *verifier) run() {
	for {
		v.mu.Lock()
		r := v.next
		v.next, v.busy = nil, r != nil
		v.mu.Unlock()
		if r == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), verifyTimeout)
		r.err = v.ask(ctx)
		cancel()
		close(r.done)
	}
}
