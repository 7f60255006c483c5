// Package failover lets calls outlive the master that they were made to: a call that failed because its broker does
// not lead, or cannot be reached, waits for the next master of the broker group and is made again there, within the
// time of its caller.
//
// What waits has no goroutine, only a timer for the end of its time. It is woken by Changed.
package failover

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Brokers finds the broker that leads a shard.
type Brokers interface {
	// Broker returns the broker and the highest epoch seen of its shard. The error is of kind Unavailable when the
	// shard has no reachable master now.
	Broker(shard brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error)
}

// Options configures New. The zero value of a field means its default.
type Options struct {
	Brokers Brokers // required
	// Wait is how long a call waits for a master at most, from its first failure on. Default 10 s.
	Wait time.Duration
}

// Masters is the calls of one proxy that wait. It is safe for concurrent use. A nil one lets no call wait.
type Masters struct {
	o       Options
	again   [reasons]atomic.Int64 // calls made again, by reason
	gaveUp  atomic.Int64          // calls that no master came for in time
	waiting atomic.Int64

	mu     sync.Mutex
	shards map[brokerapi.ShardID]map[*waiter]struct{} // no empty ones
}

// New returns a Masters with nothing that waits.
func New(o Options) *Masters {
	if o.Wait <= 0 {
		o.Wait = 10 * time.Second
	}
	return &Masters{o: o, shards: map[brokerapi.ShardID]map[*waiter]struct{}{}}
}

// Wait is how long a call waits at most. A nil Masters lets none.
func (m *Masters) Wait() time.Duration {
	if m == nil {
		return 0
	}
	return m.o.Wait
}

// Call is what is to be known of a call.
type Call struct {
	Shard brokerapi.ShardID
	// Deadline is when its caller goes away. Zero: never.
	Deadline time.Time
	// Wait bounds its wait if it is not 0; Options.Wait does in any case.
	Wait time.Duration
	// Repeat says that it may be made again though it may have taken effect.
	Repeat bool
}

// Try is what a call remembers from one try to the next. The zero value is a call that was not made yet.
type Try struct {
	unknown error     // of a try that may have taken effect
	until   time.Time // when it stops waiting
	pauses  int
}

// Unknown tells whether an earlier try may have taken effect.
func (t *Try) Unknown() bool { return t.unknown != nil }

// Earlier is the error of an earlier try that may have taken effect, nil if there is none.
func (t *Try) Earlier() error { return t.unknown }

// Result is the error that a caller is told when err was the last one: "nothing was written" is not the truth if an
// earlier try may have written.
func (t *Try) Result(err error) error {
	if t.unknown != nil && unwritten(mqerr.KindOf(err)) {
		return t.unknown
	}
	return err
}

// unwritten tells whether a kind of failure says that nothing was written.
func unwritten(k mqerr.Kind) bool {
	switch k {
	case mqerr.DiskFull, mqerr.Exhausted, mqerr.Timeout, mqerr.Cancelled, mqerr.QuotaExceeded:
		return true
	}
	_, is := reasonOf(k)
	return is && k != mqerr.UnknownOutcome
}

// margin is how long before its caller's deadline a call is answered that has waited in vain; a tenth of its time if
// that is less.
const margin = 100 * time.Millisecond

// Pauses between tries at a broker that can be reached and refuses, from the first to the longest.
const (
	pauseFirst = 10 * time.Millisecond
	pauseMax   = 500 * time.Millisecond
)

// Again tells whether a call that failed so is to be made again. If it is, then is called once, later and on another
// goroutine: with nil when it is to be made, with an error when its time is over.
func (m *Masters) Again(c Call, t *Try, err error, then func(error)) bool {
	why, may := reasonOf(mqerr.KindOf(err))
	if m == nil || !may {
		return false
	}
	if why == unknownOutcome {
		t.unknown = err
		if !c.Repeat {
			return false
		}
	}
	now := time.Now()
	if t.until.IsZero() {
		t.until = m.until(c, now)
	}
	if !now.Before(t.until) {
		m.gaveUp.Add(1)
		return false
	}
	pause, soon := t.until.Sub(now), min(pauseFirst<<min(t.pauses, 10), pauseMax)
	t.pauses++
	w := &waiter{m: m, shard: c.Shard, try: t, why: why, err: err, then: then}
	m.add(w) // from here on t is that of whoever wakes it
	// It waits from now on, so no change is missed. A broker that is there may be about to go, or may refuse for a
	// reason of its own: it is asked again after a pause.
	if _, _, down := m.o.Brokers.Broker(c.Shard); down == nil {
		pause = min(pause, soon)
	}
	w.after(pause)
	return true
}

// until is when a call that fails now stops waiting.
func (m *Masters) until(c Call, now time.Time) time.Time {
	wait := m.o.Wait
	if c.Wait > 0 {
		wait = min(wait, c.Wait)
	}
	if !c.Deadline.IsZero() {
		left := c.Deadline.Sub(now)
		wait = min(wait, left-min(margin, left/10))
	}
	return now.Add(wait)
}

// Changed says that a shard may have another master, or one that can be reached: what waits for it is made again.
func (m *Masters) Changed(shard brokerapi.ShardID) {
	if m == nil {
		return
	}
	m.mu.Lock()
	all := m.shards[shard]
	delete(m.shards, shard)
	m.mu.Unlock()
	if len(all) == 0 {
		return
	}
	m.waiting.Add(-int64(len(all)))
	go func() { // whoever tells must not be held up
		for w := range all {
			w.wake()
		}
	}()
}

// Look wakes what waits for shards whose brokers can be asked now.
func (m *Masters) Look() {
	if m == nil {
		return
	}
	m.mu.Lock()
	shards := slices.Collect(maps.Keys(m.shards))
	m.mu.Unlock()
	for _, shard := range shards {
		if _, _, err := m.o.Brokers.Broker(shard); err == nil {
			m.Changed(shard)
		}
	}
}

// Do makes a call that blocks, again and again if need be, until it succeeds, may not be made again, or ctx ends.
func (m *Masters) Do(ctx context.Context, c Call, call func() error) error {
	if at, ok := ctx.Deadline(); ok {
		c.Deadline = at
	}
	var t Try
	for {
		err := call()
		if err == nil {
			return nil
		}
		next := make(chan error, 1)
		if !m.Again(c, &t, err, func(e error) { next <- e }) {
			return t.Result(err)
		}
		select {
		case e := <-next:
			if e != nil {
				return e
			}
		case <-ctx.Done():
			return t.Result(err)
		}
	}
}
