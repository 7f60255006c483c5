package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// age lets days pass, each with a segment of other messages, and deletes what is older than retention.
func (b *bench) age(n int, retention time.Duration) {
	b.t.Helper()
	for range n {
		b.fill(topicAsync)
		b.clock.advance(23 * time.Hour)
	}
	b.retain(retention)
}

func (b *bench) findID(t record.TopicID, id string) []brokerapi.Found {
	b.t.Helper()
	return b.find(brokerapi.FindRequest{Topic: brokerapi.TopicID(t), ID: id}).Messages
}

func (b *bench) traced(t record.TopicID, pos brokerapi.LogPos) ([]string, error) {
	b.t.Helper()
	r, err := b.proxy.Trace(b.t.Context(), &brokerapi.TraceRequest{Topic: brokerapi.TopicID(t), Pos: pos})
	if err != nil {
		return nil, err
	}
	var what []string
	for i := range r.Events {
		what = append(what, r.Events[i].What)
	}
	return what, nil
}

// TestRetentionDelay: a message delayed by 40 days survives a retention of 3, with its recall, search and trace,
// and is kept like any other from its delivery on.
func TestRetentionDelay(t *testing.T) {
	b := retaining(t)
	due, called := b.later("forty", 40*days), b.later("called back", 40*days)
	b.mustSend(topicSync, "now")
	sent := b.sendAll(topicSync, due, called)
	require.Len(t, b.drain(topicSync, groupA), 1)
	for i := range 10 {
		b.age(4, 3*days)
		if i == 4 {
			id, err := b.recall(topicSync, sent[1].Pos, called.DeliverAt)
			require.NoError(t, err)
			require.Equal(t, string(called.ID), id)
		}
		if i == 6 {
			b.rebuilt()
		}
		found := b.findID(topicSync, string(due.ID))
		if i < 9 {
			require.Len(t, found, 1, "once, however often it was carried")
			require.Equal(t, sent[0].Pos, found[0].Pos)
			require.Equal(t, isWaiting, found[0].State)
			what, err := b.traced(topicSync, sent[0].Pos)
			require.NoError(t, err)
			require.Equal(t, []string{"stored", "forgotten"}, what)
			require.Empty(t, b.drain(topicSync, groupA), "never early")
		}
	}
	b.settle()
	require.Equal(t, []string{"forty"}, b.drain(topicSync, groupA))
	b.age(1, 3*days)
	found := b.findID(topicSync, string(due.ID))
	require.Len(t, found, 1)
	require.Equal(t, isVisible, found[0].State)
	b.rebuilt()
	require.Equal(t, []string{"forty"}, b.drain(topicSync, groupB), "another group reads it later")
	b.age(3, 3*days)
	require.Empty(t, b.findID(topicSync, string(due.ID)))
	_, err := b.traced(topicSync, sent[0].Pos)
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
	require.Zero(t, b.lostOf(topicSync, groupB), "it had it")
}

func (b *bench) lostOf(t record.TopicID, g record.GroupID) (n int64) {
	b.t.Helper()
	qs, err := b.proxy.DescribeGroup(b.t.Context(), brokerapi.TopicID(t), brokerapi.GroupID(g))
	require.NoError(b.t, err)
	for i := range qs {
		n += qs[i].Lost
	}
	return n
}

// TestRetentionHalves: half messages are ended after their part of the log is gone.
func TestRetentionHalves(t *testing.T) {
	b := newBench(t, Options{Txn: TxnOptions{GiveUpAfter: 1000 * days, CheckAfter: 900 * days}})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "now")
	require.Len(t, b.drain(topicSync, groupA), 1)
	first := b.mustHalf("commit", "one")
	b.mustHalf("back", "two")
	b.mustHalf("rebuilt", "three")
	b.age(6, 3*days)
	require.NoError(t, b.end("commit", true))
	require.NoError(t, b.end("back", false))
	require.Equal(t, []string{"one"}, b.drain(topicSync, groupA))
	b.rebuilt()
	again, err := b.sendReq(half("rebuilt", "three"))
	require.NoError(t, err)
	require.True(t, again[0].Duplicate, "it is open still")
	require.NoError(t, b.end("rebuilt", true))
	require.Equal(t, []string{"three"}, b.drain(topicSync, groupA))
	// Committed, and done by everybody: a rebuild needs its record as long as its place is there.
	b.age(2, 3*days)
	b.rebuilt()
	require.ElementsMatch(t, []string{"one", "three"}, b.drain(topicSync, groupB))
	require.Equal(t, first.Pos, b.findID(topicSync, "commit")[0].Pos)
	b.age(4, 3*days)
	require.Empty(t, b.findID(topicSync, "commit"))

	// Ended and done by everybody before its part of the log goes: the record of the verdict does not say all.
	cross := b.mustHalf("across", "four")
	for range 2 {
		b.fill(topicAsync)
		b.clock.advance(23 * time.Hour)
	}
	require.NoError(t, b.end("across", true))
	require.Equal(t, []string{"four"}, b.drain(topicSync, groupA))
	require.Equal(t, []string{"four"}, b.drain(topicSync, groupB))
	b.age(3, 3*days)
	require.Greater(t, b.engine.log.First(), record.Pos(cross.Pos))
	b.rebuilt()
	require.Len(t, b.findID(topicSync, "across"), 1)
}

// TestRetentionHole: a delayed message that everybody has done is not carried; who comes later passes its place.
func TestRetentionHole(t *testing.T) {
	b := retaining(t)
	m, next := b.later("done", days), message("next")
	m.Queue, next.Queue = 0, 0
	b.sendAll(topicSync, m)
	for range 2 {
		b.fill(topicAsync)
		b.clock.advance(23 * time.Hour)
	}
	b.settle()
	b.sendAll(topicSync, next)
	require.Equal(t, []string{"done", "next"}, b.drain(topicSync, groupA))
	b.age(3, 3*days)
	for range 2 {
		require.Equal(t, []string{"next"}, b.drain(topicSync, groupB))
		p, err := b.pull(brokerapi.PullRequest{Topic: brokerapi.TopicID(topicSync), Queue: 0, Max: 10})
		require.NoError(t, err)
		require.Equal(t, []string{"next"}, p.bodies)
		_, err = b.proxy.Reset(t.Context(), &brokerapi.ResetRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupB), To: brokerapi.ResetBegin})
		require.NoError(t, err)
		b.rebuilt()
	}
	require.Zero(t, b.lostOf(topicSync, groupA)+b.lostOf(topicSync, groupB))
}

// TestRetentionLeases: who has a message goes on with it: acks, expiries, dead letters.
func TestRetentionLeases(t *testing.T) {
	b := retaining(t)
	b.defineDead()
	b.mustSend(topicSync, "acked", "expires", "dies", "given up", "unread")
	pop := func(g record.GroupID, n int, d time.Duration) []got {
		out, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(g), Max: n, Invisible: d})
		require.NoError(t, err)
		return out
	}
	held := pop(groupB, 4, 7*days)
	require.Len(t, held, 4)
	b.age(6, 3*days)
	require.EqualValues(t, 1, b.lostOf(topicSync, groupB), "exactly what nobody had read")
	require.Empty(t, b.drain(topicSync, groupA), "for others they are gone")
	b.rebuilt()
	require.Equal(t, []error{nil}, b.ack(topicSync, groupB, pick(held, "acked")...))
	errs, err := b.forward(topicSync, groupB, pick(held, "given up")...)
	require.NoError(t, err)
	require.Equal(t, []error{nil}, errs)
	require.Equal(t, []string{"given up"}, bodies(b.popDead(1)))
	b.age(4, 3*days)
	again := pop(groupB, 10, 30*time.Second)
	require.ElementsMatch(t, []string{"expires", "dies"}, bodies(again))
	for _, m := range again {
		require.EqualValues(t, 2, m.Attempt)
	}
	require.Equal(t, []error{nil}, b.ack(topicSync, groupB, pick(again, "expires")...))
	b.clock.advance(time.Minute)
	require.Contains(t, bodies(b.popDead(2)), "dies")
	require.Empty(t, pop(groupB, 10, time.Second))
	// A dead letter under lease is carried as well, with what it says of its life.
	out, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicDead), Group: brokerapi.GroupID(groupB), Max: 10, Invisible: 7 * days})
	require.NoError(t, err)
	require.Len(t, out, 1)
	b.age(6, 3*days)
	b.clock.advance(2 * days)
	out, _, err = b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicDead), Group: brokerapi.GroupID(groupB), Max: 10})
	require.NoError(t, err)
	require.Len(t, out, 1)
	require.Contains(t, properties(t, out[0].Delivery), propertyReason)
	r := b.redrive(brokerapi.RedriveRequest{Dead: brokerapi.TopicID(topicDead), Max: 10})
	require.Zero(t, r.Redriven, "what is deleted is not moved back")
	require.Zero(t, r.Left)
	b.rebuilt()
}

// TestRetentionOrder: what waits behind a message of its message group is lost, the message is not.
func TestRetentionOrder(t *testing.T) {
	b := newOrderedBench(t, Options{})
	b.sendGroups("A1", "A2", "A3", "B1", "B2")
	held := b.popN(1, func(r *brokerapi.PopRequest) { r.Invisible = 30 * days })
	require.Equal(t, "A1", names(held))
	require.Equal(t, "B1 B2", names(b.popN(10, func(r *brokerapi.PopRequest) { r.Invisible = 30 * days })))
	b.age(5, 3*days)
	require.EqualValues(t, 2, b.lostOf(topicSync, groupOrdered), "A2 and A3 were passed over")
	b.sendGroups("A4", "C1")
	require.Equal(t, "C1", names(b.popN(10)), "A1 is out still")
	b.rebuilt()
	require.Equal(t, []error{nil}, b.ack(topicSync, groupOrdered, held...))
	require.Equal(t, "A4", names(b.popN(10)))
	b.age(5, 3*days)
	b.clock.advance(30 * days)
	require.Equal(t, "B1#2 B2#2 A4#2 C1#2", names(b.popN(10)))
	b.rebuilt()
	require.EqualValues(t, 2, b.lostOf(topicSync, groupOrdered))
}

// TestRetentionLite: lite topics begin later as other queues do.
func TestRetentionLite(t *testing.T) {
	b := newBench(t, Options{LiteExpiry: 1000 * days})
	b.mustOpen()
	b.defineLite()
	b.subscribeLite(groupLite, "c", "one", "two")
	b.sendLite("one", "1", "2", "3")
	b.sendLite("two", "4")
	out, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicLite), Group: brokerapi.GroupID(groupLite), Client: "c", Max: 1, Invisible: 20 * days})
	require.NoError(t, err)
	require.Len(t, out, 1)
	b.age(5, 3*days)
	b.sendLite("one", "5")
	b.sendLite("two", "6")
	b.rebuilt()
	b.subscribeLite(groupLite, "c", "one", "two")
	require.Equal(t, []string{"6"}, b.drainLite(groupLite, "c"))
	b.ack(topicLite, groupLite, out...)
	require.Equal(t, []string{"5"}, b.drainLite(groupLite, "c"))
	require.EqualValues(t, 2, b.lostOf(topicLite, groupLite), "2 and 3; of two nobody had read anything")
}

// TestRetentionReaders: pulls, resets and searches begin where the queue does, and who is inside of what goes
// keeps it.
func TestRetentionReaders(t *testing.T) {
	b := retaining(t)
	m := message("old")
	m.Queue = 0
	old := b.sendAll(topicSync, m)[0]
	c := b.startPull(brokerapi.PullRequest{Topic: brokerapi.TopicID(topicSync), Queue: 0, Max: 1})
	inside := <-c
	require.NoError(t, inside.err)
	b.age(5, 3*days)
	require.Equal(t, "old", string(inside.r.Messages[0].Body))
	inside.r.Release()
	m = message("new")
	m.Queue = 0
	b.sendAll(topicSync, m)
	for range 2 {
		p, err := b.pull(brokerapi.PullRequest{Topic: brokerapi.TopicID(topicSync), Queue: 0, Max: 10})
		require.NoError(t, err)
		require.Equal(t, []string{"new"}, p.bodies)
		_, err = b.search(brokerapi.FindRequest{Topic: brokerapi.TopicID(topicSync), Queue: 0, Offset: old.Offset, Max: 1})
		require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
		reset, err := b.proxy.Reset(t.Context(), &brokerapi.ResetRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), To: brokerapi.ResetBegin})
		require.NoError(t, err)
		require.EqualValues(t, 1, reset.Queues[0].To)
		require.Equal(t, []string{"new"}, b.drain(topicSync, groupA))
		qs, err := b.proxy.DescribeTopic(t.Context(), brokerapi.TopicID(topicSync))
		require.NoError(t, err)
		require.EqualValues(t, 1, qs[0].Min)
		b.rebuilt()
	}
}

// TestRetentionDuplicates: a message that is sent again is found as long as its record is there.
func TestRetentionDuplicates(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	waits, plain := b.later("waits", 3*time.Minute), message("plain")
	first := b.sendAll(topicSync, waits)[0]
	b.sendAll(topicSync, plain)
	for range 2 {
		b.fill(topicAsync)
		b.clock.advance(time.Minute - time.Hour)
	}
	b.retain(time.Second)
	again := b.sendAll(topicSync, waits)[0]
	require.True(t, again.Duplicate)
	require.Equal(t, first.Pos, again.Pos)
	require.False(t, b.sendAll(topicSync, plain)[0].Duplicate, "its record is deleted: it is stored again")
}

// TestRetentionConsumed: to make room nothing goes that somebody has yet to read, and nothing that nobody reads.
//
//fault:space the log grows over its bound while groups have old messages to read => nothing goes that somebody has yet to read, unless the operator chose that; what is lost then is counted exactly
func TestRetentionConsumed(t *testing.T) {
	b := retaining(t)
	b.mustSend(topicSync, "first")
	for range 4 {
		b.fill(topicSync)
	}
	limits := retain.Limits{Bytes: 2 << 20}
	step := func() retain.Plan {
		p, err := b.engine.Retain(t.Context(), limits)
		require.NoError(t, err)
		return p
	}
	require.Equal(t, retain.Unread, step().Why, "nobody reads the topic")
	got := b.mustPop(topicSync, groupA)
	require.Equal(t, retain.Unread, step().Why, "it has read a part")
	rest := b.drain(topicSync, groupA)
	require.NotEmpty(t, append(got, b.mustPop(topicSync, groupA)...))
	require.NotEmpty(t, rest)
	p := step()
	require.Equal(t, retain.Goes, p.Why)
	require.True(t, p.Early)
	require.Zero(t, b.lostOf(topicSync, groupA))
	for _, err := range b.ack(topicSync, groupA, got...) {
		require.NoError(t, err, "what was under lease is there")
	}
	limits.Room = retain.All
	b.fill(topicSync)
	b.fill(topicSync)
	require.Equal(t, retain.Goes, step().Why)
	require.Positive(t, b.lostOf(topicSync, groupA))
}

// TestRetentionTopicDeleted: what was carried for a topic that is gone goes.
func TestRetentionTopicDeleted(t *testing.T) {
	b := retaining(t)
	b.sendAll(topicSync, b.later("never", 40*days))
	b.mustSend(topicSync, "held")
	require.NotEmpty(t, b.mustPop(topicSync, groupA))
	b.age(5, 3*days)
	r, err := b.engine.Retention(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, r.ForwardTo)
	require.Equal(t, 1, r.Held)
	require.NoError(t, b.engine.Define(t.Context(), &Definitions{DeletedTopics: []record.TopicID{topicSync}, Version: 20}))
	b.rebuilt()
	b.age(5, 3*days)
	b.age(5, 3*days)
	r, err = b.engine.Retention(t.Context())
	require.NoError(t, err)
	require.Zero(t, r.ForwardTo+r.Held)
}
