// Package liveness knows which broker processes were heard from lately.
//
// It is soft state of the leading controller and decides nothing: silence marks a master as not
// heard from, and removes nothing from any route. Time is an argument. A Table is not safe for
// concurrent use.
package liveness

import (
	"slices"
	"time"

	"github.com/perigee-mq/perigee/controller/state"
)

// Replica names one replica of one shard.
type Replica struct {
	Shard state.ShardID
	ID    state.ReplicaID
}

// Table has the time of the last sign of life of each replica.
type Table struct {
	silence time.Duration
	heard   map[Replica]time.Time
	looked  time.Time // of the last Expire
}

// New returns an empty table. A replica is silent when nothing was heard for longer than silence.
func New(silence time.Duration) *Table {
	return &Table{silence: silence, heard: map[Replica]time.Time{}}
}

// Heard notes a sign of life, and reports whether the replica was not alive before.
func (t *Table) Heard(r Replica, now time.Time) bool {
	_, was := t.heard[r]
	t.heard[r] = now
	return !was
}

// Left forgets a replica that said goodbye, and reports whether it was alive.
func (t *Table) Left(r Replica) bool {
	_, was := t.heard[r]
	delete(t.heard, r)
	return was
}

// Alive reports whether the replica was heard from and has not been found silent since.
func (t *Table) Alive(r Replica) bool {
	_, ok := t.heard[r]
	return ok
}

// Len is the number of replicas that are alive.
func (t *Table) Len() int { return len(t.heard) }

// Expire returns the replicas that have become silent, in order. It must be called several times
// within the silence: a longer gap means that this process stood still, and is not held against
// those whose signs of life wait to be read.
func (t *Table) Expire(now time.Time) []Replica {
	gap := now.Sub(t.looked)
	if !t.looked.IsZero() && gap > t.silence/2 {
		for r, at := range t.heard {
			t.heard[r] = at.Add(gap)
		}
	}
	t.looked = now
	var silent []Replica
	for r, at := range t.heard {
		if now.Sub(at) > t.silence {
			silent = append(silent, r)
			delete(t.heard, r)
		}
	}
	slices.SortFunc(silent, func(a, b Replica) int {
		if a.Shard != b.Shard {
			return int(a.Shard) - int(b.Shard)
		}
		return int(a.ID) - int(b.ID)
	})
	return silent
}
