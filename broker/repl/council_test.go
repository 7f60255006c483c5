package repl

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/broker/repl/quorum"
)

// council is a controller that loses requests and answers.
type council struct {
	mu   sync.Mutex
	rng  *rand.Rand
	view quorum.View
	elr  []quorum.Member
	inc  quorum.Incarnation
	past []quorum.View
}

func (c *council) now() quorum.View {
	v := c.view
	v.Set, v.Replicas = slices.Clone(v.Set), slices.Clone(v.Replicas)
	return v
}

// register gives a replica a new incarnation. A master that registers is none any more.
func (c *council) register(id quorum.Replica) quorum.Incarnation {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inc++
	m := quorum.Member{Replica: id, Inc: c.inc}
	v := c.now()
	if v.Master.Replica == id {
		v.Master = quorum.Member{}
		v.Epoch++
		v.Version++
	}
	for _, list := range []*[]quorum.Member{&v.Set, &v.Replicas, &c.elr} {
		for i := range *list {
			if (*list)[i].Replica == id {
				(*list)[i] = m
			}
		}
	}
	if !slices.Contains(v.Replicas, m) {
		v.Replicas = append(v.Replicas, m)
	}
	c.put(v)
	return c.inc
}

func (c *council) put(v quorum.View) {
	c.past = append(c.past, c.view)
	c.view = v
}

// elect makes one that may lead the master; nobody if all of them are away.
func (c *council) elect(alive func(quorum.Replica) bool) (quorum.View, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.now()
	fit := func(list []quorum.Member) []quorum.Member {
		return slices.DeleteFunc(slices.Clone(list), func(m quorum.Member) bool { return !alive(m.Replica) })
	}
	old, set := v.Master, v.Set
	candidates := fit(v.Set)
	if len(candidates) == 0 {
		candidates, set = fit(c.elr), nil
	}
	if len(candidates) == 0 {
		return v, false
	}
	winner := candidates[c.rng.IntN(len(candidates))]
	set = slices.DeleteFunc(slices.Clone(set), func(m quorum.Member) bool { return m == old && m != winner })
	if !slices.Contains(set, winner) {
		set = append(set, winner)
	}
	c.become(&v, set)
	v.Epoch++
	v.Master = winner
	c.put(v)
	return v, true
}

// become changes S and what is left outside of it (ELR).
func (c *council) become(v *quorum.View, set []quorum.Member) {
	if len(set) >= v.MinISR {
		c.elr = nil
	} else {
		for _, m := range v.Set {
			if !slices.Contains(c.elr, m) {
				c.elr = append(c.elr, m)
			}
		}
		c.elr = slices.DeleteFunc(c.elr, func(m quorum.Member) bool { return slices.Contains(set, m) })
	}
	v.Set = slices.Clone(set)
	v.Version++
}

// propose carries a proposal out, or not, and says so, or not.
func (c *council) propose(ctx context.Context, p quorum.Proposal) (quorum.Outcome, quorum.View) {
	c.mu.Lock()
	delay, lost, silent := time.Duration(c.rng.IntN(300))*time.Millisecond, c.rng.IntN(5) == 0, c.rng.IntN(5) == 0
	c.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return quorum.Unknown, quorum.View{}
	}
	if lost {
		return quorum.Unknown, quorum.View{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.now()
	known := !slices.ContainsFunc(p.Set, func(m quorum.Member) bool { return !slices.Contains(v.Replicas, m) })
	outcome := quorum.Refused
	if v.Epoch == p.Epoch && v.Master == p.Master && v.Version == p.Version && known {
		c.become(&v, p.Set)
		c.put(v)
		outcome = quorum.Done
	}
	if silent {
		return quorum.Unknown, quorum.View{}
	}
	return outcome, c.now()
}
