package broker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// counts are what this replica has been through since the start of the process.
type counts struct {
	led     atomic.Int64 // epochs that it served
	deposed atomic.Int64 // of them, those that ended without its doing
	copied  atomic.Int64 // times that it took over a whole log
	flushes flushes
}

// report is what a heartbeat says of this replica.
func (b *Broker) report() *controllerv1.ReplicaReport {
	p := b.now.Load()
	if p.log == nil {
		return nil
	}
	durable := p.log.Durable()
	r := &controllerv1.ReplicaReport{DurableEnd: int64(durable), WrittenEnd: int64(max(durable, p.log.Written())), Confirm: int64(durable), HttpAddress: b.o.HTTPAddr, Release: b.o.Release}
	switch {
	case p.leader != nil:
		r.Confirm = int64(p.leader.Confirmed())
	case p.follower != nil:
		r.Confirm = int64(p.follower.Confirmed())
	}
	if us, ok := b.counts.flushes.p99(); ok {
		r.FlushP99Us = &us
	}
	if u, err := b.o.FS.Usage(b.o.DataDir); err == nil && u.Total > 0 {
		used := int32(1000 * u.UsedShare())
		r.DiskUsedPermille = &used
	}
	return r
}

// flushes are the times of the last flushes of the log.
type flushes struct {
	mu   sync.Mutex
	last [128]time.Duration
	n    int
}

func (f *flushes) took(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[f.n%len(f.last)] = d
	f.n++
}

// p99 is their 99th percentile in microseconds; false if there was none.
func (f *flushes) p99() (us int64, ok bool) {
	f.mu.Lock()
	all := f.last
	n := min(f.n, len(all))
	f.mu.Unlock()
	if n == 0 {
		return 0, false
	}
	slices.Sort(all[:n])
	return all[(n*99-1)/100].Microseconds(), true
}
