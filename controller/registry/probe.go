package registry

import (
	"time"

	"github.com/perigee-mq/perigee/controller/state"
)

// Probe is a master whose stream has broken.
type Probe struct {
	Shard   state.ShardID
	Replica state.ReplicaID
	Inc     state.Incarnation
	Address string
}

// Probes returns, with fast fail-over, the masters to probe, each once for every stream that broke.
func (r *Registry) Probes() (out []Probe) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, h := range r.shards {
		x := h.heard[h.hard.Master]
		if !r.leading || !r.o.FastFailover || h.hard.Master == 0 || !x.closed || x.inc != h.hard.MasterInc {
			continue
		}
		x.closed = false
		h.heard[h.hard.Master] = x
		out = append(out, Probe{id, h.hard.Master, x.inc, h.hard.Replica(h.hard.Master).Address})
	}
	return out
}

// NoAnswer says that a probe had no answer.
func (r *Registry) NoAnswer(p Probe) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.shards[p.Shard]
	if h == nil || h.sessions[p.Replica] != nil || h.heard[p.Replica].inc != p.Inc {
		return
	}
	x := h.heard[p.Replica]
	x.gone = true
	h.heard[p.Replica] = x
	r.dueLocked()
}

// Soft is what the leader knows of a shard besides the state.
type Soft struct {
	LeaseAge time.Duration // since the last grant
	Leased   bool          // this node has granted one
	Stuck    bool
	Reports  map[state.ReplicaID]Told
}

// Told is a report with its age.
type Told struct {
	Report
	Age time.Duration
}

// Soft tells it; false if this node does not lead.
func (r *Registry) Soft(id state.ShardID) (s Soft, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.shards[id]
	if h == nil || !r.leading {
		return s, false
	}
	s.LeaseAge, s.Leased = r.book.Granted(id, r.o.Boot())
	s.Stuck, s.Reports = h.stuck, map[state.ReplicaID]Told{}
	for replica, x := range h.heard {
		if x.Known && r.presentLocked(h, replica) {
			s.Reports[replica] = Told{x.Report, r.o.Now().Sub(x.at)}
		}
	}
	return s, true
}
