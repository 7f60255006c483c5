package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

// TestNoSpaceMatrix lets each kind of file find no space in each operation that needs some, for a while and
// from different moments on. The engine lives, what was answered holds, and it takes everything again by
// itself when there is space.
//
//fault:space each kind of file (log, mark, consume queues, index, duplicate window, checkpoint) finds no space in each operation that needs some (create, write, short write, allocate, rename) => the broker lives, answers hold also over a power cut, and everything is taken again without a restart
func TestNoSpaceMatrix(t *testing.T) {
	seed := testseed.First(t)
	struck := map[string]bool{}
	for _, path := range []string{"data/log/", "data/log/durable", "data/queue/", "data/index/", "data/dedup/", "data/checkpoint/"} {
		for _, f := range []faultfs.Fault{
			{Op: faultfs.OpCreate}, {Op: faultfs.OpAllocate}, {Op: faultfs.OpRename}, {Op: faultfs.OpWrite}, {Op: faultfs.OpWrite, Short: true},
		} {
			if path == "data/log/" && f.Op == faultfs.OpWrite {
				continue // inside a file that has its blocks: what fails there is storage, see TestStorageFaults
			}
			for _, nth := range []int{1, 2} {
				f.Path, f.Nth, f.Always, f.Err = path, nth, true, syscall.ENOSPC
				name := fmt.Sprintf("%s %v short=%v", path, f.Op, f.Short)
				if noSpace(t, seed, f) {
					struck[name] = true
				}
				if t.Failed() {
					t.Fatalf("%s, from the %d. on", name, nth)
				}
			}
		}
	}
	require.GreaterOrEqual(t, len(struck), 16, "%v", struck)
}

func noSpace(t *testing.T, seed uint64, fault faultfs.Fault) bool {
	rng := rand.New(rand.NewPCG(seed, 13))
	mem := memfs.New()
	fs := faultfs.Wrap(mem)
	b := newBench(t, Options{CheckpointBytes: 200 << 10, TurnBytes: 64 << 10})
	b.fs = fs
	b.mustOpen()
	defer b.kill()
	b.define()
	c := &chaos{b: b, rng: rng, all: map[string]*promise{}, count: map[string]int{}, body: 12_000}
	load := func(n int) {
		for i := range n {
			c.step()
			if i%8 == 0 {
				b.engine.LookAtSpace()
			}
		}
	}
	if fault.Nth > 1 {
		load(20)
	}
	fs.Set(fault)
	load(240 / min(2, raceSlows))
	for more := 0; more < 8 && fault.Path == "data/log/" && !fs.Hit(); more++ {
		load(60) // the next file may have been made before the fault was set: fill one
	}
	require.NoError(t, b.engine.Failure())
	hit := fs.Hit()
	fs.Clear()
	b.recovers()
	load(20)
	require.NoError(t, b.engine.Failure())
	b.kill()
	b.fs = mem.Crash(rng, 0.5)
	c.held = nil
	b.mustOpen()
	c.verify()
	return hit
}

// recovers waits until messages are taken and a checkpoint can be saved.
func (b *bench) recovers() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		b.clock.advance(time.Minute)
		s := b.engine.LookAtSpace()
		_, err := b.send(topicAsync, "probe")
		if err != nil {
			require.True(b.t, mqerr.Is(err, mqerr.DiskFull), "%v", err)
		}
		return err == nil && s.Level == space.Plenty && s.Seen.Stuck == nil
	}, 20*time.Second, 10*time.Millisecond)
}

// TestDiskOfChangingSize fills disks of random sizes with a load, gives and takes space, and cuts the power at
// the end.
//
//fault:space the disk is really full again and again, at random moments => the broker lives, answers hold also over a power cut, everything is taken again without a restart
func TestDiskOfChangingSize(t *testing.T) {
	first := testseed.First(t)
	for i := range uint64(6) {
		t.Run(fmt.Sprintf("seed=%d", first+i), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(first+i, 17))
			mem := memfs.New()
			b := newBench(t, Options{CheckpointBytes: 200 << 10, TurnBytes: 64 << 10})
			b.fs = mem
			b.mustOpen()
			b.define()
			c := &chaos{b: b, rng: rng, all: map[string]*promise{}, count: map[string]int{}, body: 30_000}
			for range 4 {
				mem.SetBudget(max(1, mem.Used()+rng.Int64N(3<<20)-1<<20))
				for i := range 60 {
					c.step()
					if i%10 == 0 {
						b.engine.LookAtSpace()
					}
				}
				require.NoError(t, b.engine.Failure())
			}
			mem.SetBudget(0)
			b.recovers()
			b.kill()
			b.fs = mem.Crash(rng, 0.5)
			c.held = nil
			b.mustOpen()
			c.verify()
		})
	}
}

// TestWhoIsRefused fills a disk: producers are refused first, consumers go on and are refused before what
// retention needs is used, with nothing done; all of it comes back by itself.
//
//fault:space the disk is full => producers are refused first, consumers later, and nothing is stored or changed then; retention still has room; both are taken again by themselves
func TestWhoIsRefused(t *testing.T) {
	mem := memfs.New()
	b := newBench(t, Options{})
	b.fs = mem
	b.mustOpen()
	b.define()
	mem.SetBudget(mem.Used() + 2<<20)
	sent := 0
	full := func(err error) bool {
		if err == nil {
			return false
		}
		require.True(t, mqerr.Is(err, mqerr.DiskFull), "%v", err)
		return true
	}
	for ; ; sent++ {
		b.engine.LookAtSpace()
		if _, err := b.send(topicSync, fmt.Sprint(sent, ".", strings.Repeat("x", 10_000))); full(err) {
			require.ErrorContains(t, err, "nothing was stored")
			break
		}
		require.Less(t, sent, 1000)
	}
	for b.engine.LookAtSpace().Level < space.NoProducers { // smaller ones still fit
		b.mustSend(topicSync, fmt.Sprint("small", sent))
		sent++
	}
	require.Equal(t, space.NoProducers, b.engine.LookAtSpace().Level)
	_, err := b.send(topicSync, "one byte")
	require.True(t, full(err))
	require.Positive(t, b.engine.SpaceRefused(space.Producer))

	held := b.mustPop(topicSync, groupA)
	require.NotEmpty(t, held)
	changes := 0
	for ; ; changes++ {
		m := &held[changes%len(held)]
		h := m.handle()
		r, err := wait(t, func(done func(*brokerapi.ChangeReply, error)) {
			b.proxy.Change(&brokerapi.ChangeRequest{
				Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Handles: []brokerapi.Handle{h}, Invisible: time.Hour,
			}, done)
		})
		if full(err) {
			require.ErrorContains(t, err, "nothing was changed")
			break
		}
		require.NoError(t, r.Errors[0])
		require.Less(t, changes, 100_000)
		if changes%100 == 0 {
			b.engine.LookAtSpace()
		}
	}
	t.Logf("%d messages were stored, and then %d leases changed", sent, changes)
	require.Greater(t, changes, 100)
	require.Equal(t, space.NoConsumers, b.engine.LookAtSpace().Level)
	_, err = wait(t, func(done func(*brokerapi.AckReply, error)) {
		b.proxy.Ack(&brokerapi.AckRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Handles: []brokerapi.Handle{held[0].handle()}}, done)
	})
	require.True(t, full(err))
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
		require.True(t, w.hasSpace(space.Retention, int(w.e.o.Space.Retention)/4), "what makes room goes on")
	}))
	require.NoError(t, b.engine.Failure())

	mem.SetBudget(0)
	require.Eventually(t, func() bool { return b.engine.LookAtSpace().Level == space.Plenty }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, b.ack(topicSync, groupA, held[0])[0])
	b.mustSend(topicSync, "again")
	b.kill()
	mem.Restart()
	b.mustOpen()
	b.clock.advance(2 * time.Hour)
	seen := map[string]bool{held[0].body: true}
	for {
		ms, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Invisible: time.Hour})
		require.NoError(t, err)
		if len(ms) == 0 {
			break
		}
		for _, m := range ms {
			require.False(t, seen[m.body], "twice")
			seen[m.body] = true
		}
	}
	require.Len(t, seen, sent+1, "each stored message, the one after, and no refused one")
}

// TestDiskMarks: the watermarks of the disk refuse producers alone, with the figures, and end by themselves.
func TestDiskMarks(t *testing.T) {
	mem := memfs.New()
	b := newBench(t, Options{})
	b.fs = mem
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "before")
	mem.SetUsage(vfs.Usage{Total: 100 << 30, Free: 7 << 30})
	require.Equal(t, space.NoProducers, b.engine.LookAtSpace().Level)
	_, err := b.send(topicSync, "refused")
	require.True(t, mqerr.Is(err, mqerr.DiskFull), "%v", err)
	require.ErrorContains(t, err, "93 % used and has 7168 MiB free")
	require.ErrorContains(t, err, "--space-producers-used")
	held := b.mustPop(topicSync, groupA)
	require.Len(t, held, 1)
	require.NoError(t, b.ack(topicSync, groupA, held...)[0])
	mem.SetUsage(vfs.Usage{Total: 100 << 30, Free: 1 << 30})
	require.True(t, b.engine.LookAtSpace().Holds)
	mem.SetUsage(vfs.Usage{Total: 100 << 30, Free: 50 << 30})
	require.Equal(t, space.State{Seen: b.engine.LookAtSpace().Seen}, b.engine.Space())
	b.mustSend(topicSync, "after")
	require.Len(t, b.mustPop(topicSync, groupA), 1)
}
