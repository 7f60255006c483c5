package failover

import "github.com/perigee-mq/perigee/internal/mqerr"

// reason is why a call is made again.
type reason uint8

const (
	notLeader reason = iota
	fenced
	draining
	unavailable
	notEnoughReplicas
	unknownOutcome
	reasons = iota
)

var reasonNames = [reasons]string{"not_leader", "fenced", "draining", "unavailable", "not_enough_replicas", "unknown_outcome"}

// reasonOf tells whether a failure of that kind may be over with the next master.
func reasonOf(k mqerr.Kind) (reason, bool) {
	switch k {
	case mqerr.NotLeader:
		return notLeader, true
	case mqerr.Fenced:
		return fenced, true
	case mqerr.Draining:
		return draining, true
	case mqerr.Unavailable:
		return unavailable, true
	case mqerr.NotEnoughReplicas:
		return notEnoughReplicas, true
	case mqerr.UnknownOutcome:
		return unknownOutcome, true
	}
	return 0, false
}

// Stats are counters since the start, except Waiting.
type Stats struct {
	Waiting int64            // calls that wait for a master
	Again   map[string]int64 // calls made again, by what had gone wrong
	GaveUp  int64            // calls that waited in vain
}

// Stats returns the counters. A nil Masters has none.
func (m *Masters) Stats() (Stats, bool) {
	if m == nil {
		return Stats{}, false
	}
	s := Stats{Waiting: m.waiting.Load(), GaveUp: m.gaveUp.Load(), Again: make(map[string]int64, reasons)}
	for r, name := range reasonNames {
		s.Again[name] = m.again[r].Load()
	}
	return s, true
}
