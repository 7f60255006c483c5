package state

import "github.com/perigee-mq/perigee/internal/mqerr"

// generationShift is where the generation of the cluster stands in an epoch: above what counts elections.
const generationShift = 48

// Generation returns the cluster's generation as of this epoch.
func (e Epoch) Generation() uint16 { return uint16(e >> generationShift) }

// after returns the next epoch in a generation of the cluster. It is higher, whatever the generation says.
func (e Epoch) after(generation uint16) Epoch {
	return max(e+1, Epoch(generation)<<generationShift+1)
}

// Generation is how often the state was put back to an older one; epochs begin with it.
func (s *State) Generation() uint16 { return s.generation }

// RaiseGeneration is the first command after the state was put back to an older copy: the epochs that come
// are higher than any that was given out and forgotten. From is the generation that was found.
type RaiseGeneration struct {
	From uint16 `json:"from"`
}

func (RaiseGeneration) op() string { return "raise_generation" }

func (c RaiseGeneration) apply(s *State, _ Version) (Result, []Event) {
	if c.From != s.generation {
		return refuse(mqerr.Fenced, "the cluster is in generation %d, not %d", s.generation, c.From)
	}
	if s.generation == 1<<16-1 {
		return refuse(mqerr.Exhausted, "the cluster has had all its %d generations", 1<<16)
	}
	s.generation++
	return Result{Changed: true}, nil
}
