package registry

import "github.com/perigee-mq/perigee/controller/state"

// Stats are figures for metrics and the status.
type Stats struct {
	Shards, LiveShards int
	Sessions, Watchers int
	Pending            int // definitions that proxies do not see yet
	Version            state.Version
	Known              bool // proxies get answers
	// Of a leader: shards whose master may hold a lease, shards without a master and nobody to elect, the data
	// losses of all shards, and elections that this node carried out, by reason.
	Leases, Stuck int
	DataLosses    uint64
	Elections     map[string]uint64
}

// Stats returns the figures of the moment.
func (r *Registry) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Stats{Shards: len(r.shards), Sessions: r.sessions, Watchers: len(r.watchers), Pending: len(r.pending), Version: r.version, Known: r.known}
	for _, h := range r.shards {
		if r.liveLocked(h) && h.caughtUp {
			s.LiveShards++
		}
		if h.stuck {
			s.Stuck++
		}
		s.DataLosses += h.hard.DataLoss
	}
	s.Leases, s.Elections = r.book.Held(r.o.Boot()), map[string]uint64{}
	for why, n := range r.elections {
		s.Elections[string(why)] = n
	}
	return s
}
