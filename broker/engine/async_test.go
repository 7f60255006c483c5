package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// asyncBatch is what one send to the asynchronous topic was answered.
type asyncBatch struct {
	bodies []string
	first  record.Pos
	last   record.Pos
}

// TestAsyncPowerCut cuts the power while messages are sent to an asynchronous topic. What is left is
// everything up to some point, at or behind the last flush, and of no request a part.
//
//fault:power the power goes while messages are sent to an asynchronous topic => everything up to some point at or behind the last flush is there, and of no request a part
func TestAsyncPowerCut(t *testing.T) {
	rounds := 60 / raceSlows
	if testing.Short() {
		rounds = 10
	}
	first := testseed.First(t)
	kept, lost := 0, 0
	for i := range rounds {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			k, l := asyncPowerCut(t, rand.New(rand.NewPCG(seed, 9)))
			kept, lost = kept+k, lost+l
		})
	}
	t.Logf("requests kept %d, lost %d", kept, lost)
	require.Positive(t, kept)
	require.Positive(t, lost, "no cut has cost anything: the test shows nothing")
}

func asyncPowerCut(t *testing.T, rng *rand.Rand) (kept, lost int) {
	fs := memfs.New()
	b := newBench(t, Options{FlushBytes: 20 << 10, FlushInterval: time.Hour, CheckpointBytes: 100 << 10})
	b.fs = fs
	b.mustOpen()
	b.define()
	fs.CutPower(20 + rng.IntN(150))
	var sent []asyncBatch
	for b.engine.Failure() == nil && len(sent) < 300 {
		var a asyncBatch
		for j := range 1 + rng.IntN(5) {
			a.bodies = append(a.bodies, fmt.Sprintf("%d-%d-%s", len(sent), j, make([]byte, rng.IntN(1000))))
		}
		r, err := b.send(topicAsync, a.bodies...)
		if err != nil {
			break
		}
		a.first, a.last = record.Pos(r.Results[0].Pos), record.Pos(r.Results[len(r.Results)-1].Pos)
		sent = append(sent, a)
	}
	durable := b.engine.log.Durable()
	b.kill()
	b.fs = fs.Crash(rng, rng.Float64())
	b.mustOpen()

	found := map[string]int{}
	for {
		ms, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicAsync), Group: brokerapi.GroupID(groupA)})
		require.NoError(t, err)
		if len(ms) == 0 {
			break
		}
		for _, m := range ms {
			found[m.body]++
		}
	}
	for i, a := range sent {
		n := 0
		for _, body := range a.bodies {
			n += found[body]
		}
		switch {
		case n == len(a.bodies) && lost == 0:
			kept++
		case n == 0 && a.first >= durable:
			lost++
		default:
			t.Fatalf("request %d at %d to %d has %d of %d messages after %d lost ones; durable was %d", i, a.first, a.last, n, len(a.bodies), lost, durable)
		}
	}
	return kept, lost
}
