package state

import (
	"slices"
	"strings"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// RegisterReplica begins an incarnation of a broker process: the command's index. The first replica
// of a new shard founds it and is its SyncStateSet. A master that registers again has restarted, so
// its mastership is over and the epoch with it (I1). Enroll has taken its place: it is still read.
type RegisterReplica struct {
	Cluster string      `json:"cluster,omitempty"` // cluster of its data, empty for a new directory
	Shard   string      `json:"shard"`
	Replica ReplicaID   `json:"replica"`
	UUID    UUID        `json:"uuid"`
	Address string      `json:"address"`
	Last    Incarnation `json:"last,omitempty"` // of its run before, as far as it knows
	Clean   bool        `json:"clean,omitempty"`
	LogEnd  int64       `json:"log_end,omitempty"`
	// MaxEpoch is the highest epoch that the replica has seen. A higher one than the state's means
	// that the controller has forgotten something.
	MaxEpoch Epoch `json:"max_epoch,omitempty"`
}

func (RegisterReplica) op() string { return "register_replica" }

// Validate refuses what no state could accept.
func (c RegisterReplica) Validate() error {
	if err := checkName("broker group", c.Shard, ShardNameMax); err != nil {
		return err
	}
	if c.Replica == 0 {
		return mqerr.New(mqerr.Invalid, "broker group %q: the id of a replica is at least 1", c.Shard)
	}
	if c.UUID == (UUID{}) {
		return mqerr.New(mqerr.Invalid, "broker group %q: replica %d names no data directory", c.Shard, c.Replica)
	}
	if host, port := splitAddress(c.Address); host == "" || port == "" || len(c.Address) > 300 {
		return mqerr.New(mqerr.Invalid, "broker group %q: the address %q of replica %d is not host:port", c.Shard, c.Address, c.Replica)
	}
	return nil
}

// splitAddress cuts host:port; an IPv6 host stands in brackets.
func splitAddress(s string) (host, port string) {
	at := strings.LastIndexByte(s, ':')
	if at < 0 {
		return "", ""
	}
	host, port = s[:at], s[at+1:]
	if strings.Contains(host, ":") && (host[0] != '[' || host[len(host)-1] != ']') {
		return "", ""
	}
	return host, port
}

func (c RegisterReplica) apply(s *State, index Version) (Result, []Event) {
	h, err := c.admit(s)
	if err != nil {
		return Result{Err: err}, nil
	}
	if h == nil {
		return s.found(c.Shard, c.replica(index))
	}
	next := h.clone()
	r := next.Replica(c.Replica)
	if r == nil {
		if err := next.join(c.replica(index)); err != nil {
			return Result{Err: err}, nil
		}
		return s.put(next)
	}
	unclean := !c.Clean || c.Last != r.Incarnation
	*r = c.replica(index)
	r.Unclean = unclean
	next.restarted(c.Replica, s.generation)
	return s.put(next)
}

// admit returns the shard that the replica may enter, nil if it founds it.
func (c RegisterReplica) admit(s *State) (*Shard, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if s.cluster == "" {
		return nil, mqerr.New(mqerr.Unavailable, "the cluster is not set up yet")
	}
	if c.Cluster != "" && c.Cluster != s.cluster {
		return nil, mqerr.New(mqerr.Denied, "the data of replica %d of broker group %q belongs to cluster %s, this controller to %s: start it with its own controller, or with an empty data directory", c.Replica, c.Shard, c.Cluster, s.cluster)
	}
	h := s.ShardNamed(c.Shard)
	return h, c.checkIdentity(s, h)
}

// checkIdentity refuses a directory under a wrong identity, and a controller that is older than its brokers.
func (c RegisterReplica) checkIdentity(s *State, h *Shard) error {
	for _, other := range s.shards {
		for _, r := range other.Replicas {
			if r.UUID == c.UUID && (other != h || r.ID != c.Replica) {
				return mqerr.New(mqerr.Exists, "this data directory is replica %d of broker group %q: it can't start as replica %d of %q", r.ID, other.Name, c.Replica, c.Shard)
			}
		}
	}
	epoch := s.ended[c.Shard].Epoch
	switch {
	case h == nil:
		if _, deleted := s.ended[c.Shard]; deleted && c.Last != 0 {
			return mqerr.New(mqerr.Denied, "broker group %q was deleted, and this data directory belonged to it: start with an empty one to make the group anew", c.Shard)
		}
	case slices.Contains(h.Gone, c.UUID):
		return mqerr.New(mqerr.Denied, "replica %d of broker group %q was removed with this data directory: start with an empty one", c.Replica, c.Shard)
	default:
		epoch = h.Epoch
		r := h.Replica(c.Replica)
		if r == nil {
			break
		}
		if r.UUID != c.UUID {
			return mqerr.New(mqerr.Exists, "replica %d of broker group %q has another data directory (%v): start it there; a new, empty directory needs a new id", c.Replica, c.Shard, r.UUID)
		}
		if c.Last > r.Incarnation {
			return mqerr.New(mqerr.Fenced, "replica %d of broker group %q knows incarnation %d, the controller only %d: the controller's data is older than the broker's; restore a newer copy of it", c.Replica, c.Shard, c.Last, r.Incarnation)
		}
	}
	if c.MaxEpoch > epoch {
		return mqerr.New(mqerr.Fenced, "replica %d of broker group %q knows epoch %d, the controller only %d: the controller's data is older than the broker's; restore a newer copy of it", c.Replica, c.Shard, c.MaxEpoch, epoch)
	}
	return nil
}

func (c RegisterReplica) replica(index Version) Replica {
	return Replica{ID: c.Replica, UUID: c.UUID, Address: c.Address, Incarnation: Incarnation(index)}
}
