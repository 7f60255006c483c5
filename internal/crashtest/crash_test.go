package crashtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Rounds of an episode, at most.
var episodeRounds = map[string]int{"dev": 25, "cluster": 12}

// fewRounds are those of a run without flags.
var fewRounds = map[string]int{"dev": 6, "cluster": 3}

// TestKillDev kills a whole service in one process, again and again, under calls of every kind.
//
//fault:kill perigee dev is killed (kill -9) at random, in a segment roll, in a checkpoint, in a step of retention, in its recovery, twice in a row, under calls of every kind; some starts find the log without the files of any view => every answer holds: see the rules in internal/crashtest/history
func TestKillDev(t *testing.T) { campaign(t, "dev") }

// TestKillCluster kills controller, brokers and proxies of a cluster, alone and together.
//
//fault:kill controller, brokers and proxies of a cluster are killed (kill -9), alone and together, under calls of every kind => every answer holds; a message whose send has no answer is stored at most once for each try
func TestKillCluster(t *testing.T) { campaign(t, "cluster") }

// campaign runs episodes of a mode until the rounds are done or the time is over.
func campaign(t *testing.T, mode string) {
	if *modeFlag != "" && *modeFlag != mode {
		t.Skip("not asked for")
	}
	rounds := fewRounds[mode]
	if *roundsFlag > 0 {
		rounds = *roundsFlag
	} else {
		t.Parallel() // most of a short run is waiting for leases
	}
	began, done, failed, episodes := time.Now(), 0, 0, 0
	until := time.Time{}
	if *timeFlag > 0 {
		until = began.Add(*timeFlag)
	}
	say := func(format string, args ...any) {
		if *roundsFlag > 0 { // to be read while it goes on
			fmt.Printf(time.Now().Format("15:04:05 ")+format+"\n", args...)
			return
		}
		t.Logf(format, args...)
	}
	for seed := firstSeed(); done < rounds; seed++ {
		if episodes > 0 && !until.IsZero() && time.Now().After(until) {
			break
		}
		episodes++
		e := &episode{mode: mode, seed: seed, rounds: min(rounds-done, episodeRounds[mode]), until: until, say: say, dir: directory(t, mode, seed)}
		err := e.run()
		done += e.done
		if err == nil {
			if err := os.RemoveAll(e.dir); err != nil {
				t.Fatal(err)
			}
			continue
		}
		failed++
		t.Errorf("%s seed %d round %d: %v", mode, seed, e.done+1, err)
		if err := e.keep(); err != nil {
			t.Error(err)
		}
		say("FAILED %s seed %d round %d: %v\n  data, logs and history: %s\n  again: make crash MODE=%s SEED=%d ROUNDS=%d", mode, seed, e.done+1, err, e.dir, mode, seed, e.rounds)
		if failed >= 5 {
			break
		}
	}
	say("%s: %d rounds in %d episodes and %v, %d episodes failed", mode, done, episodes, time.Since(began).Round(time.Second), failed)
	if done == 0 && failed == 0 {
		t.Error("no round was done")
	}
}

// directory is where an episode keeps its data.
func directory(t *testing.T, mode string, seed uint64) string {
	t.Helper()
	base := *keepFlag
	if base == "" {
		base = os.TempDir()
	}
	dir := filepath.Join(base, fmt.Sprintf("perigee-crash-%s-%d", mode, seed))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
