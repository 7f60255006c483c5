package walk

import (
	"flag"
	"testing"

	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/testseed"
)

var (
	walks   = flag.Int("walks", 120, "walks of each configuration")
	oneSeed = flag.Uint64("walk.seed", 0, "only the walk of this seed, with what happens")
	steps   = flag.Int("walk.steps", 600, "steps of a walk")
)

var configs = []config{
	{name: "durable1", replicas: 3, mode: quorum.Durable, minISR: 1},
	{name: "durable2", replicas: 3, mode: quorum.Durable, minISR: 2},
	{name: "durable3", replicas: 3, mode: quorum.Durable, minISR: 3},
	{name: "memory2", replicas: 3, mode: quorum.Memory, minISR: 2},
	{name: "memory3", replicas: 3, mode: quorum.Memory, minISR: 3},
	{name: "durable2of4", replicas: 4, mode: quorum.Durable, minISR: 2},
	{name: "durable3of5", replicas: 5, mode: quorum.Durable, minISR: 3},
	{name: "memory2of4", replicas: 4, mode: quorum.Memory, minISR: 2},
	{name: "durableAnyOf3", replicas: 3, mode: quorum.Durable, minISR: 2, varies: true},
	{name: "durableAnyOf4", replicas: 4, mode: quorum.Durable, minISR: 2, varies: true},
	{name: "memory3of5", replicas: 5, mode: quorum.Memory, minISR: 3},
}

func (w *world) resign(n *node) {
	h := w.shard()
	w.apply(state.Resign{Shard: h.ID, Epoch: state.Epoch(n.m.Epoch()), Replica: state.ReplicaID(n.id), Inc: state.Incarnation(n.inc), Leaves: w.rng.IntN(2) == 0})
}

func (s *stats) add(o stats) {
	s.walks++
	s.commits += o.commits
	s.epochs += o.epochs
	s.changes += o.changes
	s.refused += o.refused
	s.cuts += o.cuts
	s.losses += o.losses
	s.dropped += o.dropped
}

func TestWalks(t *testing.T) {
	for _, cfg := range configs {
		t.Run(cfg.name, func(t *testing.T) {
			if *oneSeed != 0 {
				w := newWorld(cfg, rules{}, *oneSeed)
				w.trace = t.Logf
				w.run(*steps)
				if w.fault != "" {
					t.Fatal(w.fault)
				}
				return
			}
			seed := testseed.First(t)
			var sum stats
			for i := range uint64(*walks) {
				w := newWorld(cfg, rules{}, seed+i)
				w.run(*steps)
				if w.fault != "" {
					t.Fatalf("-run 'TestWalks/%s$' -walk.seed %d: %s", cfg.name, seed+i, w.fault)
				}
				sum.add(w.stats)
				if w.dead {
					sum.dead++
				}
			}
			t.Logf("%+v", sum)
			if sum.commits < 20*sum.walks || sum.epochs < 3*sum.walks || sum.changes < sum.walks || sum.cuts == 0 || sum.refused == 0 || sum.dead > sum.walks/10 {
				t.Fatalf("the walks get nowhere: %+v", sum)
			}
		})
	}
}

// TestRulesMatter switches rules off that lie outside of the cores, one at a time: the walks must find out.
func TestRulesMatter(t *testing.T) {
	for name, test := range map[string]struct {
		off rules
		in  []string
	}{
		"incarnations in a proposal":    {rules{noIncarnations: true}, []string{"memory2", "memory2of4"}},
		"acks count in their session":   {rules{noSessions: true}, []string{"memory2"}},
		"a new epoch for every restart": {rules{sameEpoch: true}, []string{"durable2", "memory2"}},
		"unclean replicas are removed":  {rules{keepUnclean: true}, []string{"memory2", "memory3"}},
		"every member of S has to ack":  {rules{anyTwo: true}, []string{"durable2", "memory2"}},
	} {
		t.Run(name, func(t *testing.T) {
			seed := testseed.First(t)
			for _, cfg := range configs {
				for _, in := range test.in {
					if cfg.name == in {
						t.Log(counterExample(t, cfg, test.off, seed))
					}
				}
			}
		})
	}
}

func counterExample(t *testing.T, cfg config, off rules, seed uint64) string {
	t.Helper()
	for i := range uint64(20_000) {
		w := newWorld(cfg, off, seed+i)
		w.run(*steps)
		if w.fault != "" {
			return w.fault
		}
	}
	t.Fatalf("%s: 20,000 walks find nothing wrong without that rule", cfg.name)
	return ""
}
