package failover

import (
	"sync"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// waiter is one call that waits.
type waiter struct {
	m     *Masters
	shard brokerapi.ShardID
	try   *Try
	why   reason
	err   error // why it waits
	then  func(error)

	mu    sync.Mutex
	timer *time.Timer // nil: not started
	woken bool
}

func (m *Masters) add(w *waiter) {
	m.waiting.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.shards[w.shard]
	if all == nil {
		all = map[*waiter]struct{}{}
		m.shards[w.shard] = all
	}
	all[w] = struct{}{}
}

// take takes a waiter away, false if it was woken.
func (m *Masters) take(w *waiter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.shards[w.shard]
	if _, is := all[w]; !is {
		return false
	}
	delete(all, w)
	if len(all) == 0 {
		delete(m.shards, w.shard)
	}
	return true
}

// after sets the timer, unless the waiter was woken meanwhile.
func (w *waiter) after(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.woken {
		w.timer = time.AfterFunc(d, w.due)
	}
}

// due ends the wait because of the time.
func (w *waiter) due() {
	if !w.m.take(w) {
		return
	}
	w.m.waiting.Add(-1)
	if !time.Now().Before(w.try.until) {
		w.m.gaveUp.Add(1)
		w.then(w.try.Result(w.err))
		return
	}
	w.retry()
}

// wake ends the wait of a waiter that was taken away.
func (w *waiter) wake() {
	w.mu.Lock()
	w.woken = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	w.retry()
}

func (w *waiter) retry() {
	w.m.again[w.why].Add(1)
	w.then(nil)
}
