package walk

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/store/record"
)

// config is a kind of group.
type config struct {
	name     string
	replicas int
	mode     quorum.Mode
	minISR   int
	varies   bool // minISR changes now and then
}

// rules are those that the world can switch off.
type rules struct {
	noIncarnations bool // the controller does not look at the incarnations of a proposal
	noSessions     bool // an ack counts in whatever session its follower has
	sameEpoch      bool // a master that restarts goes on in its epoch
	keepUnclean    bool // a replica that may have lost records stays where it is
	anyTwo         bool // acknowledged is what any two replicas have
}

// rec is a record; no two that are written are the same. It is one byte long.
type rec struct {
	epoch record.Epoch
	value uint64
}

// message is something that travels.
type message struct {
	what    string
	deliver func()
}

// world is a walk.
type world struct {
	rng *rand.Rand
	cfg config
	off rules
	now time.Duration

	state *state.State
	index state.Version
	nodes []*node
	bag   []message
	slow  []message // comes into the bag much later
	conns uint64
	value uint64

	// committed is every record that any master took for acknowledged.
	committed []rec
	owners    map[record.Epoch]quorum.Member
	times     quorum.Times
	calm      bool // no more faults
	dead      bool // nobody is electable without an operator

	fault string
	trace func(format string, args ...any)
	stats stats
}

// stats tell that the walks get somewhere.
type stats struct {
	walks, dead, commits, epochs, changes, refused, cuts, losses, dropped int
}

const group = "g"

func newWorld(cfg config, off rules, seed uint64) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 7)), cfg: cfg, off: off, state: state.New(),
		owners: map[record.Epoch]quorum.Member{}, trace: func(string, ...any) {},
	}
	w.times = quorum.Times{Behind: 2 * time.Second, Silent: 600 * time.Millisecond, Gone: 300 * time.Millisecond, Rejoin: 200 * time.Millisecond, Retry: 100 * time.Millisecond}
	if w.chance(2) {
		w.times.Rejoin = -1 // safety must not rest on patience
	}
	w.apply(state.Init{Cluster: "c", Key: state.Secret{1}})
	for id := range cfg.replicas {
		n := &node{w: w, id: quorum.Replica(id + 1)}
		w.nodes = append(w.nodes, n)
		n.boot()
		n.register(true)
	}
	return w
}

func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }

// fail notes the first thing that is wrong.
func (w *world) fail(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
		w.trace("FAULT %s", w.fault)
	}
}

// send puts something on its way. In a calm world everything arrives, in order.
func (w *world) send(what string, deliver func()) {
	if !w.calm && w.chance(12) {
		w.stats.dropped++
		return
	}
	if !w.calm && w.chance(8) {
		w.slow = append(w.slow, message{what, deliver})
		return
	}
	w.bag = append(w.bag, message{what, deliver})
}

// deliver takes any message out of the bag.
func (w *world) deliver() {
	if len(w.bag) == 0 {
		return
	}
	i := 0
	if !w.calm {
		i = w.rng.IntN(len(w.bag))
	}
	m := w.bag[i]
	if w.calm || !w.chance(16) { // else it comes again
		w.bag = slices.Delete(w.bag, i, i+1)
	}
	w.trace("deliver %s", m.what)
	m.deliver()
}

// run takes so many steps, then lets the world become calm.
func (w *world) run(steps int) {
	for range steps {
		if w.fault != "" || w.dead {
			return
		}
		w.step()
		w.check()
	}
	w.checkLogs()
	if w.fault == "" && !w.dead {
		w.heal()
	}
}

// any returns a replica of some kind, or any if there is none of it.
func (w *world) any(kind func(n *node) bool) *node {
	at, found := w.rng.IntN(len(w.nodes)), w.nodes[0]
	for i := range w.nodes {
		if n := w.nodes[(at+i)%len(w.nodes)]; kind(n) {
			return n
		}
	}
	return found
}

func (w *world) step() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	leads := func(n *node) bool { return n.m != nil }
	if len(w.slow) > 0 && w.chance(20) {
		w.bag, w.slow = append(w.bag, w.slow[0]), w.slow[1:]
	}
	switch k := w.rng.IntN(1000); {
	case k < 450:
		w.deliver()
	case k < 530:
		w.any(leads).write()
	case k < 700:
		w.any(func(n *node) bool { return len(n.feeds) > 0 }).feed()
	case k < 780:
		n.flush()
	case k < 810:
		w.now += time.Duration(w.rng.IntN(400)) * time.Millisecond
		for _, n := range w.nodes {
			n.tick()
		}
	case k < 870:
		w.any(func(n *node) bool { return n.f != nil && n.f.State() == follower.Connecting }).connect()
	case k < 930:
		w.show(n)
	case k < 945:
		n.timeOut()
	case k < 965:
		w.any(func(n *node) bool { return !n.up || n.inc == 0 }).start()
	case k < 974:
		n.stop()
	case k < 977:
		n.resign()
	case k < 983:
		n.hangUp()
	case w.shard().Master == 0 || k < 989:
		w.elect()
	case w.cfg.varies && k < 994:
		w.setMinISR(1 + w.rng.IntN(len(w.nodes)))
	}
}

// heal stops the faults: everything has to become acknowledged everywhere.
func (w *world) heal() {
	w.calm = true
	w.trace("calm")
	w.bag, w.slow = append(w.bag, w.slow...), nil
	for _, n := range w.nodes {
		n.hangUp() // a stream that lost something has broken
	}
	for round := range 400 {
		for _, n := range w.nodes {
			n.start()
			n.timeOut()
			w.show(n)
			n.connect()
			n.flush()
		}
		if w.shard().Master == 0 || round == 0 {
			w.elect()
		}
		w.now += 50 * time.Millisecond
		for _, n := range w.nodes {
			for range 4 {
				n.feed()
			}
			n.tick()
		}
		for range 20 * len(w.nodes) {
			w.deliver()
		}
		w.check()
		if w.fault != "" || w.dead || w.settled() {
			w.checkLogs()
			return
		}
	}
	h := w.shard()
	for _, n := range w.nodes {
		w.trace("%v", n)
	}
	w.fail("stuck: %d of %v acknowledged, S %v in version %d, ELR %v, epoch %d of %d", len(w.committed), w.nodes, h.Set, h.SetVersion, h.ELR, h.Epoch, h.Master)
}

// settled tells whether every replica is a member and has the same log, all of it acknowledged.
func (w *world) settled() bool {
	h := w.shard()
	if h.Master == 0 || len(h.Set) != len(w.nodes) {
		return false
	}
	for _, n := range w.nodes {
		if len(n.log) != len(w.committed) || int(n.confirm) != len(n.log) {
			return false
		}
	}
	return true
}
