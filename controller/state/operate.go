package state

import (
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Bounds of what is remembered, and of names of decisions.
const (
	TokenMax     = 64 // bytes
	EndedMax     = 4096
	replicasGone = 64 // directories of removed replicas, for each shard
)

// Loss is an unclean election: acknowledged messages may have been lost with it.
type Loss struct {
	Token  string    `json:"token"` // names the operator's decision
	Epoch  Epoch     `json:"epoch"` // that it began
	Winner ReplicaID `json:"winner"`
}

// UncleanElect makes a replica the master that may miss acknowledged messages. Only an operator orders it.
// It is counted for ever. The same token again is the same decision, and not carried out twice.
type UncleanElect struct {
	Shard  ShardID     `json:"shard"`
	Epoch  Epoch       `json:"epoch"`
	Winner ReplicaID   `json:"winner"`
	Inc    Incarnation `json:"inc"`
	Token  string      `json:"token"`
}

func (UncleanElect) op() string { return "unclean_elect" }

func (c UncleanElect) apply(s *State, _ Version) (Result, []Event) {
	if c.Token == "" || len(c.Token) > TokenMax {
		return refuse(mqerr.Invalid, "an election that may lose messages names the decision of an operator in 1 to %d bytes", TokenMax)
	}
	if h := s.shards[c.Shard]; h != nil && h.Loss != nil && h.Loss.Token == c.Token {
		return Result{Shard: h}, nil
	}
	h, err := s.candidate(c.Shard, c.Epoch, c.Winner, c.Inc)
	if err != nil {
		return Result{Err: err}, nil
	}
	if slices.Contains(h.Set, c.Winner) || slices.Contains(h.ELR, c.Winner) {
		return refuse(mqerr.Invalid, "broker group %q: replica %d has everything, it can be elected without a loss", h.Name, c.Winner)
	}
	next := h.clone()
	r := next.Replica(c.Winner)
	if r.Learner {
		return refuse(mqerr.Invalid, "broker group %q: replica %d is a learner: start it without that to elect it", h.Name, c.Winner)
	}
	r.Unclean = false // what it has is what there is from now on
	next.setTo([]ReplicaID{c.Winner})
	next.ELR = nil
	next.crown(c.Winner, c.Inc, s.generation)
	next.DataLoss++
	next.Loss = &Loss{Token: c.Token, Epoch: next.Epoch, Winner: c.Winner}
	return s.put(next)
}

// SetShard changes what an operator decides of a shard. What is not set stays.
type SetShard struct {
	Shard ShardID `json:"shard"`
	// MinISR is how many copies there must be before anything is acknowledged, 1 to the number of replicas that
	// are no learners.
	MinISR *int `json:"min_isr,omitempty"`
	// Commit can be changed only while the shard has one replica, and that is stopped: what was acknowledged in one
	// mode must not be judged by the rules of the other.
	Commit *Commit `json:"commit,omitempty"`
}

func (SetShard) op() string { return "set_shard" }

func (c SetShard) apply(s *State, _ Version) (Result, []Event) {
	h := s.shards[c.Shard]
	if h == nil {
		return refuse(mqerr.NotFound, "shard %d does not exist", c.Shard)
	}
	next := h.clone()
	next.Stated = next.Stated || c.MinISR != nil
	if n := c.MinISR; n != nil && *n != h.MinISR {
		if *n < 1 || *n > h.voters() {
			return refuse(mqerr.Invalid, "broker group %q: %d copies asked for, but it has %d replicas that count: 1 to %[3]d are possible; start more replicas first", h.Name, *n, h.voters())
		}
		next.MinISR, next.ELR = *n, nil
		next.SetVersion++ // so that the master never goes on with another number than the state's
	}
	if m := c.Commit; m != nil && *m != h.Commit {
		switch {
		case *m > Memory:
			return refuse(mqerr.Invalid, "broker group %q: unknown commit mode %d", h.Name, *m)
		case len(h.Replicas) > 1:
			return refuse(mqerr.Invalid, "broker group %q: the commit mode can be changed only while it has one replica, it has %d", h.Name, len(h.Replicas))
		case h.Master != 0:
			return refuse(mqerr.Invalid, "broker group %q: stop its broker to change the commit mode", h.Name)
		}
		next.Commit = *m
	}
	if next.MinISR == h.MinISR && next.Commit == h.Commit && next.Stated == h.Stated {
		return Result{Shard: h}, nil
	}
	return s.put(next)
}

// voters is the number of replicas that are no learners.
func (h *Shard) voters() (n int) {
	for _, r := range h.Replicas {
		if !r.Learner {
			n++
		}
	}
	return n
}

// RemoveReplica forgets a replica for good: its directory is refused from then on. The id may be used again.
// It is refused if the shard would have too few replicas, or nobody who has everything.
type RemoveReplica struct {
	Shard   ShardID     `json:"shard"`
	Replica ReplicaID   `json:"replica"`
	Inc     Incarnation `json:"inc"`
}

func (RemoveReplica) op() string { return "remove_replica" }

func (c RemoveReplica) apply(s *State, _ Version) (Result, []Event) {
	h := s.shards[c.Shard]
	if h == nil {
		return refuse(mqerr.NotFound, "shard %d does not exist", c.Shard)
	}
	r := h.Replica(c.Replica)
	if r == nil {
		return refuse(mqerr.NotFound, "broker group %q has no replica %d", h.Name, c.Replica)
	}
	if r.Incarnation != c.Inc {
		return refuse(mqerr.Fenced, "broker group %q: replica %d has restarted meanwhile: look again whether it is the one to remove", h.Name, c.Replica)
	}
	if h.Master == c.Replica {
		return refuse(mqerr.Invalid, "broker group %q: replica %d is the master: stop it, or elect another one, before it is removed", h.Name, c.Replica)
	}
	next := h.clone()
	next.drop(c.Replica)
	at, _ := next.find(c.Replica)
	next.Replicas = slices.Delete(next.Replicas, at, at+1)
	next.ELR = slices.DeleteFunc(next.ELR, func(id ReplicaID) bool { return id == c.Replica })
	if len(next.Set)+len(next.ELR) == 0 {
		return refuse(mqerr.Invalid, "broker group %q: nobody but replica %d has all acknowledged messages", h.Name, c.Replica)
	}
	if next.voters() < h.MinISR {
		return refuse(mqerr.Invalid, "broker group %q needs %d copies: lower that, or start another replica, before replica %d is removed", h.Name, h.MinISR, c.Replica)
	}
	next.Gone = append(next.Gone, r.UUID)
	next.Gone = next.Gone[max(0, len(next.Gone)-replicasGone):]
	return s.put(next)
}

// Ended is what stays of a deleted shard: one that is made anew under its name goes on from there (I2).
type Ended struct {
	Name       string `json:"name"`
	Epoch      Epoch  `json:"epoch"`
	SetVersion uint64 `json:"set_version"`
}

// DeleteShard deletes a shard for good. It is refused while it has a master, or a topic has queues there.
type DeleteShard struct {
	Shard ShardID `json:"shard"`
}

func (DeleteShard) op() string { return "delete_shard" }

func (c DeleteShard) apply(s *State, _ Version) (Result, []Event) {
	h := s.shards[c.Shard]
	if h == nil {
		return refuse(mqerr.NotFound, "shard %d does not exist", c.Shard)
	}
	if h.Master != 0 {
		return refuse(mqerr.Invalid, "broker group %q has a master: stop its brokers first", h.Name)
	}
	for _, t := range s.Topics() {
		if t.On(h.ID) > 0 {
			return refuse(mqerr.Invalid, "broker group %q has queues of topic %q: delete the topic first", h.Name, t.Name)
		}
	}
	if len(s.ended) >= EndedMax {
		return refuse(mqerr.Exhausted, "broker group %q can't be deleted: %d deleted ones are remembered, the most that are allowed", h.Name, EndedMax)
	}
	delete(s.shards, h.ID)
	delete(s.shardNames, h.Name)
	s.ended[h.Name] = Ended{Name: h.Name, Epoch: h.Epoch, SetVersion: h.SetVersion}
	return Result{Shard: h, Changed: true}, []Event{ShardDeleted{Shard: h}}
}
