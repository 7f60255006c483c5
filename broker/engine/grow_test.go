package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// changeTopic defines a topic anew.
func (b *bench) changeTopic(id record.TopicID, version uint64, change func(*topic.Definition)) {
	b.t.Helper()
	d := definitions().Topics[id-1]
	d.Version = version
	change(&d)
	require.NoError(b.t, b.engine.Define(b.t.Context(), &Definitions{Topics: []topic.Definition{d}, Version: version}))
}

func (b *bench) drainOf(id record.TopicID, began uint64, groups ...record.GroupID) *brokerapi.DrainReply {
	b.t.Helper()
	req := &brokerapi.DrainRequest{Topic: brokerapi.TopicID(id), Began: began}
	for _, g := range groups {
		req.Groups = append(req.Groups, brokerapi.GroupID(g))
	}
	r, err := b.proxy.Drain(b.t.Context(), req)
	require.NoError(b.t, err)
	return r
}

func grouped(body, group string) brokerapi.Message {
	m := message(body)
	m.Type, m.Queue, m.GroupHash = brokerapi.FIFO, 1, brokerapi.HashGroup([]byte(group))
	return m
}

func (b *bench) trySend(layout uint64, ms ...brokerapi.Message) ([]brokerapi.SendResult, error) {
	b.t.Helper()
	return b.sendReq(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Layout: layout, Messages: ms})
}

func (b *bench) refused(layout uint64, ms ...brokerapi.Message) {
	b.t.Helper()
	before := b.engine.Counts().GrowthRefused.Load()
	_, err := b.trySend(layout, ms...)
	require.True(b.t, mqerr.Is(err, mqerr.Exhausted), "%v", err)
	require.Equal(b.t, before+1, b.engine.Counts().GrowthRefused.Load())
}

// TestGrowingTopicIsDrained: what was there is counted until it is done, nothing of a message group is
// added, and everything else goes on.
func TestGrowingTopicIsDrained(t *testing.T) {
	b := newOrderedBench(t, Options{})
	first := grouped("A1", "A")
	was, err := b.trySend(0, first, grouped("A2", "A"))
	require.NoError(t, err)
	late := grouped("A3", "A")
	late.Type, late.DeliverAt = brokerapi.Delay, b.clock.Wall()+60_000
	open := grouped("A4", "A")
	open.Type = brokerapi.Transaction
	for _, m := range []brokerapi.Message{late, open} {
		_, err := b.trySend(0, m)
		require.NoError(t, err)
	}
	b.mustPop(topicSync, groupA) // has read, and goes on
	b.popN(1)

	require.Equal(t, &brokerapi.DrainReply{}, b.drainOf(topicSync, 20), "it does not grow")
	b.changeTopic(topicSync, 20, func(d *topic.Definition) { d.Growing = 20 })
	require.Equal(t, &brokerapi.DrainReply{}, b.drainOf(topicSync, 19), "that is another growth")
	a, ordered := brokerapi.GroupID(groupA), brokerapi.GroupID(groupOrdered)
	want := &brokerapi.DrainReply{Growing: true, Delayed: 1, Halves: 1, Groups: []brokerapi.DrainGroup{{Group: a, Undone: 2}, {Group: ordered, Undone: 2}}}
	require.Equal(t, want, b.drainOf(topicSync, 20))
	with := b.drainOf(topicSync, 20, groupB).Groups
	require.Equal(t, brokerapi.DrainGroup{Group: brokerapi.GroupID(groupB), Undone: 2}, with[1], "it reads elsewhere")
	b.same()
	require.Equal(t, want, b.drainOf(topicSync, 20))

	b.refused(0, grouped("B1", "B"))
	again := grouped("A5", "A")
	again.Type, again.DeliverAt = brokerapi.Delay, b.clock.Wall()+1000
	b.refused(0, again)
	again.Type, again.DeliverAt = brokerapi.Transaction, 0
	b.refused(0, again)
	sent, err := b.trySend(0, first)
	require.NoError(t, err, "it is here already")
	require.True(t, sent[0].Duplicate)
	require.Equal(t, was[0].Offset, sent[0].Offset)
	require.NoError(t, b.end(string(open.ID), false))
	require.Zero(t, b.drainOf(topicSync, 20).Halves)
	b.mustSend(topicSync, "of no group", "of no group")

	b.clock.advance(time.Minute) // the delayed one is here, the leases are over
	require.Eventually(t, func() bool { return b.drainOf(topicSync, 20).Delayed == 0 }, 10*time.Second, time.Millisecond)
	for _, g := range []record.GroupID{groupA, groupOrdered} {
		for n := 0; n < 3; {
			for _, m := range b.mustPop(topicSync, g) {
				if m.Queue != 1 {
					continue // those of no group stay where they are
				}
				require.Equal(t, []error{nil}, b.ack(topicSync, g, m))
				n++
			}
		}
	}
	left := b.drainOf(topicSync, 20)
	require.Zero(t, left.Storing+left.Delayed+left.Halves)
	for _, g := range left.Groups {
		require.Zero(t, g.Undone, "%+v: messages of no group hold nothing up", left.Groups)
	}

	b.changeTopic(topicSync, 30, func(d *topic.Definition) { d.Queues, d.Layout = 8, 30 })
	b.refused(0, grouped("C1", "C"))
	b.refused(31, grouped("C1", "C"))
	c := grouped("C1", "C")
	c.Queue = 7
	r, err := b.trySend(30, c)
	require.NoError(t, err)
	require.EqualValues(t, 7, r[0].Queue)
	b.mustSend(topicSync, "no group, old proxy")
	b.same()
	b.refused(0, grouped("C2", "C"))
}

// TestDrainedStaysDrained: acks that a drain has seen outlive a power failure, on an asynchronous topic, too.
func TestDrainedStaysDrained(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			b := newOrderedBench(t, Options{})
			m := grouped("A1", "A")
			_, err := b.sendReq(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicAsync), Messages: []brokerapi.Message{m}})
			require.NoError(t, err)
			b.changeTopic(topicAsync, 20, func(d *topic.Definition) { d.Growing = 20 })
			got := b.mustPop(topicAsync, groupOrdered)
			free := b.hold() // both in one turn
			acked, drained := make(chan error, 1), make(chan *brokerapi.DrainReply, 1)
			b.proxy.Ack(&brokerapi.AckRequest{
				Topic: brokerapi.TopicID(topicAsync), Group: brokerapi.GroupID(groupOrdered), Handles: []brokerapi.Handle{got[0].handle()},
			}, func(_ *brokerapi.AckReply, err error) { acked <- err })
			go func() { drained <- b.drainOf(topicAsync, 20) }()
			require.Eventually(t, func() bool { e := b.engine; e.inbox.mu.Lock(); defer e.inbox.mu.Unlock(); return len(e.inbox.ops) == 2 }, 10*time.Second, time.Millisecond)
			free()
			require.NoError(t, <-acked)
			require.Equal(t, []brokerapi.DrainGroup{{Group: brokerapi.GroupID(groupOrdered)}}, (<-drained).Groups)
			crashed := b.fs.(*memfs.FS).Crash(rand.New(rand.NewPCG(seed, 1)), 0)
			b.kill()
			b.fs = crashed
			b.mustOpen()
			b.clock.advance(time.Hour)
			require.Empty(t, b.mustPop(topicAsync, groupOrdered))
			_, err = b.sendReq(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicAsync), Messages: []brokerapi.Message{grouped("A2", "A")}})
			require.True(t, mqerr.Is(err, mqerr.Exhausted), "it still grows: %v", err)
		})
	}
}

// TestPullConsumersAreDrained: a position that was stored counts like what was received.
func TestPullConsumersAreDrained(t *testing.T) {
	b := newOrderedBench(t, Options{})
	_, err := b.trySend(0, grouped("A1", "A"), grouped("A2", "A"))
	require.NoError(t, err)
	at := func(off brokerapi.QueueOffset) {
		_, err := b.proxy.SetOffsets(t.Context(), &brokerapi.SetOffsetsRequest{
			Offsets: []brokerapi.SetOffset{{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupB), Queue: 1, Offset: off}},
		})
		require.NoError(t, err)
	}
	at(1)
	b.changeTopic(topicSync, 20, func(d *topic.Definition) { d.Growing = 20 })
	require.Equal(t, []brokerapi.DrainGroup{{Group: brokerapi.GroupID(groupB), Undone: 1}}, b.drainOf(topicSync, 20).Groups)
	at(2)
	require.Equal(t, []brokerapi.DrainGroup{{Group: brokerapi.GroupID(groupB)}}, b.drainOf(topicSync, 20).Groups)
}

// TestLiteTopicsAreListed page by page, and a group's figures are the sums over those that concern it.
func TestLiteTopicsAreListed(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineLite()
	const n = liteSumOnce + 10
	for i := range n {
		b.sendLite(fmt.Sprintf("t%04d", i), "x", "y")
	}
	page := func(after string, most int) *brokerapi.LiteListReply {
		r, err := b.proxy.LiteList(t.Context(), &brokerapi.LiteListRequest{Topic: brokerapi.TopicID(topicLite), After: after, Max: most})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, &brokerapi.LiteListReply{Count: n}, page("", 0))
	var all []string
	for after, more := "", true; more; {
		r := page(after, 100)
		for _, l := range r.Topics {
			require.EqualValues(t, 2, l.Max)
			all = append(all, l.Name)
		}
		after, more = all[len(all)-1], r.More
	}
	require.Len(t, all, n)
	require.Equal(t, "t0007", all[7])
	_, err := b.proxy.LiteList(t.Context(), &brokerapi.LiteListRequest{Topic: brokerapi.TopicID(topicLite), Max: liteListMax + 1})
	require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)

	b.subscribeLite(groupLite, "c", "t0000", "t0001", "t0002", fmt.Sprintf("t%04d", n-1))
	require.Equal(t, 1, page("", 1).Topics[0].Subscribers)
	got, _ := b.popLite(groupLite, "c", 3)
	require.Len(t, got, 3)
	b.ack(topicLite, groupLite, got[0])
	qs, err := b.proxy.DescribeGroup(t.Context(), brokerapi.TopicID(topicLite), brokerapi.GroupID(groupLite))
	require.NoError(t, err)
	require.Len(t, qs, 1)
	require.EqualValues(t, liteSumQueue, qs[0].Queue)
	require.EqualValues(t, []int64{5, 2, 0}, []int64{qs[0].Ready, qs[0].InFlight, qs[0].Waiting})
	require.NotZero(t, qs[0].OldestMS)
	require.True(t, qs[0].Used)
	s, err := b.engine.Snapshot(t.Context(), 1000)
	require.NoError(t, err)
	found := false
	for _, g := range s.Groups {
		if g.Group == "lite" {
			found = true
			require.EqualValues(t, []int64{5, 2}, []int64{g.Ready, g.InFlight})
		}
	}
	require.True(t, found)
	qs, err = b.proxy.DescribeGroup(t.Context(), brokerapi.TopicID(topicLite), brokerapi.GroupID(groupLite2))
	require.NoError(t, err)
	require.Equal(t, []brokerapi.GroupQueue{{Queue: liteSumQueue}}, qs, "nothing of it concerns the other group")
}
