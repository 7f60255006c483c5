package state

import (
	"cmp"
	"fmt"
	"slices"
)

// UUID is the identity of a data directory. Its text form is hexadecimal.
type UUID [16]byte

// MarshalText returns the hexadecimal form.
func (u UUID) MarshalText() ([]byte, error) { return hex16(u), nil }

// UnmarshalText reads the hexadecimal form.
func (u *UUID) UnmarshalText(b []byte) error { return unhex16((*[16]byte)(u), b) }

// String returns the hexadecimal form.
func (u UUID) String() string { return string(hex16(u)) }

// Replica is one broker process of a shard.
type Replica struct {
	ID          ReplicaID   `json:"id"`
	UUID        UUID        `json:"uuid"`
	Address     string      `json:"address"`     // host:port that proxies use
	Incarnation Incarnation `json:"incarnation"` // its last registration
	// Unclean says that records may be missing in it since a restart, and that it was not admitted to
	// the SyncStateSet since: it is in neither the set nor ELR. (A replica that RegisterReplica has
	// brought in may be unclean and a member: that command looked for the marker of a clean stop only.)
	Unclean bool `json:"unclean,omitempty"`
	// Learner says that it follows, but is never a member of the SyncStateSet.
	Learner bool `json:"learner,omitempty"`
}

// Shard is a broker group: one log with one master at a time.
//
// Invariants: the epoch and the set's version only grow; an epoch belongs to one incarnation of one
// replica; Set and ELR are sorted, without repetition, disjoint, and name replicas; the master is in Set.
type Shard struct {
	ID        ShardID     `json:"id"`
	Name      string      `json:"name"` // also the public broker name
	Epoch     Epoch       `json:"epoch"`
	Master    ReplicaID   `json:"master,omitempty"` // 0: none
	MasterInc Incarnation `json:"master_inc,omitempty"`
	// Set is the SyncStateSet: the replicas that have every acknowledged byte. SetVersion is the
	// number of its changes. ELR are replicas that left while the set was below MinISR: nothing was
	// acknowledged without them since.
	Set        []ReplicaID `json:"set"`
	SetVersion uint64      `json:"set_version"`
	ELR        []ReplicaID `json:"elr,omitempty"`
	MinISR     int         `json:"min_isr"`             // copies before anything is acknowledged, at least 1
	Stated     bool        `json:"stated,omitempty"`    // somebody has chosen MinISR
	Replicas   []Replica   `json:"replicas"`            // by id
	Applied    Version     `json:"applied,omitempty"`   // definitions that the master is known to have logged
	DataLoss   uint64      `json:"data_loss,omitempty"` // unclean elections so far
	Commit     Commit      `json:"commit,omitempty"`    // what an ack of a replica stands for
	Loss       *Loss       `json:"loss,omitempty"`      // the last unclean election
	Gone       []UUID      `json:"gone,omitempty"`      // directories of removed replicas, the latest last
}

// Replicated reports whether what is stored has to be on more than one replica, or may be: a flush policy
// of a topic means nothing then, as Commit goes for all of them.
func (h *Shard) Replicated() bool { return len(h.Replicas) > 1 || h.MinISR > 1 }

// Replica returns a replica, nil if there is none of that id. It must not be changed.
func (h *Shard) Replica(id ReplicaID) *Replica {
	i, ok := h.find(id)
	if !ok {
		return nil
	}
	return &h.Replicas[i]
}

func (h *Shard) find(id ReplicaID) (int, bool) {
	return slices.BinarySearchFunc(h.Replicas, id, func(r Replica, id ReplicaID) int { return cmp.Compare(r.ID, id) })
}

// Candidate returns the replica to elect if there is no master: an eligible member of the
// SyncStateSet, else of ELR, the lowest id first; 0 if there is none (I6).
func (h *Shard) Candidate(eligible func(ReplicaID) bool) ReplicaID {
	for _, from := range [][]ReplicaID{h.Set, h.ELR} {
		if i := slices.IndexFunc(from, eligible); i >= 0 {
			return from[i]
		}
	}
	return 0
}

func (h *Shard) clone() *Shard {
	c := *h
	c.Set, c.ELR, c.Replicas, c.Gone = slices.Clone(h.Set), slices.Clone(h.ELR), slices.Clone(h.Replicas), slices.Clone(h.Gone)
	return &c
}

// setTo changes the SyncStateSet and the ELR with it: as long as the set has MinISR members, what is
// acknowledged is complete in it; below that nothing is acknowledged, so those who leave stay complete.
func (h *Shard) setTo(set []ReplicaID) {
	slices.Sort(set)
	set = slices.Compact(set)
	if len(set) >= h.MinISR {
		h.ELR = nil
	} else {
		elr := slices.Concat(h.ELR, h.Set)
		elr = slices.DeleteFunc(elr, func(id ReplicaID) bool {
			r := h.Replica(id)
			return slices.Contains(set, id) || r == nil || r.Unclean || r.Learner
		})
		slices.Sort(elr)
		h.ELR = slices.Compact(elr)
	}
	h.Set = set
	h.SetVersion++
}

// drop takes a replica that may miss something out of the set and out of ELR.
func (h *Shard) drop(id ReplicaID) {
	is := func(other ReplicaID) bool { return other == id }
	if slices.Contains(h.Set, id) {
		h.setTo(slices.DeleteFunc(slices.Clone(h.Set), is))
	}
	h.ELR = slices.DeleteFunc(h.ELR, is)
}

func (h *Shard) check() error {
	if h.MinISR < 1 || h.MinISR > ReplicasMax || h.Commit > Memory {
		return fmt.Errorf("shard %q: %d copies, commit mode %d", h.Name, h.MinISR, h.Commit)
	}
	for i, r := range h.Replicas {
		if r.ID == 0 || i > 0 && h.Replicas[i-1].ID >= r.ID {
			return fmt.Errorf("shard %q: replicas are not in order", h.Name)
		}
	}
	for _, list := range [][]ReplicaID{h.Set, h.ELR} {
		for i, id := range list {
			if r := h.Replica(id); r == nil || r.Learner || i > 0 && list[i-1] >= id {
				return fmt.Errorf("shard %q: replica %d is unknown, a learner or out of order", h.Name, id)
			}
		}
	}
	for _, id := range h.ELR {
		if slices.Contains(h.Set, id) {
			return fmt.Errorf("shard %q: replica %d is in the set and in ELR", h.Name, id)
		}
	}
	if h.Master == 0 {
		if h.MasterInc != 0 {
			return fmt.Errorf("shard %q has an incarnation without a master", h.Name)
		}
		return nil
	}
	m := h.Replica(h.Master)
	if m == nil || m.Incarnation != h.MasterInc || h.Epoch == 0 || !slices.Contains(h.Set, h.Master) {
		return fmt.Errorf("shard %q: replica %d can't be the master of epoch %d", h.Name, h.Master, h.Epoch)
	}
	return nil
}

// put stores a changed shard and returns what the caller of Apply gets.
func (s *State) put(h *Shard) (Result, []Event) {
	s.shards[h.ID] = h
	return Result{Shard: h, Changed: true}, []Event{ShardChanged{Shard: h}}
}
