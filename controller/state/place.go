package state

import (
	"hash/fnv"
	"slices"
)

// Placement is the part of a topic that one shard serves: queues 0 to Queues-1.
type Placement struct {
	Shard  ShardID `json:"shard"`
	Queues int     `json:"queues"` // at least 1; it never falls
}

// place spreads total queues over the shards, keeping what have says: each further queue goes to the
// shard that has the fewest, and among equals to the first one counted from a place that the topic's
// name chooses. So every shard has one queue before any has two, and topics with few queues do not
// all meet on the first shard. Shards with no queue are not in the result.
func place(name string, have []Placement, total int, shards []*Shard) []Placement {
	counts := make([]int, len(shards))
	placed := 0
	for i, h := range shards {
		at := slices.IndexFunc(have, func(p Placement) bool { return p.Shard == h.ID })
		if at >= 0 {
			counts[i] = have[at].Queues
			placed += have[at].Queues
		}
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name)) // never fails
	start := int(hash.Sum64() % uint64(len(shards)))
	for ; placed < total; placed++ {
		best := start
		for i := range shards {
			if at := (start + i) % len(shards); counts[at] < counts[best] {
				best = at
			}
		}
		counts[best]++
	}
	var out []Placement
	for i, n := range counts {
		if n > 0 {
			out = append(out, Placement{Shard: shards[i].ID, Queues: n})
		}
	}
	return out
}

// place returns where t has its queues. A PRIORITY topic has all its levels on every shard that it is on,
// so that a receive at any of them finds the highest; another one spreads its queues.
func (t *Topic) place(have []Placement, queues int, shards []*Shard) []Placement {
	if t.Type != Priority {
		return place(t.Name, have, queues, shards)
	}
	out := make([]Placement, len(shards))
	for i, h := range shards {
		out[i] = Placement{Shard: h.ID, Queues: queues}
	}
	return out
}
