package crashtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perigee-mq/perigee/internal/crashtest/history"
	"github.com/perigee-mq/perigee/internal/crashtest/load"
)

// episode is a number of rounds on one data directory, with one load.
type episode struct {
	mode   string
	seed   uint64
	rounds int
	until  time.Time // no round begins after it; zero: no bound
	dir    string
	say    func(format string, args ...any)

	place *place
	load  *load.Load
	done  int // rounds
}

// run returns the first thing that is wrong.
func (e *episode) run() (err error) {
	if e.place, err = newPlace(e.mode, e.dir, e.seed%2 == 1); err != nil {
		return err
	}
	defer e.place.end()
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
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); e.load.Run(ctx) }()
	err = e.kills()
	stop()
	<-ended
	if err != nil {
		return err
	}
	began := time.Now()
	if err := e.load.Drain(context.Background()); err != nil {
		return err
	}
	e.say("%s seed %d: everything was read in %v; %s", e.mode, e.seed, time.Since(began).Round(time.Millisecond), e.place.retained())
	e.say("%s seed %d: calls by outcome, OK/FAIL/UNKNOWN: %s", e.mode, e.seed, summary(e.load.Recorder().Snapshot()))
	return e.check(true)
}

// summary counts calls by kind and outcome.
func summary(ops []history.Op) string {
	n := map[history.Kind][3]int{}
	for i := range ops {
		c := n[ops[i].Kind]
		c[(ops[i].Outcome+2)%3]++ // OK, FAIL, UNKNOWN
		n[ops[i].Kind] = c
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%s %d/%d/%d", k, n[k][0], n[k][1], n[k][2]))
	}
	return strings.Join(parts, ", ")
}

// kills goes through the rounds.
func (e *episode) kills() error {
	rng := rand.New(rand.NewPCG(e.seed, 0))
	before := int64(0)
	for i := range e.rounds {
		if i > 0 && !e.until.IsZero() && time.Now().After(e.until) {
			break
		}
		what, back, err := e.place.round(rng)
		if err != nil {
			return err
		}
		n := e.load.Recorder().Done()
		e.say("%s seed %d round %d: %s; %d operations; back after %v", e.mode, e.seed, i+1, what, n-before, back.Round(time.Millisecond))
		before = n
		if err := e.check(false); err != nil {
			return err
		}
		e.done++
	}
	pause(500 * time.Millisecond) // it works after the last kill, too
	return nil
}

// check judges the history so far, and what the processes say.
func (e *episode) check(drained bool) error {
	ops := e.load.Recorder().Snapshot()
	for _, p := range e.place.procs {
		for _, line := range p.Complaints() {
			return fmt.Errorf("a process complains: %s", line)
		}
	}
	bad := history.Check(ops, e.load.Rules(drained))
	for _, v := range bad {
		e.say("  %s", v)
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d promises were broken: %s", len(bad), bad[0])
	}
	return nil
}

// keep writes the history of an episode that failed beside its data.
func (e *episode) keep() error {
	if e.load == nil {
		return nil
	}
	f, err := os.Create(filepath.Join(e.dir, "history.jsonl"))
	if err != nil {
		return err
	}
	if err := history.Write(f, e.load.Recorder().Snapshot()); err != nil {
		return err
	}
	return f.Close()
}
