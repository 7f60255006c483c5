package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

// withLevels adds a topic of three levels to a bench with lite topics and dead letters of group b.
func withLevels(b *bench) {
	b.t.Helper()
	b.defineLite()
	b.defineDead()
	require.NoError(b.t, b.engine.Define(b.t.Context(), &Definitions{
		Topics:  []topic.Definition{{ID: topicSteps, Name: "levels", Type: topic.Priority, Queues: 3, Flush: topic.FlushSync, Version: 30}},
		Version: 30,
	}))
}

const topicSteps record.TopicID = 30

// placed sends a message with a priority and a lite topic among its system properties.
func (b *bench) placed(t record.TopicID, body, lite string, priority int32) {
	b.t.Helper()
	m := message(body)
	if lite != "" {
		m.Sys = protowire.AppendString(protowire.AppendTag(m.Sys, liteTopicField, protowire.BytesType), lite)
	}
	m.Sys = protowire.AppendVarint(protowire.AppendTag(m.Sys, priorityField, protowire.VarintType), uint64(priority))
	b.sendAll(t, m)
}

// TestRedriveToLevels: a message that goes to a topic of levels goes to its own one.
func TestRedriveToLevels(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	withLevels(b)
	for i, body := range []string{"low", "middle", "high", "higher"} {
		b.placed(topicDead, body, "", int32(i))
	}
	r := b.redrive(brokerapi.RedriveRequest{Max: 100, To: brokerapi.TopicID(topicSteps)})
	require.Equal(t, 4, r.Redriven, "%v", r.Failed)
	require.Equal(t, []string{"high", "higher", "middle", "low"}, bodies(b.mustPop(topicSteps, groupA)))
	b.sameAgain()
}

// TestRedriveToLite: a message goes to the lite topic that it is for, which may have gone; one without stays.
func TestRedriveToLite(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	withLevels(b)
	b.placed(topicDead, "for x", "x", 0)
	b.placed(topicDead, "for nobody", "", 0)
	b.placed(topicDead, "for x, too", "x", 0)
	b.subscribeLite(groupLite, "client", "x")
	r := b.redrive(brokerapi.RedriveRequest{Max: 100, To: brokerapi.TopicID(topicLite)})
	require.Equal(t, []any{2, int64(1)}, []any{r.Redriven, r.Left})
	require.Len(t, r.Failed, 1)
	require.Contains(t, r.Failed[0], "no lite topic")
	require.Equal(t, []string{"for x", "for x, too"}, b.drainLite(groupLite, "client"))
	b.sameAgain()
}

// TestRedriveToGroups: what has a message group goes to the queue of the group.
func TestRedriveToGroups(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	withLevels(b)
	m := message("grouped")
	m.GroupHash, m.Queue = 7, 0
	b.sendAll(topicDead, m)
	require.Equal(t, 1, b.redrive(brokerapi.RedriveRequest{Max: 100, To: brokerapi.TopicID(topicSync)}).Redriven)
	ms := b.mustPop(topicSync, groupA)
	require.Equal(t, []string{"grouped"}, bodies(ms))
	require.EqualValues(t, 7%4, ms[0].Queue)
}

// TestRedriveGivenUp: transactions that nobody has ended go to the topic that they were for, and each is met by
// a redrive in steps, in whatever order they were given up.
func TestRedriveGivenUp(t *testing.T) {
	for _, max := range []int{1, 100} {
		b := newBench(t, Options{Txn: TxnOptions{CheckAfter: time.Hour, CheckLimit: 1, GiveUpAfter: time.Minute}})
		b.mustOpen()
		b.define()
		require.NoError(t, b.engine.Define(t.Context(), &Definitions{
			Topics:  []topic.Definition{{ID: topicDead, Name: txnPrefix + "sync", Queues: 1, Flush: topic.FlushSync, Version: 9}},
			Version: 9,
		}))
		b.mustHalf("slow", "slow")
		fast := half("fast", "fast")
		fast.Messages[0].CheckAfter, fast.Messages[0].Queue, fast.Messages[0].GroupHash = time.Second, 2, 6
		_, err := b.sendReq(fast)
		require.NoError(t, err)
		b.givenUp(1, 2*time.Minute)
		b.givenUp(2, 2*time.Hour)
		before, after, moved := b.redrive(brokerapi.RedriveRequest{}).Left, brokerapi.LogPos(0), 0
		require.EqualValues(t, 2, before)
		for {
			r := b.redrive(brokerapi.RedriveRequest{Max: max, After: after})
			require.Empty(t, r.Failed)
			moved += r.Redriven
			if after = r.Next; after == 0 {
				break
			}
		}
		require.Equal(t, 2, moved)
		ms := b.mustPop(topicSync, groupA)
		require.ElementsMatch(t, []string{"slow", "fast"}, bodies(ms))
		for _, m := range ms {
			require.Equal(t, brokerapi.Transaction, m.Type)
			require.Zero(t, m.DeliverAt)
			require.Empty(t, m.User)
			require.Empty(t, m.Sys)
			if m.body == "fast" {
				require.EqualValues(t, 2, m.Queue)
			}
		}
		require.Empty(t, b.mustPop(topicDead, groupA))
		require.Error(t, b.end("slow", true))
		b.sameAgain()
	}
}

// givenUp waits until n transactions are given up, after a while.
func (b *bench) givenUp(n int64, d time.Duration) {
	b.t.Helper()
	b.clock.advance(d)
	require.Eventually(b.t, func() bool {
		require.NoError(b.t, b.engine.call(b.t.Context(), func(*writer) {}))
		return b.engine.Counts().GivenUp.Load() == n
	}, 20*time.Second, time.Millisecond)
	b.settle()
}

// TestRedriveBackToLite: a dead letter of a lite topic goes back to it, behind what is there.
func TestRedriveBackToLite(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineLite()
	require.NoError(t, b.engine.Define(t.Context(), &Definitions{
		Topics:  []topic.Definition{{ID: topicDead, Name: deadPrefix + "lite", Queues: 1, Flush: topic.FlushSync, Version: 9}},
		Version: 9,
	}))
	b.sendLite("x", "dead", "alive")
	b.subscribeLite(groupLite, "client", "x")
	ms, _ := b.popLite(groupLite, "client", 1)
	require.Equal(t, []string{"dead"}, bodies(ms))
	errs, err := b.forward(topicLite, groupLite, ms[0])
	require.NoError(t, err)
	require.NoError(t, errs[0])
	require.Equal(t, 1, b.redrive(brokerapi.RedriveRequest{Max: 100}).Redriven)
	require.Equal(t, []string{"alive", "dead"}, b.drainLite(groupLite, "client"))
	b.sameAgain()
}
