package membroker

import (
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// ready takes the events that are due and returns how to send them. The lock is held.
func (b *Broker) ready() func() {
	events := map[*session][]brokerapi.Ready{}
	now := time.Now()
	for id, t := range b.topics {
		for group, u := range t.subs {
			if len(u.armed) == 0 {
				continue
			}
			n := b.readyCount(t, u, now)
			if n == 0 {
				continue
			}
			for s := range u.armed {
				events[s] = append(events[s], brokerapi.Ready{Topic: id, Group: group, Count: n})
			}
			clear(u.armed)
		}
	}
	b.schedule()
	return func() {
		for s, ready := range events {
			if s.ev.Ready != nil {
				s.ev.Ready(ready)
			}
		}
	}
}

// schedule sets the timer for the first lease that ends for a group somebody waits for.
func (b *Broker) schedule() {
	var at time.Time
	for _, t := range b.topics {
		for _, u := range t.subs {
			if len(u.armed) == 0 {
				continue
			}
			for q := range u.items {
				for i := range u.items[q] {
					if it := &u.items[q][i]; !it.done && (at.IsZero() || b.until(it).Before(at)) {
						at = b.until(it)
					}
				}
			}
		}
	}
	b.setTimer(at)
}

func (b *Broker) setTimer(at time.Time) {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if at.IsZero() || b.stopped != nil {
		return
	}
	b.timer = time.AfterFunc(time.Until(at)+time.Millisecond, func() {
		b.mu.Lock()
		fire := b.ready()
		b.mu.Unlock()
		fire()
	})
}
