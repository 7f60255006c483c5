package engine

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

// TestEveryFault makes the nth operation of each kind fail, from the start of a broker on, while a small
// load runs, and cuts the power afterwards. Whatever was answered holds, the end is told once, and a later
// start recovers.
//
//fault:storage each operation of the disk fails once, from the start of a broker on (write, short write, fdatasync, sync of a directory, create, allocate, rename, remove, open, read, map, list, stat), and the power goes afterwards => every answer holds, the end is told once, and a later start recovers
func TestEveryFault(t *testing.T) {
	seed := testseed.First(t)
	for _, f := range []faultfs.Fault{
		{Op: faultfs.OpWrite},
		{Op: faultfs.OpWrite, Short: true},
		{Op: faultfs.OpSync},
		{Op: faultfs.OpSyncDir},
		{Op: faultfs.OpCreate},
		{Op: faultfs.OpAllocate},
		{Op: faultfs.OpRename},
		{Op: faultfs.OpRemove},
		{Op: faultfs.OpOpen},
		{Op: faultfs.OpRead},
		{Op: faultfs.OpMap},
		{Op: faultfs.OpList},
		{Op: faultfs.OpStat},
	} {
		t.Run(fmt.Sprintf("%s short=%v", f.Op, f.Short), func(t *testing.T) {
			runs, ended, stride := 0, 0, max(1, raceSlows/2)
			if f.Op == faultfs.OpWrite || f.Op == faultfs.OpSync {
				stride = 5 * raceSlows // there are many
			}
			for f.Nth = 1 + rand.New(rand.NewPCG(seed, 1)).IntN(stride); ; f.Nth += stride {
				r := faultRun{seed: seed + uint64(f.Nth), fault: f}
				r.run(t)
				if t.Failed() {
					t.Fatalf("at operation %d", f.Nth)
				}
				if !r.hit {
					break
				}
				runs++
				if r.ended {
					ended++
				}
			}
			t.Logf("%d faults, %d of them ended the engine", runs, ended)
		})
	}
}

// faultRun is one run of the load with one fault.
type faultRun struct {
	seed  uint64
	fault faultfs.Fault
	hit   bool
	ended bool
}

func (r *faultRun) run(t *testing.T) {
	rng := rand.New(rand.NewPCG(r.seed, 11))
	mem := memfs.New()
	fs := faultfs.Wrap(mem)
	var failed atomic.Int32
	b := newBench(t, Options{CheckpointBytes: 200 << 10, TurnBytes: 64 << 10, Events: Events{Failed: func(error) { failed.Add(1) }}})
	b.fs = fs
	b.mustOpen()
	b.define()
	c := &chaos{b: b, rng: rng, all: map[string]*promise{}, count: map[string]int{}, body: 60_000}
	for range 20 {
		c.step()
	}
	b.kill()
	mem.Restart()
	c.held = nil

	fs.Set(r.fault)
	if b.open() == nil {
		for range 40 {
			c.step()
			if b.engine.Failure() != nil {
				break
			}
		}
		r.ended = b.engine.Failure() != nil
		if r.ended {
			r.refused(b)
			<-b.engine.done // it tells after it has answered
		}
		require.Equal(t, r.ended, failed.Load() == 1, "told %d times", failed.Load())
	}
	if b.engine != nil {
		b.kill()
	}
	r.hit = fs.Hit()
	fs.Clear()
	b.fs = mem.Crash(rng, 0.5)
	c.held = nil
	b.mustOpen()
	c.verify()
	b.kill()
}

// refused checks what an engine that has ended says.
func (r *faultRun) refused(b *bench) {
	b.t.Helper()
	for range 2 {
		_, err := b.send(topicAsync, "late")
		require.True(b.t, mqerr.Is(err, mqerr.Unavailable), "%v", err)
		_, _, err = b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA)})
		require.True(b.t, mqerr.Is(err, mqerr.Unavailable), "%v", err)
	}
	_, err := b.engine.Snapshot(b.t.Context(), 1000)
	require.True(b.t, mqerr.Is(err, mqerr.Unavailable), "%v", err)
}
