package memfs

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
)

// Crash returns the file system as found after power loss now; this one stays as it is. keep is the
// chance, 0..1, of everything that was not synced: each sector, each length, each change of a name.
// Equal generators give equal results.
func (m *FS) Crash(rng *rand.Rand, keep float64) *FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := New()
	maps.Copy(found.dirs, m.dirs)
	found.usage, found.budget = m.usage, m.budget
	names := maps.Clone(m.durable)
	for _, c := range m.pending {
		if rng.Float64() < keep {
			c.apply(names)
		}
	}
	copies := map[*node]*node{} // a file may be found under two names
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := names[name]
		if copies[n] == nil {
			copies[n] = n.crash(rng, keep)
		}
		found.live[name] = copies[n]
	}
	found.durable = maps.Clone(found.live)
	return found
}

// blockSectors is how many sectors a disk with large ones writes at once.
const blockSectors = 8

func (n *node) crash(rng *rand.Rand, keep float64) *node {
	size := len(n.stable)
	if len(n.live) != size && rng.Float64() < keep {
		size = len(n.live)
	}
	g := newNode()
	g.live = make([]byte, size)
	copy(g.live, n.stable)
	large := rng.IntN(2) == 0 // a disk with sectors of 4 KiB
	last, kept, back := -1, false, 0
	for _, s := range slices.Sorted(maps.Keys(n.dirty)) {
		if !large || s/blockSectors != last {
			last, kept, back = s/blockSectors, rng.Float64() < keep, rng.IntN(2*pastMax)
		}
		lo := s * sector
		if !kept || lo >= min(size, len(n.live)) {
			continue
		}
		now := n.live[lo:]
		if past := n.dirty[s]; !large && back < len(past) {
			now = past[back] // written before its last change
		}
		copy(g.live[lo:min(lo+sector, size)], now)
	}
	g.stable = bytes.Clone(g.live)
	return g
}

// Clone returns a file system with the same files, all of it durable; nobody has locks there.
func (m *FS) Clone() *FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := New()
	maps.Copy(found.dirs, m.dirs)
	found.usage, found.budget = m.usage, m.budget
	for name, n := range m.live {
		g := newNode()
		g.live, g.stable = bytes.Clone(n.live), bytes.Clone(n.live)
		found.live[name] = g
	}
	found.durable = maps.Clone(found.live)
	return found
}

// Fork returns the file system as the next process finds it when the one that uses it is killed now: all as it is
// read, what was not synced still at risk, no locks, and the power on. This one stays as it is.
func (m *FS) Fork() *FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := New()
	maps.Copy(found.dirs, m.dirs)
	found.usage, found.budget = m.usage, m.budget
	copies := map[*node]*node{nil: nil}
	of := func(n *node) *node {
		if c, is := copies[n]; is {
			return c
		}
		g := newNode()
		g.live, g.stable = bytes.Clone(n.live), bytes.Clone(n.stable)
		for s, past := range n.dirty {
			g.dirty[s] = slices.Clone(past)
		}
		copies[n] = g
		return g
	}
	for name, n := range m.live {
		found.live[name] = of(n)
	}
	for name, n := range m.durable {
		found.durable[name] = of(n)
	}
	for _, c := range m.pending {
		found.pending = append(found.pending, change{c.from, c.to, of(c.node)})
	}
	return found
}
