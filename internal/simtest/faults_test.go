package simtest

import (
	"time"

	"github.com/perigee-mq/perigee/broker"
)

// kind is a kind of fault of one replica of a broker group, and of what it needs.
type kind string

const (
	killed     kind = "kill"           // of the process
	powerless  kind = "power"          // of its machine is cut
	paused     kind = "pause"          // of the process, which then goes on as if nothing had happened
	isolated   kind = "isolate"        // nothing comes and nothing goes
	deaf       kind = "deaf"           // nothing comes
	mute       kind = "mute"           // nothing goes
	broken     kind = "break"          // its streams end
	slowDisk   kind = "slow disk"      // each sync takes long
	slowNet    kind = "slow network"   // with delays of their own for each message
	withLeader kind = "kill + leader"  // of the controllers
	peerKilled kind = "kill peer"      // another replica is killed
	allKilled  kind = "kill all"       // replicas
	noQuorum   kind = "no controllers" // a majority is killed
	wiped      kind = "wipe"           // killed, its disk lost
)

var kinds = []kind{killed, powerless, paused, isolated, deaf, mute, broken, slowDisk, slowNet, withLeader, peerKilled, allKilled, noQuorum, wiped}

var steps = []broker.Step{
	broker.StepPromised, broker.StepBegun, broker.StepStreams, broker.StepConfirmed, broker.StepServing,
	broker.StepProposing, broker.StepProposed,
	broker.StepRefusing, broker.StepEnded, broker.StepResigned, broker.StepReopened, broker.StepFollowing,
}

// cell is a fault at a step.
type cell struct {
	kind kind
	step broker.Step
}

// cellAt counts through all cells, so that neighbours differ in both.
func cellAt(i uint64) cell {
	n := uint64(len(kinds) * len(steps))
	i %= n
	return cell{kinds[(i+i/uint64(len(steps)))%uint64(len(kinds))], steps[i%uint64(len(steps))]}
}

// number is the least i for which cellAt is the cell.
func (c cell) number() int {
	for i := range len(kinds) * len(steps) {
		if cellAt(uint64(i)) == c {
			return i
		}
	}
	panic("no such cell")
}

// strike carries out a fault at a replica and returns how to heal it. The caller has the turn.
func (s *sim) strike(k kind, p *process) (heal func()) {
	s.note("fault: %s at %s", k, p.name)
	switch k {
	case killed, powerless:
		p.kill(k == powerless)
		return p.start
	case paused:
		p.freeze(true)
		return func() { p.freeze(false) }
	case isolated, deaf, mute:
		return s.cut(p, k != mute, k != deaf)
	case broken:
		for _, q := range s.all {
			if q != p {
				s.net.Break(p.host, q.host)
			}
		}
		return func() {}
	case slowDisk:
		slow := s.disks[p].slow
		slow.sync.Store(int64(20*time.Millisecond + time.Duration(s.rng.IntN(400))*time.Millisecond))
		return func() { slow.sync.Store(0) }
	case slowNet:
		return s.slow(p)
	case withLeader:
		p.kill(false)
		c := s.leader()
		c.kill(s.rng.IntN(2) == 0)
		return func() { c.start(); p.start() }
	case peerKilled:
		q := s.brokers[(int(s.disks[p].id)+s.rng.IntN(len(s.brokers)-1))%len(s.brokers)]
		q.kill(s.rng.IntN(2) == 0)
		return q.start
	case allKilled:
		for _, q := range s.brokers {
			q.kill(s.rng.IntN(2) == 0)
		}
		return func() { s.startAll(s.brokers) }
	case noQuorum:
		for _, c := range s.controllers[:len(s.controllers)/2+1] {
			c.kill(s.rng.IntN(2) == 0)
		}
		return func() { s.startAll(s.controllers) }
	}
	p.kill(true)
	s.disks[p].wipe()
	return func() {
		s.forget(p)
		p.start()
	}
}

// cut cuts ways from and to a machine.
func (s *sim) cut(p *process, in, out bool) (heal func()) {
	for _, q := range s.all {
		if q == p {
			continue
		}
		if in {
			s.net.Cut(q.host, p.host)
		}
		if out {
			s.net.Cut(p.host, q.host)
		}
	}
	return func() {
		for _, q := range s.all {
			if q != p {
				s.net.Heal(q.host, p.host)
				s.net.Heal(p.host, q.host)
			}
		}
	}
}

// slow makes the ways from and to a machine slow, each differently.
func (s *sim) slow(p *process) (heal func()) {
	set := func(most func() time.Duration) {
		for _, q := range s.all {
			if q != p {
				s.net.Slow(q.host, p.host, 0, most())
				s.net.Slow(p.host, q.host, 0, most())
			}
		}
	}
	set(func() time.Duration { return time.Duration(s.rng.IntN(250)) * time.Millisecond })
	return func() { set(func() time.Duration { return 0 }) }
}

// startAll starts processes in any order.
func (s *sim) startAll(list []*process) {
	for _, i := range s.rng.Perm(len(list)) {
		list[i].start()
	}
}
