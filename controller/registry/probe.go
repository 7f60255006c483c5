package registry

import (
	"time"

	"github.com/perigee-mq/perigee/controller/state"
)

// Probe is a master whose stream has broken, or that has none with a new leader.
type Probe struct {
	Shard   state.ShardID
	Replica state.ReplicaID
	Inc     state.Incarnation
	Address string
}

// Probes returns, with fast fail-over, the masters to probe. One that answers is asked again until it is heard from: a
// process that dies may accept connections for a moment after its stream has broken.
func (r *Registry) Probes() (out []Probe) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, h := range r.shards {
		x := h.heard[h.hard.Master]
		if !r.leading || !r.o.FastFailover || h.hard.Master == 0 || !x.closed || x.probed || x.gone || x.inc != h.hard.MasterInc {
			continue
		}
		x.probed = true
		h.heard[h.hard.Master] = x
		out = append(out, Probe{id, h.hard.Master, x.inc, h.hard.Replica(h.hard.Master).Address})
	}
	return out
}

// Probed says whether a probe had an answer.
func (r *Registry) Probed(p Probe, answered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.shards[p.Shard]
	if h == nil || h.heard[p.Replica].inc != p.Inc {
		return
	}
	x := h.heard[p.Replica]
	x.probed = false
	if !answered && h.sessions[p.Replica] == nil {
		x.gone = true
		r.dueLocked()
	}
	h.heard[p.Replica] = x
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
