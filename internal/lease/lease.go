// Package lease is the promise between the controller and the master of a broker group that nobody else
// is the master for a while: both halves, and the arithmetic that they must agree on.
//
// The master notes its clock t0, then asks. The controller, after it has made sure that it leads, notes its
// own clock t1 and grants. The master acts until t0 + L*(1-drift) - guard; the controller replaces it at
// t1 + L*(1+drift) at the earliest. As t0 lies before t1 in real time, the master stops first, however long the
// answer took, as long as no clock runs wrong by more than the drift. Clocks are only compared with themselves.
//
// Acknowledged data never rests on a lease: only answers do that are no records.
//
// Everything is pure: times of the boot-time clock are arguments. Nothing here is safe for concurrent use.
package lease

import "time"

// Terms are what both halves agree on. The zero value means the defaults.
type Terms struct {
	// Length is how long a grant lasts. Default 3 s.
	Length time.Duration
	// Guard is how much earlier the master stops. Default 200 ms.
	Guard time.Duration
}

// driftPercent bounds how much faster or slower than real time a boot-time clock runs.
const driftPercent = 1

// Defaults.
const (
	LengthDefault = 3 * time.Second
	GuardDefault  = 200 * time.Millisecond
)

func (t Terms) withDefaults() Terms {
	if t.Length == 0 {
		t.Length = LengthDefault
	}
	if t.Guard == 0 {
		t.Guard = GuardDefault
	}
	return t
}

// held is how long the master may act, counted from before it asked.
func (t Terms) held() time.Duration { return t.Length - t.Length*driftPercent/100 - t.Guard }

// Kept is how long the controller replaces nobody, counted from the grant.
func (t Terms) Kept() time.Duration {
	t = t.withDefaults()
	return t.Length + t.Length*driftPercent/100
}

// Book is the controller's half: who holds what, as far as one leadership knows.
type Book[G comparable] struct {
	terms Terms
	began time.Duration // of the leadership: leases that others granted are over by began + Kept
	until map[G]time.Duration
}

// NewBook begins a leadership.
func NewBook[G comparable](t Terms, now time.Duration) *Book[G] {
	return &Book[G]{terms: t.withDefaults(), began: now, until: map[G]time.Duration{}}
}

// Grant notes that a lease of the group is granted, and returns how long it is. The caller has made sure
// since it was asked for that this node leads.
func (b *Book[G]) Grant(group G, now time.Duration) time.Duration {
	b.until[group] = max(b.until[group], now+b.terms.Kept())
	return b.terms.Length
}

// Free is when nobody holds a lease of the group any more, unless another one is granted.
func (b *Book[G]) Free(group G) time.Duration {
	return max(b.until[group], b.began+b.terms.Kept())
}

// Granted returns how long ago the last lease was granted; false if none was by this leadership.
func (b *Book[G]) Granted(group G, now time.Duration) (time.Duration, bool) {
	until, ok := b.until[group]
	return now - (until - b.terms.Kept()), ok
}

// Held is the number of groups whose lease may be held.
func (b *Book[G]) Held(now time.Duration) (n int) {
	for _, until := range b.until {
		if until > now {
			n++
		}
	}
	return n
}

// Forget drops a group, and whatever was granted to it.
func (b *Book[G]) Forget(group G) { delete(b.until, group) }

// asksMax bounds the questions of a Holder that are not answered.
const asksMax = 64

// Holder is the master's half, for one epoch. The zero value holds nothing.
type Holder struct {
	next  uint64
	asks  []ask // not answered, oldest first
	until time.Duration
	held  bool
}

type ask struct {
	number uint64
	at     time.Duration
}

// Ask notes that a lease is asked for now, and returns the number of the question, from 1.
func (h *Holder) Ask(now time.Duration) uint64 {
	h.next++
	if len(h.asks) == asksMax {
		h.asks = append(h.asks[:0], h.asks[1:]...)
	}
	h.asks = append(h.asks, ask{h.next, now})
	return h.next
}

// Granted takes the answer to a question: a lease of this length. An answer to a question that is not open
// changes nothing.
func (h *Holder) Granted(number uint64, length time.Duration) {
	for i, a := range h.asks {
		if a.number != number {
			continue
		}
		t := Terms{Length: length}.withDefaults()
		h.until, h.held = max(h.until, a.at+t.held()), true
		h.asks = append(h.asks[:0], h.asks[i+1:]...) // older answers say less
		return
	}
}

// Until is when the lease ends; false if there was none.
func (h *Holder) Until() (time.Duration, bool) { return h.until, h.held }

// Valid reports whether the lease is held now. Ask before and after what rests on it.
func (h *Holder) Valid(now time.Duration) bool { return h.held && now < h.until }

// Drop gives the lease up, and forgets open questions: the epoch is over.
func (h *Holder) Drop() { *h = Holder{next: h.next} }
