package chaostest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// episodeFaults is how many faults an episode has, at most.
const episodeFaults = 12

// TestChaos does faults of machines and networks to a cluster of processes.
//
//fault:kill controllers, brokers and proxies of a replicated cluster are killed (kill -9), alone, in pairs, by majorities and all together, also the winner of an election => every answer holds, and the cluster comes back by itself
//fault:damage a replica loses its directory, its views or its newest checkpoints under load, a controller its directory => the emptied one is refused under its id until it was taken out, then it comes back and has everything; in the end the logs of all replicas are the same
//fault:space the disk of a replica of a running cluster is full, the master's too => while it leads producers are refused, and what was answered holds; another replica's full disk holds up nobody
//fault:network processes of a cluster cannot reach each other: one, a half, one pair of roles, one direction only => every answer holds; controllers show each broker group's master and SyncStateSet as one sequence
func TestChaos(t *testing.T) {
	began, done, failed, episodes := time.Now(), 0, 0, 0
	until := time.Time{}
	if *timeFlag > 0 {
		until = began.Add(*timeFlag)
	}
	say := func(format string, args ...any) {
		if *faultsFlag > 0 || *listFlag { // to be read while it goes on
			fmt.Printf(time.Now().Format("15:04:05 ")+format+"\n", args...)
			return
		}
		t.Logf(format, args...)
	}
	total, list := *faultsFlag, []string(nil)
	if total == 0 {
		list = short
		if !*listFlag {
			list = short[:2]
		}
		total = len(list)
	}
	if !*caged {
		say("without network namespaces no link is cut")
	}
	gaps := map[string][]time.Duration{}
	for seed := firstSeed(); done < total; seed++ {
		if episodes > 0 && (list != nil || !until.IsZero() && time.Now().After(until)) {
			break
		}
		e := &episode{number: episodes, seed: seed, list: list, faults: min(total-done, episodeFaults), until: until, say: say, dir: directory(t, fmt.Sprint("perigee-chaos-", seed)), gaps: gaps}
		if list != nil {
			e.faults = 0
		}
		episodes++
		err := e.run()
		done += e.done
		if err == nil {
			if err := os.RemoveAll(e.dir); err != nil {
				t.Fatal(err)
			}
			continue
		}
		failed++
		t.Errorf("seed %d fault %d: %v", seed, e.done+1, err)
		if err := e.keep(); err != nil {
			t.Error(err)
		}
		say("FAILED seed %d fault %d: %v\n  data, logs and histories: %s\n  again: make chaos SEED=%d FAULTS=%d", seed, e.done+1, err, e.dir, seed, max(e.faults, 1))
		if failed >= 5 {
			break
		}
	}
	say("time without a successful send to a group:                count   half under       at most")
	for _, name := range slices.Sorted(maps.Keys(gaps)) {
		all := slices.Sorted(slices.Values(gaps[name]))
		say("  %-50s %6d %11.2fs %12.2fs", name, len(all), all[(len(all)-1)/2].Seconds(), all[len(all)-1].Seconds())
	}
	say("%d faults in %d episodes and %v, %d episodes failed", done, episodes, time.Since(began).Round(time.Second), failed)
	if done == 0 && failed == 0 {
		t.Error("no fault was done")
	}
}

// directory is an empty one in which data is kept if something fails.
func directory(t *testing.T, name string) string {
	t.Helper()
	base := *keepFlag
	if base == "" {
		base = os.TempDir()
	}
	dir := filepath.Join(base, name)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
