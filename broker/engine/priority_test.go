package engine

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

const topicLevels record.TopicID = 7

func leveledBench(t *testing.T, levels int) *bench {
	b := newBench(t, Options{})
	b.mustOpen()
	defs := definitions()
	defs.Topics = append(defs.Topics, topic.Definition{ID: topicLevels, Name: "levels", Type: topic.Priority, Queues: levels, Flush: topic.FlushAsync, Version: 4})
	require.NoError(t, b.engine.Define(t.Context(), defs))
	return b
}

// sendLevels sends one request with a message of each priority; the body is the priority.
func (b *bench) sendLevels(priorities ...int32) []brokerapi.SendResult {
	b.t.Helper()
	req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(topicLevels)}
	for _, p := range priorities {
		m := message(strconv.Itoa(int(p)))
		m.Type, m.Priority = brokerapi.Priority, p
		req.Messages = append(req.Messages, m)
	}
	r, err := wait(b.t, func(done func(*brokerapi.SendReply, error)) { b.proxy.Send(req, done) })
	require.NoError(b.t, err)
	return r.Results
}

func (b *bench) popOne() string {
	b.t.Helper()
	ms, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicLevels), Group: brokerapi.GroupID(groupA), Max: 1})
	require.NoError(b.t, err)
	if len(ms) == 0 {
		return ""
	}
	return ms[0].body
}

func TestPriority(t *testing.T) {
	b := leveledBench(t, 4)
	results := b.sendLevels(0, 2, 9, 1, 3, 2)
	var queues []brokerapi.QueueID
	for _, r := range results {
		queues = append(queues, r.Queue)
	}
	require.Equal(t, []brokerapi.QueueID{0, 2, 3, 1, 3, 2}, queues, "one queue for each level, the last one for all above")
	require.Equal(t, []string{"9", "3", "2", "2", "1", "0"}, bodies(b.mustPop(topicLevels, groupA)))
	b.sendLevels(1, 0)
	b.sendLevels(2)
	ms := b.mustPop(topicLevels, groupA)
	require.Equal(t, []string{"2", "1", "0"}, bodies(ms))
	b.change(topicLevels, groupA, 0, brokerapi.ChangeLease, ms...)
	require.Equal(t, []string{"2", "1", "0"}, bodies(b.mustPop(topicLevels, groupA)), "those that come again, too")
	b.sameAfterRestart()
}

// However many messages of a high level there are, the oldest message of all is handed out within eight
// receives.
func TestPriorityStarvesNobody(t *testing.T) {
	b := leveledBench(t, 8)
	b.sendLevels(0, 1)
	var got []string
	for range 20 {
		b.sendLevels(7, 7)
		got = append(got, b.popOne())
	}
	require.Equal(t, "0", got[7])
	require.Equal(t, "1", got[15])
	for i, body := range got {
		if i != 7 && i != 15 {
			require.Equal(t, "7", body, i)
		}
	}
}

// A topic of another type stores priorities without order.
func TestPriorityWithoutLevels(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	m := message("x")
	m.Type, m.Priority = brokerapi.Priority, 3
	r, err := wait(t, func(done func(*brokerapi.SendReply, error)) {
		b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicAsync), Messages: []brokerapi.Message{m}}, done)
	})
	require.NoError(t, err)
	require.Less(t, int(r.Results[0].Queue), 2)
	require.Equal(t, brokerapi.Priority, b.mustPop(topicAsync, groupA)[0].Type)
}

// Each order names each queue once.
func TestOrderIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "queues")
		o := order{n: n, levels: rapid.Bool().Draw(t, "levels")}
		if o.first = rapid.IntRange(0, n-1).Draw(t, "first"); o.levels && rapid.Bool().Draw(t, "plain") {
			o.first = -1
		}
		seen := map[record.QueueID]bool{}
		for i := range n {
			q := o.at(i)
			require.Less(t, int(q), n)
			require.GreaterOrEqual(t, int(q), 0)
			require.False(t, seen[q], "queue %d twice", q)
			seen[q] = true
			if o.levels && i > 1 {
				require.Less(t, q, o.at(i-1), "from high to low behind the first")
			}
		}
	})
}
