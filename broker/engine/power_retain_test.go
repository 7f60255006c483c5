package engine

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

// TestPowerCutInRetention cuts the power at each operation of the disk in a step of retention in turn. What
// somebody waits for is there afterwards, whatever of the step has happened, also on the log alone.
//
//fault:power the power goes at each operation of the disk in a step of retention; some starts find the log alone => delayed, half, leased, waiting and late messages are all there, acked ones stay away
func TestPowerCutInRetention(t *testing.T) {
	base, clock := retained(t)
	every := 1
	if testing.Short() || raceSlows > 1 {
		every = 5
	}
	for cut := 1 + rand.New(rand.NewPCG(testseed.First(t), 1)).IntN(every); ; cut += every {
		b := newBench(t, Options{})
		b.fs, b.clock = base.Crash(rand.New(rand.NewPCG(1, 1)), 2), clock.at()
		b.mustOpen()
		fs := b.fs.(*memfs.FS)
		fs.CutPower(cut)
		_, err := b.engine.Retain(t.Context(), retain.Limits{Age: 2 * time.Second})
		b.kill()
		fs.CutPower(0)
		_, gone := fs.Stat("data")
		hit := errors.Is(gone, memfs.ErrPowerLoss)
		for i, keep := range []float64{0, 0.5, 1, 0.5} {
			rng := rand.New(rand.NewPCG(uint64(cut), uint64(i)))
			b.fs, b.clock = fs.Crash(rng, keep), clock.at()
			if i >= 2 {
				b.forget()
			}
			stillThere(b, fmt.Sprintf("cut %d, keep %v (%d)", cut, keep, i))
			b.kill()
		}
		if !hit {
			require.NoError(t, err)
			require.Greater(t, cut, 8)
			t.Logf("%d operations", cut-1)
			return
		}
	}
}

func (c *fakeClock) at() *fakeClock {
	d := new(fakeClock)
	d.ms.Store(c.ms.Load())
	return d
}

// retained is the disk of a broker of which somebody waits for messages in its oldest segments.
func retained(t *testing.T) (*memfs.FS, *fakeClock) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "acked", "leased", "waiting")
	for _, m := range b.mustPop(topicSync, groupA) {
		switch m.body {
		case "acked":
			require.Equal(t, []error{nil}, b.ack(topicSync, groupA, m))
		case "waiting":
			require.Equal(t, []error{nil}, b.change(topicSync, groupA, 20*time.Second, brokerapi.ChangeLease, m))
		}
	}
	b.sendAll(topicSync, b.later("delayed", time.Minute), b.later("late", 3500*time.Millisecond))
	b.mustHalf("half", "half")
	b.mustHalf("committed", "committed")
	for i := range 5 {
		was := len(b.engine.log.Segments())
		for len(b.engine.log.Segments()) == was {
			b.mustSend(topicAsync, strings.Repeat("x", 200_000))
		}
		b.clock.advance(time.Second)
		if i == 3 {
			require.NoError(t, b.end("committed", true))
		}
		b.settle()
	}
	b.mustSend(topicSync, "last")
	require.NoError(t, b.engine.log.Sync())
	b.kill()
	return b.fs.(*memfs.FS), b.clock
}

// stillThere starts and looks for everything.
func stillThere(b *bench, msg string) {
	require.NoError(b.t, b.open(), msg)
	require.NoError(b.t, b.end("half", true), msg)
	b.clock.advance(2 * time.Minute)
	b.settle()
	got := b.drain(topicSync, groupA)
	slices.Sort(got)
	require.Equal(b.t, []string{"committed", "delayed", "half", "last", "late", "leased", "waiting"}, got, msg)
	require.Empty(b.t, b.drain(topicSync, groupA), msg)
}

// contents are the files of the directory, of the log, and of the checkpoints.
func contents(fs vfs.FS) map[string]string {
	all := map[string]string{}
	for _, dir := range []string{"data", "data/log", "data/checkpoint"} {
		for _, name := range must(fs.List(dir)) {
			if path := dir + "/" + name; !must(fs.Stat(path)).Dir {
				all[path] = string(must(vfs.ReadFile(fs, path)))
			}
		}
	}
	return all
}

// TestOldestSegmentMissing: what nobody deleted is missed, and is not taken for what retention has deleted.
//
//fault:damage the oldest file of the log is missing, and retention has not deleted it => refused with positions; with on-damage skip the start goes on, and so does the next one
func TestOldestSegmentMissing(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		b := retaining(t)
		for range 4 {
			b.fill(topicSync)
		}
		if deleted {
			b.retain(3 * time.Hour)
		}
		require.NoError(t, b.engine.checkpointBehind(t.Context(), b.engine.log.Durable()))
		first := b.engine.log.Segments()[0]
		_, err := b.engine.Close()
		require.NoError(t, err)
		require.NoError(t, b.store.CloseClean(1))
		b.engine = nil
		require.NoError(t, b.fs.Remove(fmt.Sprintf("data/log/%020d", first.Base)))
		before := contents(b.fs)
		require.Contains(t, before, "data/clean.json")
		err = b.open()
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
		require.True(t, maps.Equal(before, contents(b.fs)), "a start that is refused changes no file")
		require.ErrorContains(t, err, fmt.Sprintf("only what lies before position %d", first.Base))
		b.skip = true
		b.mustOpen()
		require.NoError(t, b.engine.checkpointBehind(t.Context(), b.engine.log.Durable()))
		b.kill()
		b.restartFS()
		b.skip = false
		b.mustOpen()
		b.mustSend(topicSync, "more")
		require.Contains(t, b.drain(topicSync, groupA), "more")
	}
}
