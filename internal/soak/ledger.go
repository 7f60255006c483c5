package main

import (
	"fmt"
	"sync"
	"time"
)

// ledger is what the service has promised. It forgets what was done a while ago, so that it stays small. It is
// safe for concurrent use.
type ledger struct {
	keep time.Duration // how long what is done must not come again is remembered

	mu     sync.Mutex // guards what follows
	open   map[string]*entry
	done   map[string]time.Time // when its ack was answered
	stored int64                // sends that were answered
	acked  int64
	again  int64 // deliveries beyond the first of a message
	faults []string
}

// entry is a message that is to come.
type entry struct {
	at     time.Time // of its send
	due    time.Time // not before
	stored bool      // its send was answered, or its transaction committed
	never  bool      // it must not come: rolled back
	unsure bool      // an ack had no answer: it may be done
	seen   int
}

func newLedger(keep time.Duration) *ledger {
	return &ledger{keep: keep, open: map[string]*entry{}, done: map[string]time.Time{}}
}

func (l *ledger) fault(format string, args ...any) {
	if len(l.faults) < 20 {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

// sending notes a message before it is sent.
func (l *ledger) sending(id string, now, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[id] = &entry{at: now, due: due}
}

// sent notes a message that will come.
func (l *ledger) sent(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.open[id]; e != nil && !e.stored {
		e.stored = true
		l.stored++
	}
}

// refused forgets a message of which it is known that it was not stored.
func (l *ledger) refused(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, id)
}

// rolledBack notes a message that must not come.
func (l *ledger) rolledBack(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.open[id]; e != nil {
		e.never = true
	}
}

// came notes a delivery.
func (l *ledger) came(id string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.open[id]
	switch {
	case e == nil:
		if at, is := l.done[id]; is {
			l.fault("%s came %v after its ack was answered", id, now.Sub(at))
		} else {
			l.fault("%s came and is not expected", id)
		}
		return
	case e.never:
		l.fault("%s came and was rolled back", id)
	case now.Before(e.due):
		l.fault("%s came %v before its time", id, e.due.Sub(now))
	}
	if e.seen++; e.seen > 1 {
		l.again++
	}
}

// unsure notes an ack of which it is not known what became.
func (l *ledger) unsure(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.open[id]; e != nil {
		e.unsure = true
	}
}

// ended notes an ack that was answered OK.
func (l *ledger) ended(id string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, id)
	l.done[id] = now
	l.acked++
}

// sweep forgets what is old, and finds what should have come.
func (l *ledger) sweep(now time.Time, patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, at := range l.done {
		if now.Sub(at) > l.keep {
			delete(l.done, id)
		}
	}
	for id, e := range l.open {
		from := e.at
		if e.due.After(from) {
			from = e.due
		}
		if now.Sub(from) < patience {
			continue
		}
		if e.stored && !e.never && !e.unsure {
			l.fault("%s, which was stored, is not done %v after its time; it came %d times", id, now.Sub(from).Round(time.Second), e.seen)
		}
		delete(l.open, id) // of unknown outcome, rolled back, or told
	}
}

// left counts messages that are stored and not done.
func (l *ledger) left() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.open {
		if e.stored && !e.never && !e.unsure {
			n++
		}
	}
	return n
}

func (l *ledger) wrong() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.faults...)
}

func (l *ledger) counts() (stored, acked, again int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stored, l.acked, l.again
}
