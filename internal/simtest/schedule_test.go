package simtest

import (
	"time"

	"github.com/perigee-mq/perigee/broker"
)

// Whoever starts, kills or cuts something has the turn: the schedule, and a replica at a step at which something is to
// happen to it.

func (s *sim) take() { s.turn <- struct{}{} }
func (s *sim) give() { <-s.turn }

// free gives the turn away for what may wait for a replica.
func (s *sim) free(wait func()) {
	s.give()
	defer s.take()
	wait()
}

// armed is a fault that waits for a step.
type armed struct {
	cell
	struck chan struct{} // closed: it has happened
	heal   func()
}

// reached is called by a replica at a step. It returns when what is to happen there has happened.
func (s *sim) reached(p *process, r *running, st broker.Step) {
	s.note("%s: step %s", p.name, st)
	select {
	case s.turn <- struct{}{}:
		defer s.give()
	case <-r.dead:
		return
	}
	a := s.waits
	if a == nil || a.step != st || p.run != r || !p.up() {
		return
	}
	if a.kind == wiped && !s.spare(p) {
		return
	}
	s.waits = nil
	a.heal = s.strike(a.kind, p)
	s.hits[a.cell]++
	close(a.struck)
}

// spare tells whether a replica may lose its disk: the others have everything.
func (s *sim) spare(p *process) bool {
	now := s.last.Load()
	return now.whole(len(s.brokers)) && s.up(s.brokers) == len(s.brokers)
}

func (s *sim) up(list []*process) (n int) {
	for _, p := range list {
		if p.up() && !p.frozen {
			n++
		}
	}
	return n
}

// arm makes a fault happen at the next step of its kind.
func (s *sim) arm(c cell) *armed {
	a := &armed{cell: c, struck: make(chan struct{})}
	s.waits = a
	return a
}

// provoke makes steps happen: another master, or another SyncStateSet.
func (s *sim) provoke(st broker.Step) (heal func()) {
	changesSet := st == broker.StepProposing || st == broker.StepProposed
	m := s.master()
	switch n := s.rng.IntN(4); {
	case changesSet && n < 2:
		p := s.replica()
		p.kill(n == 0)
		s.free(func() { time.Sleep(time.Duration(500+s.rng.IntN(2500)) * time.Millisecond) })
		return p.start
	case changesSet:
		return s.cut(s.replica(), true, true)
	case m == nil || n < 3 && st != broker.StepFollowing:
		s.hand(s.replica())
		return func() {}
	case st == broker.StepReopened || st == broker.StepRefusing || st == broker.StepEnded || st == broker.StepFollowing || n == 3 && s.rng.IntN(2) == 0:
		return s.cut(m, true, true)
	}
	m.kill(s.rng.IntN(2) == 0)
	return m.start
}

const (
	wholeTime   = 60 * time.Second // for all replicas to be in sync when nothing is wrong
	recoverTime = 15 * time.Second // for the next successful send when nothing is wrong
)

// round makes one fault happen at a step, and heals everything.
func (s *sim) round(i int, c cell) {
	s.take()
	defer s.give()
	s.free(func() {
		if !s.await(wholeTime, func(n *seen) bool { return n.whole(len(s.brokers)) }) {
			s.fail("not all replicas are in sync %v after everything was healed: %v", wholeTime, s.last.Load())
		}
		time.Sleep(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
	})
	s.note("round %d: %s at step %s", i+1, c.kind, c.step)
	a := s.arm(c)
	end := s.provoke(c.step)
	s.free(func() {
		t := time.NewTimer(time.Duration(3+s.rng.IntN(3)) * time.Second)
		defer t.Stop()
		select {
		case <-a.struck:
		case <-t.C:
		}
	})
	end() // what was provoked may end first: some steps come only then
	s.free(func() {
		t := time.NewTimer(6 * time.Second)
		defer t.Stop()
		select {
		case <-a.struck:
			time.Sleep(time.Duration(s.rng.IntN(7000)) * time.Millisecond)
		case <-t.C:
		}
	})
	s.waits = nil
	if a.heal != nil {
		a.heal()
	} else {
		s.note("the step did not come")
	}
	s.startAll(s.brokers)
	s.startAll(s.controllers)
	s.startAll(s.proxies)
	healed := time.Now()
	s.note("healed")
	s.free(func() {
		if d := s.probe.since(healed, recoverTime); d > recoverTime {
			s.fail("A11: no send succeeds within %v after everything was healed", recoverTime)
		}
	})
}

// small makes a fault of a proxy or a controller happen, besides.
func (s *sim) small() {
	s.take()
	defer s.give()
	p := s.proxies[s.rng.IntN(len(s.proxies))]
	if s.rng.IntN(2) == 0 {
		p = s.controllers[s.rng.IntN(len(s.controllers))]
	}
	d := time.Duration(s.rng.IntN(4000)) * time.Millisecond
	s.note("besides: %s for %v", p.name, d)
	var heal func()
	switch s.rng.IntN(4) {
	case 0:
		p.kill(s.rng.IntN(2) == 0)
		heal = p.start
	case 1:
		p.freeze(true)
		heal = func() { p.freeze(false) }
	case 2:
		heal = s.cut(p, s.rng.IntN(2) == 0, true)
	default:
		p.stop()
		heal = p.start
	}
	s.free(func() { time.Sleep(d) })
	heal()
}
