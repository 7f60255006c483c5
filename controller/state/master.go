package state

import (
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Elect begins a new epoch with a new master. It is refused unless the epoch is still the one that
// the proposer saw, and the winner's incarnation too.
type Elect struct {
	Shard  ShardID     `json:"shard"`
	Epoch  Epoch       `json:"epoch"`
	Winner ReplicaID   `json:"winner"`
	Inc    Incarnation `json:"inc"`
}

func (Elect) op() string { return "elect" }

func (c Elect) apply(s *State, _ Version) (Result, []Event) {
	h, err := s.candidate(c.Shard, c.Epoch, c.Winner, c.Inc)
	if err != nil {
		return Result{Err: err}, nil
	}
	inSet := slices.Contains(h.Set, c.Winner)
	if !inSet && !slices.Contains(h.ELR, c.Winner) {
		return refuse(mqerr.Invalid, "broker group %q: replica %d may miss acknowledged messages and can't be elected", h.Name, c.Winner)
	}
	next := h.clone()
	set := []ReplicaID{c.Winner}
	if inSet {
		set = slices.DeleteFunc(slices.Clone(h.Set), func(id ReplicaID) bool { return id == h.Master && id != c.Winner })
	}
	next.setTo(set)
	next.crown(c.Winner, c.Inc, s.generation)
	return s.put(next)
}

// candidate returns the shard in its epoch if the replica is in that incarnation.
func (s *State) candidate(id ShardID, epoch Epoch, replica ReplicaID, inc Incarnation) (*Shard, error) {
	h := s.shards[id]
	if h == nil {
		return nil, mqerr.New(mqerr.NotFound, "shard %d does not exist", id)
	}
	if h.Epoch != epoch {
		return nil, mqerr.New(mqerr.Fenced, "broker group %q is in epoch %d, not %d", h.Name, h.Epoch, epoch)
	}
	if r := h.Replica(replica); r == nil || r.Incarnation != inc {
		return nil, mqerr.New(mqerr.Fenced, "broker group %q: replica %d is not in incarnation %d", h.Name, replica, inc)
	}
	return h, nil
}

// crown begins the epoch of a master.
func (h *Shard) crown(id ReplicaID, inc Incarnation, generation uint16) {
	h.Epoch = h.Epoch.after(generation)
	h.Master, h.MasterInc, h.Applied = id, inc, 0
}

// Resign ends a mastership before a planned stop: the next election need not wait.
type Resign struct {
	Shard   ShardID     `json:"shard"`
	Epoch   Epoch       `json:"epoch"`
	Replica ReplicaID   `json:"replica"`
	Inc     Incarnation `json:"inc"`
	// Leaves says that the replica's process stops: it leaves the SyncStateSet, too, if there are others in it, so that
	// the next master need not wait for it.
	Leaves bool `json:"leaves,omitempty"`
}

func (Resign) op() string { return "resign" }

func (c Resign) apply(s *State, _ Version) (Result, []Event) {
	h, err := s.ledBy(c.Shard, c.Epoch, c.Replica, c.Inc)
	if err != nil {
		return Result{Err: err}, nil
	}
	next := h.clone()
	next.Master, next.MasterInc = 0, 0
	if c.Leaves && len(h.Set) > 1 {
		next.setTo(slices.DeleteFunc(slices.Clone(h.Set), func(id ReplicaID) bool { return id == c.Replica }))
	}
	return s.put(next)
}

// ledBy returns the shard if that is its master.
func (s *State) ledBy(id ShardID, epoch Epoch, master ReplicaID, inc Incarnation) (*Shard, error) {
	h := s.shards[id]
	if h == nil {
		return nil, mqerr.New(mqerr.NotFound, "shard %d does not exist", id)
	}
	if h.Master != master || h.MasterInc != inc || h.Epoch != epoch || master == 0 {
		return nil, mqerr.New(mqerr.Fenced, "broker group %q: replica %d (incarnation %d) is not the master of epoch %d", h.Name, master, inc, epoch)
	}
	return h, nil
}

// Member is a replica in one of its incarnations.
type Member struct {
	ID  ReplicaID   `json:"id"`
	Inc Incarnation `json:"inc"`
}

// AlterS changes the SyncStateSet. Only the master proposes it, one change at a time, and names the
// incarnation of each member: a replica that restarted in between is not what the master saw.
type AlterS struct {
	Shard      ShardID  `json:"shard"`
	Epoch      Epoch    `json:"epoch"`
	Master     Member   `json:"master"`
	SetVersion uint64   `json:"set_version"`
	Set        []Member `json:"set"`
	// Least is the MinISR of a shard for which nobody has chosen one, from the first set on that is larger; 0: as it is.
	Least int `json:"least,omitempty"`
}

func (AlterS) op() string { return "alter_s" }

func (c AlterS) apply(s *State, _ Version) (Result, []Event) {
	h, err := s.ledBy(c.Shard, c.Epoch, c.Master.ID, c.Master.Inc)
	if err != nil {
		return Result{Err: err}, nil
	}
	if h.SetVersion != c.SetVersion {
		return refuse(mqerr.Fenced, "broker group %q: the SyncStateSet has version %d, not %d", h.Name, h.SetVersion, c.SetVersion)
	}
	next := h.clone()
	var set []ReplicaID
	for _, m := range c.Set {
		r := next.Replica(m.ID)
		if r == nil || r.Incarnation != m.Inc {
			return refuse(mqerr.Fenced, "broker group %q: replica %d is not in incarnation %d", h.Name, m.ID, m.Inc)
		}
		if r.Learner {
			return refuse(mqerr.Invalid, "broker group %q: replica %d is a learner and can't be a member of the SyncStateSet", h.Name, m.ID)
		}
		r.Unclean = false // it has caught up with the master in this incarnation
		set = append(set, m.ID)
	}
	if !slices.Contains(set, c.Master.ID) {
		return refuse(mqerr.Invalid, "broker group %q: the SyncStateSet must hold the master", h.Name)
	}
	if len(set) > c.Least && h.MinISR < c.Least && !h.Stated {
		next.MinISR = c.Least
	}
	next.setTo(set)
	return s.put(next)
}

// SetApplied says how far a master has logged the definitions. It only moves forward within an epoch.
type SetApplied struct {
	Shard   ShardID     `json:"shard"`
	Epoch   Epoch       `json:"epoch"`
	Replica ReplicaID   `json:"replica"`
	Inc     Incarnation `json:"inc"`
	Applied Version     `json:"applied"`
}

func (SetApplied) op() string { return "set_applied" }

func (c SetApplied) apply(s *State, index Version) (Result, []Event) {
	h, err := s.ledBy(c.Shard, c.Epoch, c.Replica, c.Inc)
	if err != nil {
		return Result{Err: err}, nil
	}
	if c.Applied >= index {
		return refuse(mqerr.Invalid, "broker group %q: nothing has version %d yet", h.Name, c.Applied)
	}
	if c.Applied <= h.Applied {
		return Result{Shard: h}, nil
	}
	next := h.clone()
	next.Applied = c.Applied
	r, _ := s.put(next)
	return r, []Event{ShardChanged{Shard: next, Progress: true}}
}
