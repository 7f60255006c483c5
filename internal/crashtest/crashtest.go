// Package crashtest kills real processes under load and checks that every answer they gave is still
// true afterwards: `make crash`. Its checker knows nothing of the broker but the public protocol.
package crashtest

import (
	"fmt"
	"sync"
	"time"
)

// history is what the service has promised, as callers know it.
type history struct {
	mu   sync.Mutex
	sent map[string]*message // by message id
	ops  int64               // answered sends, leases, acks and changes, counted per message
	bad  []string
}

// message is one message and what was answered about it.
type message struct {
	id     string
	body   string
	stored bool  // the send was answered OK
	queue  int32 // where the answer to the send said, if it did (offset >= 0)
	offset int64
	acked  bool      // an ack was answered OK
	maybe  bool      // an ack was sent whose answer is unknown
	until  time.Time // a lease that was answered lasts at least until then
	seen   int       // deliveries to the group
	place  [2]int64  // queue and offset of the first delivery
}

func newHistory() *history { return &history{sent: map[string]*message{}} }

// fault notes that a promise was broken.
func (h *history) fault(format string, args ...any) {
	if len(h.bad) < 20 {
		h.bad = append(h.bad, fmt.Sprintf(format, args...))
	}
}

// sending notes a message before it is sent: its outcome is unknown until answered.
func (h *history) sending(id, body string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent[id] = &message{id: id, body: body, queue: -1, offset: -1}
}

// answered notes a send that was answered OK.
func (h *history) answered(id string, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.sent[id]
	m.stored, m.offset = true, offset
	h.ops++
}

// delivered notes a delivery of a lease that lasts invisible from the start of the call at the
// earliest. It came at now.
func (h *history) delivered(id, body string, queue int32, offset int64, began, now time.Time, invisible time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.sent[id]
	switch {
	case m == nil:
		h.fault("message %s was delivered and never sent", id)
		return
	case m.body != body:
		h.fault("message %s was delivered with another body", id)
	case m.acked:
		h.fault("message %s was delivered after its ack was answered OK", id)
	case now.Before(m.until):
		h.fault("message %s was delivered %s before the end of a lease that was answered", id, m.until.Sub(now))
	case m.stored && m.offset != offset:
		h.fault("message %s is at offset %d, its send was answered with %d", id, offset, m.offset)
	case m.seen > 0 && m.place != [2]int64{int64(queue), offset}:
		h.fault("message %s moved from %v to queue %d offset %d", id, m.place, queue, offset)
	}
	m.seen++
	m.place = [2]int64{int64(queue), offset}
	m.until = began.Add(invisible)
	h.ops++
}

// changed notes an answered change of the invisible duration.
func (h *history) changed(id string, began time.Time, invisible time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent[id].until = began.Add(invisible)
	h.ops++
}

// changing notes a change that is under way: its outcome is unknown until answered, and it may
// shorten the lease.
func (h *history) changing(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent[id].until = time.Time{}
}

// acking notes acks that are under way.
func (h *history) acking(ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		h.sent[id].maybe = true
	}
}

// done notes an ack that was answered OK.
func (h *history) done(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent[id].acked = true
	h.ops++
}

// open counts stored messages that were surely not acknowledged and not delivered since they were
// last looked at.
func (h *history) open() (unacked int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.sent {
		if m.stored && !m.acked && !m.maybe {
			unacked++
		}
	}
	return unacked
}

func (h *history) operations() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ops
}
