// Package election decides who should be the master of a broker group, and when: from the state that is
// applied and from what the leading controller knows besides, it says which command to propose now, or what is
// waited for. It carries nothing out; the state machine judges every command again.
//
// The order of choice: who the operator named, else the members of the SyncStateSet, else those of ELR; never
// anyone else. Among members of the same list the longest log wins, then the lowest id: each of them has
// everything that was acknowledged, a longer log only saves the others work.
//
// A master that is not heard from is replaced when its lease is over for certain, which gives it the time to
// notice itself (I16). One that has resigned, or has restarted since, holds no lease: the state has no master
// then. With fast fail-over a master whose stream has closed and that answers no probe is replaced at once: safe
// for everything that is a record, but I16 is given up for it.
//
// Everything is pure; time is the controller's boot-time clock.
package election

import (
	"cmp"
	"slices"
	"time"

	"github.com/perigee-mq/perigee/controller/state"
)

// Report is what was last heard of a replica.
type Report struct {
	Inc state.Incarnation // in which it was heard
	// Alive: it was heard from lately, and has not said goodbye.
	Alive bool
	// Gone: its stream has closed since, and a probe had no answer.
	Gone bool
	// End is the end of its log in bytes; Known says whether it has told that.
	End   int64
	Known bool
}

// Group is a broker group as the leading controller sees it.
type Group struct {
	Shard   *state.Shard
	Reports map[state.ReplicaID]Report
	// Free is when no replica holds a lease of the present epoch any more, unless one is granted later.
	Free time.Duration
	// Transfer: the operator wants another master, though this one is well. To is who, 0: anybody else.
	Transfer bool
	To       state.ReplicaID
	// Fast: fast fail-over is on.
	Fast bool
}

// Reason is why a master is elected.
type Reason string

// Reasons.
const (
	Vacant   Reason = "vacant"   // there was none: a new group, or the master has resigned or restarted
	Silent   Reason = "silent"   // the master was not heard from until its lease was over
	Gone     Reason = "gone"     // its stream has closed, and it answers no probe
	Transfer Reason = "transfer" // an operator asked for it
	Unclean  Reason = "unclean"  // an operator chose a replica that may miss acknowledged messages
)

// Reasons are all of them.
var Reasons = []Reason{Vacant, Silent, Gone, Transfer, Unclean}

// Decision is what to do. The zero value: all is well.
type Decision struct {
	Elect  *state.Elect // propose it now; nil: nothing
	Reason Reason       // of Elect
	// Again is when to look again, if nothing else happens; 0: it takes an event.
	Again time.Duration
	// Stuck: a master is needed, and nobody who may be one is heard from.
	Stuck bool
	// Withhold: grant the master no lease any more, it is to be replaced.
	Withhold bool
}

// Decide looks at a group.
func Decide(g Group, now time.Duration) Decision {
	h := g.Shard
	if h.Master == 0 {
		return g.elect(g.winner(0), Vacant)
	}
	master, reason := g.Reports[h.Master], Silent
	switch {
	case master.Alive && master.Inc == h.MasterInc && g.Transfer:
		reason = Transfer
	case master.Alive && master.Inc == h.MasterInc && master.Gone && g.Fast:
		return g.elect(g.winner(h.Master), Gone)
	case master.Alive && master.Inc == h.MasterInc:
		return Decision{}
	case master.Gone && g.Fast:
		return g.elect(g.winner(h.Master), Gone)
	}
	winner := g.winner(h.Master)
	switch {
	case winner == 0 && reason == Transfer:
		return Decision{} // nobody else: the master stays
	case winner == 0:
		return Decision{Stuck: true}
	case now < g.Free:
		return Decision{Again: g.Free, Withhold: reason == Transfer}
	}
	return g.elect(winner, reason)
}

func (g Group) elect(winner state.ReplicaID, why Reason) Decision {
	if winner == 0 {
		return Decision{Stuck: true}
	}
	h := g.Shard
	return Decision{Reason: why, Elect: &state.Elect{Shard: h.ID, Epoch: h.Epoch, Winner: winner, Inc: h.Replica(winner).Incarnation}}
}

// winner is who should follow the master `but`; 0: nobody may.
func (g Group) winner(but state.ReplicaID) state.ReplicaID {
	fit := func(id state.ReplicaID) bool {
		r := g.Shard.Replica(id)
		x := g.Reports[id]
		return id != but && r != nil && x.Alive && !x.Gone && x.Inc == r.Incarnation
	}
	lists := [][]state.ReplicaID{g.Shard.Set, g.Shard.ELR}
	if g.Transfer && g.To != 0 {
		if fit(g.To) && slices.ContainsFunc(lists, func(l []state.ReplicaID) bool { return slices.Contains(l, g.To) }) {
			return g.To
		}
		if m := g.Reports[g.Shard.Master]; g.Shard.Master != 0 && m.Alive && m.Inc == g.Shard.MasterInc {
			return 0 // this one or none, as long as there is a master
		}
	}
	for _, from := range lists {
		best := state.ReplicaID(0)
		for _, id := range from {
			if fit(id) && (best == 0 || g.longer(id, best) > 0) {
				best = id
			}
		}
		if best != 0 {
			return best
		}
	}
	return 0
}

// longer compares the logs of two replicas as far as they are known.
func (g Group) longer(a, b state.ReplicaID) int {
	end := func(id state.ReplicaID) int64 {
		if r := g.Reports[id]; r.Known {
			return r.End
		}
		return -1
	}
	return cmp.Compare(end(a), end(b))
}
