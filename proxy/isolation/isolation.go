// Package isolation keeps sends away from broker groups that are slow or failing, where they may choose. It goes by how
// long sends to each group took lately, against the best of the others: when all are slow, none is worse. A group that
// is isolated gets a send now and then; when some of these do well it is taken back. Times are arguments.
package isolation

import (
	"slices"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// Options configures New. The zero value of a field means its default.
type Options struct {
	// Slow is the least latency that isolates a group. Default 500 ms; negative: none is isolated.
	Slow time.Duration
	// Factor is how many times the latency of the best group it must be, too. Default 5.
	Factor float64
	// First is how long a group is left alone before it gets the next send; it doubles up to Most with each that does
	// badly. Default 1 s, 30 s.
	First, Most time.Duration
	// Changed is told when a group is isolated, and when it is taken back. It must not block.
	Changed func(shard brokerapi.ShardID, isolated bool, latency time.Duration)
}

const (
	weight      = 0.1 // of the newest send in the averages
	samplesMin  = 20  // sends before anything is said of a group
	failingMin  = 0.5 // of sends, averaged
	soundMax    = 0.1 // of sends to another group, averaged, that fail
	probesToEnd = 3   // sends that must do well
)

// Table is what is known of broker groups. It is safe for concurrent use. A nil one isolates none.
type Table struct {
	o Options

	mu     sync.Mutex
	shards map[brokerapi.ShardID]*shard
	times  int64
}

type shard struct {
	sends    int
	latency  float64 // ns, averaged
	failures float64 // share of sends, averaged

	isolated bool
	pause    time.Duration
	until    time.Time // no send before
	good     int       // sends since that did well
}

// New returns an empty Table.
func New(o Options) *Table {
	if o.Slow == 0 {
		o.Slow = 500 * time.Millisecond
	}
	if o.Factor == 0 {
		o.Factor = 5
	}
	if o.First == 0 {
		o.First = time.Second
	}
	if o.Most == 0 {
		o.Most = 30 * time.Second
	}
	if o.Changed == nil {
		o.Changed = func(brokerapi.ShardID, bool, time.Duration) {}
	}
	if o.Slow < 0 {
		return nil
	}
	return &Table{o: o, shards: map[brokerapi.ShardID]*shard{}}
}

// Avoid tells whether a send that may choose is to go elsewhere. Of an isolated group it is false once after each pause.
func (t *Table) Avoid(id brokerapi.ShardID, now time.Time) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.shards[id]
	if s == nil || !s.isolated {
		return false
	}
	if now.Before(s.until) {
		return true
	}
	s.until = now.Add(s.pause)
	return false
}

// Sent takes how long a send to a group took that was answered now, and whether it failed because of the group.
func (t *Table) Sent(id brokerapi.ShardID, now time.Time, took time.Duration, failed bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	s := t.shards[id]
	if s == nil {
		s = &shard{latency: float64(took)}
		t.shards[id] = s
	}
	was := s.isolated
	t.take(s, now, float64(took), failed)
	is, latency := s.isolated, time.Duration(s.latency)
	if is && !was {
		t.times++
	}
	t.mu.Unlock()
	if is != was {
		t.o.Changed(id, is, latency)
	}
}

// take is Sent for a group that is known.
func (t *Table) take(s *shard, now time.Time, took float64, failed bool) {
	share := 0.0
	if failed {
		share = 1
	}
	if s.isolated {
		limit, known := t.limit(s)
		if failed || known && took > limit {
			s.pause, s.good = min(2*s.pause, t.o.Most), 0
			s.until = now.Add(s.pause)
			return
		}
		if s.good++; s.good >= probesToEnd {
			*s = shard{latency: took}
		} else {
			s.until = now // the next one may come at once
		}
		return
	}
	s.sends++
	if !failed { // a failure may come at once or late
		s.latency += weight * (took - s.latency)
	}
	s.failures += weight * (share - s.failures)
	if s.sends >= samplesMin && t.bad(s) {
		s.isolated, s.pause, s.good = true, t.o.First, 0
		s.until = now.Add(s.pause)
	}
}

// bad tells whether a group is much worse than another one that takes sends.
func (t *Table) bad(s *shard) bool {
	limit, known := t.limit(s)
	return known && (s.latency > limit || s.failures > failingMin)
}

// limit is the latency above which a group is slow; false if there is no other to go to.
func (t *Table) limit(s *shard) (limit float64, known bool) {
	best := 0.0
	for _, o := range t.shards {
		if o != s && !o.isolated && o.sends >= samplesMin && o.failures < soundMax && (!known || o.latency < best) {
			best, known = o.latency, true
		}
	}
	return max(float64(t.o.Slow), t.o.Factor*best), known
}

// Forget drops what is known of groups that are no more.
func (t *Table) Forget(but []brokerapi.ShardID) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.shards {
		if !slices.Contains(but, id) {
			delete(t.shards, id)
		}
	}
}

// Stats are for metrics.
type Stats struct {
	Isolated map[brokerapi.ShardID]bool // of the groups that sends were measured at
	Times    int64                      // how often one was isolated
}

// Stats returns the figures of now, false if none is ever isolated.
func (t *Table) Stats() (Stats, bool) {
	if t == nil {
		return Stats{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Isolated: map[brokerapi.ShardID]bool{}, Times: t.times}
	for id, x := range t.shards {
		s.Isolated[id] = x.isolated
	}
	return s, true
}
