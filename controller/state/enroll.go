package state

import (
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Commit says what a replica of a shard must have done with a record before it acks it; the numbers are
// those of perigee.controller.v1.CommitMode minus one.
type Commit uint8

// Modes of a shard.
const (
	Durable Commit = 0 // flushed it to its disk
	Memory  Commit = 1 // written it: it may be lost with the power
)

// String returns the name that operators use.
func (c Commit) String() string {
	if c == Memory {
		return "memory"
	}
	return "durable"
}

// Enroll is RegisterReplica with the rules of shards of several replicas: a restart after which records
// may be missing takes the replica out of the SyncStateSet and the ELR in the same entry (I14), unless it
// is alone, for nobody else has its data then. It is let in again when it has caught up.
type Enroll struct {
	RegisterReplica
	// Damaged says that records are missing or damaged that were in its log.
	Damaged bool `json:"damaged,omitempty"`
	// Learner says that the replica follows, but is never elected and never counts for what is acknowledged.
	Learner bool `json:"learner,omitempty"`
	// MinISR and Commit count if this replica founds the shard. MinISR 0 means that nobody has chosen it: 1, and
	// what AlterS.Least says.
	MinISR int    `json:"min_isr,omitempty"`
	Commit Commit `json:"commit,omitempty"`
}

func (Enroll) op() string { return "enroll" }

// Validate refuses what no state could accept.
func (c Enroll) Validate() error {
	if c.MinISR < 0 || c.MinISR > ReplicasMax {
		return mqerr.New(mqerr.Invalid, "broker group %q: %d copies asked for, 1 to %d are possible", c.Shard, c.MinISR, ReplicasMax)
	}
	if c.Commit > Memory {
		return mqerr.New(mqerr.Invalid, "broker group %q: unknown commit mode %d", c.Shard, c.Commit)
	}
	return c.RegisterReplica.Validate()
}

func (c Enroll) apply(s *State, index Version) (Result, []Event) {
	if err := c.Validate(); err != nil {
		return Result{Err: err}, nil
	}
	h, err := c.admit(s)
	if err != nil {
		return Result{Err: err}, nil
	}
	if c.Learner && (h == nil || len(h.Replicas) == 1 && h.Replica(c.Replica) != nil) {
		return refuse(mqerr.Invalid, "replica %d is the only one of broker group %q: it can't be a learner", c.Replica, c.Shard)
	}
	now := c.replica(index)
	now.Learner = c.Learner
	if h == nil {
		r, events := s.found(c.Shard, now)
		if r.Err == nil {
			r.Shard.MinISR, r.Shard.Commit, r.Shard.Stated = max(c.MinISR, 1), c.Commit, c.MinISR > 0
		}
		return r, events
	}
	next := h.clone()
	r := next.Replica(c.Replica)
	if r == nil {
		if err := next.join(now); err != nil {
			return Result{Err: err}, nil
		}
		return s.put(next)
	}
	lacks := c.Damaged || next.Commit == Memory && (!c.Clean || c.Last != r.Incarnation)
	lacks = lacks && len(next.Replicas) > 1
	now.Unclean = lacks || r.Unclean && !slices.Contains(next.Set, r.ID)
	*r = now
	next.restarted(c.Replica, s.generation)
	if lacks || c.Learner {
		next.drop(c.Replica)
	}
	return s.put(next)
}

// found makes a shard of one replica. One that was deleted goes on with its epochs (I2).
func (s *State) found(name string, r Replica) (Result, []Event) {
	if len(s.shards) >= ShardsMax {
		return refuse(mqerr.Exhausted, "broker group %q can't be added: there are %d, the most that are allowed", name, ShardsMax)
	}
	was := s.ended[name]
	h := &Shard{
		ID: s.nextShard, Name: name, MinISR: 1, Epoch: was.Epoch,
		Set: []ReplicaID{r.ID}, SetVersion: was.SetVersion + 1, Replicas: []Replica{r},
	}
	delete(s.ended, name)
	s.nextShard++
	s.shardNames[h.Name] = h.ID
	res, events := s.put(h)
	res.Created = true
	return res, events
}

// join adds a replica that nobody waits for yet.
func (h *Shard) join(r Replica) error {
	if len(h.Replicas) >= ReplicasMax {
		return mqerr.New(mqerr.Exhausted, "broker group %q has %d replicas, the most that are allowed", h.Name, ReplicasMax)
	}
	at, _ := h.find(r.ID)
	h.Replicas = slices.Insert(h.Replicas, at, r)
	return nil
}

// restarted ends the mastership of a replica that has begun another incarnation (I1).
func (h *Shard) restarted(id ReplicaID, generation uint16) {
	if h.Master == id {
		h.Master, h.MasterInc, h.Applied = 0, 0, 0
		h.Epoch = h.Epoch.after(generation)
		h.SetVersion++
	}
}
