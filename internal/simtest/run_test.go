package simtest

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigee-mq/perigee/broker"
	"github.com/perigee-mq/perigee/internal/crashtest/history"
	"github.com/perigee-mq/perigee/internal/testseed"
)

var (
	seeds   = flag.Int("sim.seeds", 36, "how many seeds")
	oneSeed = flag.Uint64("sim.seed", 0, "only this seed, with what happened")
	faults  = flag.Int("sim.faults", 10, "faults of a seed")
	output  = flag.String("sim.out", "", "a file for the report of -sim.seed")
	first   = flag.Int("sim.first", -1, "of -sim.seed: the number of the cell of its first fault; default: by the seed")
	keep    = flag.String("sim.keep", "", "a directory for what happened in seeds that fail")
)

// opsMin is how many operations of clients a seed has at least.
const opsMin = 2000

// planOf is the cluster of a seed.
func planOf(seed uint64) plan {
	return plan{controllers: 3, replicas: 3, proxies: 2, faults: *faults, first: *first, fast: seed%2 == 0, pause: 1500 * time.Millisecond}
}

// table counts which faults have happened at which steps.
type table struct {
	mu   sync.Mutex
	hits map[cell]int
	ops  int
	regs int
	n    int
}

func (x *table) add(r report) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, h := range r.Hits {
		x.hits[cell{h.Kind, h.Step}] += h.Times
	}
	x.ops, x.regs, x.n = x.ops+r.Ops, x.regs+r.Regs, x.n+1
}

// String draws the table; missing are the cells that nothing has hit.
func (x *table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds, %d operations of clients, %d on registers\n%-16s", x.n, x.ops, x.regs, "")
	for _, st := range steps {
		fmt.Fprintf(&b, "%10s", st)
	}
	for _, k := range kinds {
		fmt.Fprintf(&b, "\n%-16s", k)
		for _, st := range steps {
			fmt.Fprintf(&b, "%10d", x.hits[cell{k, st}])
		}
	}
	return b.String()
}

func (x *table) missing() (out []cell) {
	for _, k := range kinds {
		for _, st := range steps {
			if x.hits[cell{k, st}] == 0 {
				out = append(out, cell{k, st})
			}
		}
	}
	return out
}

// report is what the process of one seed tells.
type report struct {
	Faults    []string
	Hits      []hit
	Ops, Regs int
	Worst     time.Duration // without a successful send
	Took      time.Duration // simulated
}

type hit struct {
	Kind  kind
	Step  broker.Step
	Times int
}

// TestSim runs seeds, each in a process of its own: what is pooled in one bubble must not come into another one, and one
// that hangs can be ended.
func TestSim(t *testing.T) {
	if *oneSeed != 0 {
		runSeed(t, *oneSeed)
		return
	}
	first := testseed.First(t)
	all := &table{hits: map[cell]int{}}
	t.Run("seeds", func(t *testing.T) {
		for i := range uint64(*seeds) {
			t.Run(fmt.Sprint(first+i), func(t *testing.T) {
				t.Parallel()
				all.add(child(t, first+i, -1))
			})
		}
	})
	if *seeds**faults >= 2*len(kinds)*len(steps) {
		all.fill(t, first+uint64(*seeds))
	}
	t.Logf("%v", all)
}

// fillTimes is how often a cell that nothing has hit is tried by seeds of its own: some steps do not come each time.
const fillTimes = 8

// fill runs seeds that begin with what nothing has hit, and fails if they do not either.
func (x *table) fill(t *testing.T, seed uint64) {
	for try := range uint64(fillTimes) {
		for _, c := range x.missing() {
			if x.hits[c] == 0 {
				x.add(child(t, seed+try, c.number()))
			}
		}
	}
	if cells := x.missing(); len(cells) > 0 {
		t.Errorf("nothing has hit %v", cells)
	}
}

// seedTime is how long a seed may take. It needs a few seconds.
const seedTime = 3 * time.Minute

// child runs a seed in another process.
func child(t *testing.T, seed uint64, cell int) (r report) {
	out := filepath.Join(t.TempDir(), "report")
	began := time.Now()
	args := []string{"-test.run=^TestSim$", "-test.timeout=" + seedTime.String(), "-test.v", fmt.Sprint("-sim.seed=", seed), fmt.Sprint("-sim.faults=", *faults), fmt.Sprint("-sim.first=", cell), "-sim.out=" + out, "-sim.keep=" + *keep}
	text, err := exec.CommandContext(t.Context(), os.Args[0], args...).CombinedOutput()
	b, _ := os.ReadFile(out)
	if e := json.Unmarshal(b, &r); e != nil {
		r.Faults = append(r.Faults, fmt.Sprintf("the process has ended without a report: %v; %s", err, firstLine(text)))
	}
	t.Logf("%d operations, %d on registers, %v simulated, %v without a send at worst, in %v", r.Ops, r.Regs, r.Took.Round(time.Second), r.Worst.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if r.Ops < opsMin && len(r.Faults) == 0 {
		t.Errorf("only %d operations", r.Ops)
	}
	for _, f := range r.Faults {
		t.Errorf("make sim SEED=%d FIRST=%d: %s", seed, cell, f)
	}
	if len(r.Faults) > 0 && *keep != "" {
		_ = os.WriteFile(filepath.Join(*keep, fmt.Sprint("sim-", seed)), text, 0o600)
	}
	return r
}

// firstLine is the one of a panic, if there is any.
func firstLine(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.HasPrefix(line, "WARNING: DATA RACE") {
			return line
		}
	}
	return ""
}

// save writes the history of all calls.
func (s *sim) save(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(history.Write(f, s.ops), f.Close())
}

// runSeed runs a seed in this process.
func runSeed(t *testing.T, seed uint64) {
	dir := t.TempDir()
	synctest.Test(t, func(*testing.T) {
		s := newSim(seed, planOf(seed), dir)
		r := s.run()
		for c, n := range s.hits {
			r.Hits = append(r.Hits, hit{c.kind, c.step, n})
		}
		if *output != "" {
			b, err := json.Marshal(r)
			if err == nil {
				err = os.WriteFile(*output, b, 0o600)
			}
			if err != nil {
				t.Error(err)
			}
		}
		for _, line := range s.trace {
			fmt.Println(line)
		}
		for _, f := range r.Faults {
			t.Error(f)
		}
		if len(r.Faults) > 0 && *keep != "" {
			if err := s.save(filepath.Join(*keep, fmt.Sprintf("sim-%d.jsonl", seed))); err != nil {
				t.Error(err)
			}
		}
	})
}
