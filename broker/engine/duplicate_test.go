package engine

import (
	"crypto/md5"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

// named is a message with an id.
func named(id, body string) brokerapi.Message {
	m := message(body)
	m.ID = []byte(id)
	m.Digest = md5.Sum([]byte(body))
	return m
}

func (b *bench) sendThese(t record.TopicID, ms ...brokerapi.Message) []brokerapi.SendResult {
	b.t.Helper()
	r, err := wait(b.t, func(done func(*brokerapi.SendReply, error)) {
		b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(t), Messages: ms}, done)
	})
	require.NoError(b.t, err)
	return r.Results
}

// again is the first result as a repetition is told it.
func again(r brokerapi.SendResult) brokerapi.SendResult {
	r.Duplicate = true
	return r
}

func TestDuplicate(t *testing.T) {
	for _, id := range []record.TopicID{topicSync, topicAsync} {
		b := newBench(t, Options{})
		b.mustOpen()
		b.define()
		first := b.sendThese(id, named("x", "body"))[0]
		require.False(t, first.Duplicate)
		b.clock.advance(time.Minute)
		require.Equal(t, again(first), b.sendThese(id, named("x", "body"))[0])
		require.False(t, b.sendThese(id, named("x", "other"))[0].Duplicate, "another body")
		require.False(t, b.sendThese(3-id, named("x", "body"))[0].Duplicate, "another topic")
		require.EqualValues(t, 1, b.engine.Counts().DuplicatesDiffer.Load())
		b.sameAfterRestart()
		y := b.sendThese(id, named("y", "y"))[0]
		b.again() // found by replay
		require.Equal(t, again(y), b.sendThese(id, named("y", "y"))[0])
		require.ElementsMatch(t, []string{"body", "other", "y"}, bodies(b.mustPop(id, groupA)))
		b.clock.advance(10 * time.Minute)
		require.False(t, b.sendThese(id, named("y", "y"))[0].Duplicate, "the window is over")
	}
}

// In a batch duplicates are answered and the rest is stored; so it is within one batch.
func TestDuplicatesInABatch(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	old := b.sendThese(topicSync, named("a", "a"), named("b", "b"))
	r := b.sendThese(topicSync, named("c", "c"), named("a", "a"), named("d", "d"), named("c", "c"), named("d", "D"), named("b", "b"), named("d", "d"))
	require.Equal(t, again(old[0]), r[1])
	require.Equal(t, again(old[1]), r[5])
	require.Equal(t, again(r[0]), r[3])
	require.Equal(t, again(r[2]), r[6])
	for _, i := range []int{0, 2, 4} {
		require.False(t, r[i].Duplicate, i)
	}
	require.ElementsMatch(t, []string{"a", "b", "c", "d", "D"}, bodies(b.mustPop(topicSync, groupA)))
	for _, x := range b.sendThese(topicSync, named("a", "a"), named("c", "c")) {
		require.True(t, x.Duplicate, "all of them")
	}
	b.sameAfterRestart()
	require.Empty(t, b.mustPop(topicSync, groupA))
}

// The same message at the same time, many times, in one turn of the writer or several: one copy.
func TestDuplicatesAtOnce(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	for round := range 20 {
		if round == 10 {
			b.again()
		}
		var wg sync.WaitGroup
		results := make([]brokerapi.SendResult, 16)
		for i := range results {
			wg.Go(func() { results[i] = b.sendThese(topicAsync, named(fmt.Sprint("id", round), "x"))[0] })
		}
		wg.Wait()
		stored := 0
		for _, r := range results {
			if !r.Duplicate {
				stored++
			}
			require.Equal(t, results[0].Pos, r.Pos)
		}
		require.Equal(t, 1, stored)
	}
	require.Len(t, b.mustPop(topicAsync, groupA), 20)
}

// A delayed message is answered with its first result, before it is due and after, also if a later time is
// asked for now: the answer says when the first one is due, without which it could not be recalled.
func TestDuplicateOfDelayed(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	m := named("late", "late")
	m.Type, m.DeliverAt = brokerapi.Delay, b.clock.Wall()+5000
	first := b.sendThese(topicAsync, m)[0]
	require.EqualValues(t, -1, first.Offset)
	want := again(first)
	want.DeliverAt = m.DeliverAt
	require.Equal(t, want, b.sendThese(topicAsync, m)[0])
	later := m
	later.DeliverAt += 1000
	require.Equal(t, want, b.sendThese(topicAsync, later)[0])
	twin := m
	twin.ID = []byte("twin")
	other := twin
	other.DeliverAt += 1000
	twins := b.sendThese(topicAsync, twin, other)
	require.Zero(t, twins[0].DeliverAt)
	require.Equal(t, twin.DeliverAt, twins[1].DeliverAt)
	b.clock.advance(6 * time.Second)
	b.sendThese(topicAsync, named("wake", "wake"))
	require.Equal(t, want, b.sendThese(topicAsync, m)[0])
}

// TestDuplicatesBehindDamage: the files of the duplicate window are lost, and a record that is no message is damaged in the
// part of the log that says what was in them. All messages are found all the same.
//
//fault:damage the duplicate window's files are lost, and the log is damaged below the checkpoint in a record that is no message => the window is whole again
func TestDuplicatesBehindDamage(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	one := message("one")
	b.sendAll(topicSync, one)
	lease := b.engine.log.Written()
	b.ack(topicSync, groupA, b.mustPop(topicSync, groupA)...)
	two := message("two")
	b.sendAll(topicSync, two)
	_, err := b.engine.Close()
	require.NoError(t, err)
	require.NoError(t, b.store.CloseClean(1))
	b.engine = nil
	for _, name := range must(b.fs.List("data/dedup")) {
		require.NoError(t, b.fs.Remove("data/dedup/"+name))
	}
	b.damageRecord(lease, record.HeaderSize)
	b.mustOpen()
	for _, m := range []brokerapi.Message{one, two} {
		require.True(t, b.sendAll(topicSync, m)[0].Duplicate, "%s is known", m.Body)
	}
}
