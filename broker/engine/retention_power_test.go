package engine

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

var retentionCuts = flag.Int("retention.cuts", 1, "how many power cuts TestRetentionPowerCut makes at each operation of a step")

// kept is what a broker has promised before a step of retention.
type kept struct {
	b    *bench
	held []got
	due  brokerapi.Message
	sent brokerapi.SendResult
}

// TestRetentionPowerCut cuts the power at operations on the disk of a step, with -retention.cuts at each: what was promised holds,
// whether the views come back from a checkpoint or from the log, and the next step finishes.
//
//fault:power the power goes at any operation on the disk of a step of retention; then the views are there or not => delayed, half and leased messages and all that is not old are there; the next step finishes
func TestRetentionPowerCut(t *testing.T) {
	seed := testseed.First(t)
	rng := rand.New(rand.NewPCG(seed, 5))
	whole, finished := 0, 0
	step := 1
	if *retentionCuts == 1 {
		step = 4 // TestPowerCutInRetention looks at each
	}
	for nth := 1 + rng.IntN(step); ; nth += step {
		for range *retentionCuts {
			if finished += stepCut(t, rng, nth); t.Failed() {
				t.Fatalf("operation %d", nth)
			}
			whole++
		}
		if finished > 2**retentionCuts {
			break
		}
	}
	t.Logf("%d power cuts, %d of them behind the step", whole, finished)
}

// stepCut cuts the power at the nth operation of a step, and returns 1 if the step was over by then.
func stepCut(t *testing.T, rng *rand.Rand, nth int) (over int) {
	fs := memfs.New()
	b := &bench{t: t, fs: fs, clock: newClock(), ready: make(chan brokerapi.Ready, 1024)}
	b.opt = Options{Txn: TxnOptions{GiveUpAfter: 1000 * days, CheckAfter: 900 * days}}
	defer func() {
		if b.engine != nil {
			b.kill()
		}
	}()
	b.mustOpen()
	b.define()
	k := &kept{b: b, due: b.later("due", 40*days)}
	b.mustSend(topicSync, "held", "held too")
	out, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Max: 2, Invisible: 30 * days})
	require.NoError(t, err)
	k.held = out
	k.sent = b.sendAll(topicSync, k.due)[0]
	b.mustHalf("half", "committed")
	b.mustHalf("late", "committed before")
	for range 3 {
		b.fill(topicAsync)
	}
	require.NoError(t, b.end("late", true))
	b.mustSend(topicSync, "recent")
	limits := retain.Limits{Age: 90 * time.Minute}
	fs.CutPower(nth)
	if _, err := b.engine.Retain(t.Context(), limits); err == nil {
		over = 1
	}
	fs.CutPower(1)
	b.kill()
	fs = fs.Crash(rng, []float64{0, 0.5, 1}[rng.IntN(3)])
	b.fs = fs
	if rng.IntN(2) == 0 {
		b.forget()
	}
	b.mustOpen()
	k.check()
	if rng.IntN(2) == 0 {
		b.rebuilt()
	}
	if p, err := b.engine.Retain(t.Context(), limits); over == 0 {
		require.NoError(t, err)
		require.Contains(t, []retain.Why{retain.Goes, retain.Young, retain.Only}, p.Why)
	}
	b.rebuilt()
	k.finish()
	return over
}

// check looks at what is there right after the power came back.
func (k *kept) check() {
	b := k.b
	require.Equal(b.t, []error{nil}, b.ack(topicSync, groupA, k.held[0]))
	id, err := b.recall(topicSync, k.sent.Pos, k.due.DeliverAt+1)
	require.Error(b.t, err, id)
	require.Len(b.t, b.findID(topicSync, string(k.due.ID)), 1)
	got := b.drain(topicSync, groupA)
	require.ElementsMatch(b.t, []string{"committed before", "recent"}, got)
}

// finish sees that all that was promised comes.
func (k *kept) finish() {
	b := k.b
	require.NoError(b.t, b.end("half", true))
	require.Equal(b.t, []string{"committed"}, b.drain(topicSync, groupA))
	require.ElementsMatch(b.t, []string{"committed before", "committed", "recent"}, b.drain(topicSync, groupB))
	b.clock.advance(40 * days)
	b.settle()
	require.ElementsMatch(b.t, []string{"due", k.held[1].body}, b.drain(topicSync, groupA))
	b.rebuilt()
	require.Empty(b.t, b.drain(topicSync, groupA))
}
