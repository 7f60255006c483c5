package chaostest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/perigee-mq/perigee/internal/crashtest/history"
	"github.com/perigee-mq/perigee/internal/crashtest/load"
)

// episode is a number of faults on one set of directories, with one load.
type episode struct {
	number int
	seed   uint64
	list   []string // names of faults; empty: any, so many
	faults int
	until  time.Time // no fault begins after it; zero: no bound
	dir    string
	say    func(format string, args ...any)

	place  *place
	load   *load.Load
	probes *probes
	done   int
	gaps   map[string][]time.Duration // longest time without a successful send to a group, by fault
}

// run returns the first thing that is wrong.
func (e *episode) run() (err error) {
	if e.place, err = newPlace(whole, e.number, e.dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.place.end()) }()
	if err := e.place.start(); err != nil {
		return err
	}
	if e.load, err = load.New(e.place.service(), e.seed); err != nil {
		return err
	}
	defer e.load.Close()
	if err := e.load.Define(context.Background()); err != nil {
		return err
	}
	if e.probes, err = newProbes(e.place); err != nil {
		return err
	}
	defer e.probes.end()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); e.load.Run(ctx) }()
	err = e.all()
	stop()
	<-ended
	if err != nil {
		return err
	}
	began := time.Now()
	if err := e.load.Drain(context.Background()); err != nil {
		return err
	}
	e.say("seed %d: everything was read in %v", e.seed, time.Since(began).Round(time.Millisecond))
	if err := e.check(true); err != nil {
		return err
	}
	e.probes.end() // now nobody writes
	for _, g := range e.place.groups {
		if err := eventually(restTime, func() error { return e.place.sameLogs(g) }); err != nil {
			return err
		}
	}
	return nil
}

// all does the faults.
func (e *episode) all() error {
	rng := rand.New(rand.NewPCG(e.seed, 0))
	possible, skipped := e.place.possible()
	if len(skipped) > 0 && e.number == 0 {
		e.say("left out here: %s", strings.Join(skipped, ", "))
	}
	var wanted []fault
	if f, ok := named(possible, *onlyFlag); ok {
		wanted = []fault{f}
	} else {
		for _, f := range possible {
			if strings.Contains(f.name, *onlyFlag) {
				wanted = append(wanted, f)
			}
		}
	}
	if len(wanted) == 0 {
		return fmt.Errorf("no fault is named like %q", *onlyFlag)
	}
	for i := range max(e.faults, len(e.list)) {
		if i > 0 && !e.until.IsZero() && time.Now().After(e.until) {
			break
		}
		f := wanted[rng.IntN(len(wanted))]
		if len(e.list) > 0 {
			var ok bool
			if f, ok = named(possible, e.list[i]); !ok {
				continue
			}
		}
		pause(time.Duration(200+rng.IntN(800)) * time.Millisecond)
		if err := e.one(f, rng); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	pause(500 * time.Millisecond) // it works after the last fault, too
	return nil
}

// one does a fault and waits until the cluster is at rest.
func (e *episode) one(f fault, rng *rand.Rand) error {
	began := time.Now()
	d := &doing{place: e.place, rng: rng}
	before := e.load.Recorder().Done()
	err := f.do(d)
	over := time.Now()
	if err == nil {
		err = e.rest()
	}
	var gaps []string
	var longest time.Duration
	for _, g := range e.place.groups {
		gap := e.probes.gap(g, began, time.Now())
		longest = max(longest, gap)
		gaps = append(gaps, fmt.Sprintf("%s %.2fs", g, gap.Seconds()))
	}
	e.say("seed %d fault %d: %s: %s; no send to %s; at rest after %v; %d operations", e.seed, e.done+1, f.name, strings.Join(d.did, ", "), strings.Join(gaps, ", "),
		time.Since(over).Round(10*time.Millisecond), e.load.Recorder().Done()-before)
	e.gaps[f.name] = append(e.gaps[f.name], longest)
	if err != nil {
		return err
	}
	if err := e.check(false); err != nil {
		return err
	}
	if *limitFlag > 0 && longest > *limitFlag {
		return fmt.Errorf("nothing could be sent to a group for %v", longest)
	}
	e.done++
	return nil
}

// rest waits until all is well, and sends go to all groups.
func (e *episode) rest() error {
	over := time.Now()
	if err := e.place.rest(); err != nil {
		return err
	}
	return eventually(restTime, func() error {
		for _, g := range e.place.groups {
			if !e.probes.since(g, over) {
				return fmt.Errorf("nothing can be sent to group %s", g)
			}
		}
		return nil
	})
}

// alarms are errors that faults may cause: the library's word for a leader that lost its place, and what an operator is to
// hear when all who could lead a group are away, or a disk is full.
var alarms = []string{"part=raft", "broker group without a master", "requests are refused until enough replicas confirm", "no space left on device"}

// check judges the history so far, what the controllers showed, and what the processes say.
func (e *episode) check(drained bool) error {
	for _, line := range e.place.complaints(alarms...) {
		return fmt.Errorf("a process complains: %s", line)
	}
	bad := history.Check(e.load.Recorder().Snapshot(), e.load.Rules(drained))
	for _, v := range bad {
		e.say("  %s", v)
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d promises were broken: %s", len(bad), bad[0])
	}
	return judge(e.place.watch.sights())
}

// keep writes the histories of an episode that failed beside its data.
func (e *episode) keep() error {
	if e.load == nil {
		return nil
	}
	write := func(name string, do func(*os.File) error) error {
		f, err := os.Create(filepath.Join(e.dir, name))
		if err != nil {
			return err
		}
		return errors.Join(do(f), f.Close())
	}
	return errors.Join(
		write("history.jsonl", func(f *os.File) error { return history.Write(f, e.load.Recorder().Snapshot()) }),
		write("controllers.jsonl", func(f *os.File) error {
			enc := json.NewEncoder(f)
			seen, _ := e.place.watch.sights()
			for _, s := range seen {
				if err := enc.Encode(map[string]any{"controller": s.controller, "stream": s.stream, "at_ms": s.at.Milliseconds(), "index": s.index, "group": s.shard}); err != nil {
					return err
				}
			}
			return nil
		}),
	)
}
