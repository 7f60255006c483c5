package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

// stands is how the one message with an id stands.
func (b *bench) stands(t record.TopicID, id string) brokerapi.Found {
	b.t.Helper()
	r := b.find(brokerapi.FindRequest{Topic: brokerapi.TopicID(t), ID: id})
	require.Len(b.t, r.Messages, 1)
	return r.Messages[0]
}

// told are the events of a message in words.
func (b *bench) told(t record.TopicID, pos brokerapi.LogPos) (out []string) {
	b.t.Helper()
	for _, e := range b.life(brokerapi.TopicID(t), pos, 0) {
		out = append(out, e.What+" "+e.Text)
	}
	return out
}

// TestStandingOfDelayed: waiting, recalled, delivered: a search says how it stands and where, a trace since when.
func TestStandingOfDelayed(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	stays, goes := b.later("stays", time.Minute), b.later("goes", time.Minute)
	at := b.sendAll(topicSync, stays)[0]
	gone := b.sendAll(topicSync, goes)[0]
	for range 50 {
		b.mustSend(topicSync, "others")
	}
	require.Equal(t, "waiting", b.stands(topicSync, string(stays.ID)).State)
	require.EqualValues(t, -1, b.stands(topicSync, string(stays.ID)).Offset)
	_, err := b.recall(topicSync, gone.Pos, goes.DeliverAt)
	require.NoError(t, err)
	require.Equal(t, "recalled", b.stands(topicSync, string(goes.ID)).State)
	require.Equal(t, []string{"stored delayed", "recalled "}, b.told(topicSync, gone.Pos))
	b.clock.advance(2 * time.Minute)
	b.settle()
	b.mustSend(topicSync, "one more", "and another")
	found := b.stands(topicSync, string(stays.ID))
	require.Equal(t, "visible", found.State)
	require.GreaterOrEqual(t, found.Offset, brokerapi.QueueOffset(0))
	place := b.find(brokerapi.FindRequest{Topic: brokerapi.TopicID(topicSync), Queue: found.Queue, Offset: found.Offset})
	require.Equal(t, []brokerapi.Found{found}, place.Messages)
	life := b.life(brokerapi.TopicID(topicSync), at.Pos, 0)
	require.Equal(t, "stored", life[0].What)
	require.Equal(t, stays.DeliverAt, life[0].UntilMS)
	require.Equal(t, "delivered", life[1].What)
	for range 3 {
		b.take(topicSync, groupA)
	}
	life = b.life(brokerapi.TopicID(topicSync), at.Pos, 0)
	require.Len(t, life, 4)
	require.Equal(t, []string{"leased", "acked"}, []string{life[2].What, life[3].What})
}

// TestStandingOfTransactions: half, committed to a place, rolled back.
func TestStandingOfTransactions(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	yes, no := b.mustHalf("yes", "a"), b.mustHalf("no", "b")
	require.Equal(t, "half", b.stands(topicSync, "yes").State)
	require.NoError(t, b.end("yes", true))
	require.NoError(t, b.end("no", false))
	found := b.stands(topicSync, "yes")
	require.Equal(t, "visible", found.State)
	require.GreaterOrEqual(t, found.Offset, brokerapi.QueueOffset(0))
	require.Equal(t, "rolled back", b.stands(topicSync, "no").State)
	require.Equal(t, []string{"stored half message", "rolled back by its producer"}, b.told(topicSync, no.Pos))
	b.take(topicSync, groupA)
	told := b.told(topicSync, yes.Pos)
	require.Len(t, told, 4)
	require.Regexp(t, `^committed queue \d offset 0, by its producer$`, told[1])
	require.Equal(t, []string{"leased ", "acked "}, told[2:])
}

// TestStandingOfDeadLetters: a letter is found where it was and where it is, and each tells of the other.
func TestStandingOfDeadLetters(t *testing.T) {
	b := deadBench(t)
	b.withLetters(topicSync, "a")
	letter := b.find(brokerapi.FindRequest{Topic: brokerapi.TopicID(topicDead), Queue: 0, Offset: 0, Bodies: true}).Messages[0]
	require.Equal(t, "a", string(letter.Body))
	require.Equal(t, letter.Pos, b.stands(topicDead, letter.ID).Pos, "the copy is in the index")
	first := b.find(brokerapi.FindRequest{Topic: brokerapi.TopicID(topicSync), ID: letter.ID}).Messages
	require.Len(t, first, 1)
	told := b.told(topicSync, first[0].Pos)
	require.Len(t, told, 3)
	require.Equal(t, "dead forwarded by its consumer after 1 attempts, now topic %DLQ%b queue 0 offset 0", told[2])

	require.Equal(t, 1, b.redrive(brokerapi.RedriveRequest{Max: 1}).Redriven)
	both := b.find(brokerapi.FindRequest{Topic: brokerapi.TopicID(topicSync), ID: letter.ID}).Messages
	require.Len(t, both, 2)
	told = b.told(topicDead, letter.Pos)
	require.Len(t, told, 2)
	require.Regexp(t, `^stored queue 0 offset 0, dead letter of topic sync queue \d offset 0: forwarded by its consumer after 1 attempts$`, told[0])
	require.Regexp(t, `^redriven now topic sync queue \d offset 1$`, told[1])
	b.take(topicSync, groupB)
	told = b.told(topicSync, both[0].Pos)
	require.Len(t, told, 3)
	require.Regexp(t, `^stored queue \d offset 1, redriven from topic %DLQ%b queue 0 offset 0$`, told[0])
	require.Equal(t, []string{"leased ", "acked "}, told[1:])
}
