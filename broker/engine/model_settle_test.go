package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// TestModelSettles: a world at rest has seen the dead letters of every group, also if those of two groups come at
// once and nobody has made topics for them yet. Else one is found later, when its group is gone (seed
// 1796060505157330962).
func TestModelSettles(t *testing.T) {
	w := newWorld(t, 1)
	defer func() { w.b.kill() }()
	w.did = append(w.did, "settle")
	subs := map[string]int{}
	for i, s := range worldSubs {
		subs[s.group] = i
	}
	w.send("normal", w.message(brokerapi.Normal))
	w.send("fifo", w.message(brokerapi.FIFO))
	lapse := func(names ...string) {
		for _, name := range names {
			w.receiveBy(subs[name], false)
		}
		w.b.clock.advance(21 * time.Second)
		w.m.Step(w.b.clock.Lease(), w.b.clock.Wall())
	}
	lapse("g-fifo") // it has one attempt more
	lapse("g-few", "g-fifo")
	lapse("g-few", "g-fifo")
	require.Len(t, w.m.Deaths, 2)
	w.settle()
	require.Empty(t, w.m.Deaths)
	for _, name := range []string{deadPrefix + "g-few", deadPrefix + "g-fifo"} {
		require.EqualValues(t, 1, w.m.Seen(brokerapi.TopicID(w.topics[name].ID), 0), name)
	}
}
