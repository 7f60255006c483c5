// Package simnet is a network in memory that can be bad: hosts, and streams between them that are slow, stand still in
// one direction or both, or break.
//
// It is made for the bubbles of testing/synctest: whoever waits does so on a channel, so that simulated time goes on.
// A stream is like one of TCP: its bytes come in order and once, whatever happens, or it breaks. So what is reordered is
// what travels on different streams, each of which has delays of its own, and what is repeated are the calls of clients
// that got no answer. Where a way is cut bytes wait, and come a moment after it is healed, as they do when they are sent
// again; a new stream waits in the same way.
//
// One lock guards the whole network: it is held for copies of bytes and never while somebody waits.
package simnet

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

const (
	// delayMin and delayMax bound the time that a byte is under way when nothing is wrong.
	delayMin = 50 * time.Microsecond
	delayMax = 400 * time.Microsecond
	// againMax bounds how long after a way was healed what waited for it comes.
	againMax = 300 * time.Millisecond
	// bufferBytes is how much may be under way in one direction of a stream.
	bufferBytes = 1 << 20
	// dialTimeout bounds the making of a stream if the caller's context does not.
	dialTimeout = time.Minute
)

// Network connects hosts.
type Network struct {
	mu    sync.Mutex // guards everything of the network
	rng   *rand.Rand
	hosts map[netip.Addr]*Host
	ways  map[way]*wayState
	moved chan struct{} // closed and replaced when a way, a host or a listener has changed
}

// way is one direction between two hosts.
type way struct{ from, to *Host }

type wayState struct {
	cut       bool
	healed    time.Time // nothing comes before it
	slow      time.Duration
	slowRange time.Duration
}

// New returns a network without hosts. Its delays follow the seed and the order in which bytes are sent.
func New(seed uint64) *Network {
	return &Network{rng: rand.New(rand.NewPCG(seed, 1)), hosts: map[netip.Addr]*Host{}, ways: map[way]*wayState{}, moved: make(chan struct{})}
}

// Host adds a host with an address of its own.
func (n *Network) Host(ip string) *Host {
	h := &Host{n: n, ip: netip.MustParseAddr(ip)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[h.ip] = h
	return h
}

func (n *Network) wayLocked(from, to *Host) *wayState {
	w := n.ways[way{from, to}]
	if w == nil {
		w = &wayState{}
		n.ways[way{from, to}] = w
	}
	return w
}

// wakeLocked lets everybody who waits look again.
func (n *Network) wakeLocked() {
	close(n.moved)
	n.moved = make(chan struct{})
	for _, h := range n.hosts {
		if h.stack != nil {
			for e := range h.stack.ends {
				e.wakeLocked()
			}
		}
	}
}

// Cut lets nothing through from one host to another.
func (n *Network) Cut(from, to *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wayLocked(from, to).cut = true
	n.wakeLocked()
}

// Heal lets everything through again, what was sent meanwhile included.
func (n *Network) Heal(from, to *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.wayLocked(from, to)
	if w.cut {
		w.cut, w.healed = false, time.Now().Add(n.upToLocked(againMax))
	}
	n.wakeLocked()
}

// Slow adds least to most to the time that bytes are under way from one host to another; 0 and 0 is as before.
func (n *Network) Slow(from, to *Host, least, most time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.wayLocked(from, to)
	w.slow, w.slowRange = least, most-least
}

// Break ends all streams between two hosts; both sides are told at once, and what was under way is lost.
func (n *Network) Break(a, b *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range []*Host{a, b} {
		if h.stack == nil {
			continue
		}
		for e := range h.stack.ends {
			if e.peer.host == a || e.peer.host == b {
				e.breakLocked()
			}
		}
	}
}

// delayLocked is how long something that is sent now is under way.
func (n *Network) delayLocked(from, to *Host) time.Duration {
	w := n.wayLocked(from, to)
	return delayMin + n.upToLocked(delayMax-delayMin) + w.slow + n.upToLocked(w.slowRange)
}

func (n *Network) upToLocked(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(n.rng.Int64N(int64(d)))
}

// openLocked tells whether something may come through now. If not, at is when to look again, zero if only a change
// helps.
func (n *Network) openLocked(from, to *Host, now time.Time) (open bool, at time.Time) {
	w := n.wayLocked(from, to)
	switch {
	case w.cut, from.frozen, to.frozen:
		return false, time.Time{}
	case now.Before(w.healed):
		return false, w.healed
	}
	return true, now
}
