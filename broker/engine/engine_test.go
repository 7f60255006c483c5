package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

func TestSendReceiveAck(t *testing.T) {
	for _, topic := range []struct {
		name string
		id   uint32
	}{{"sync", uint32(topicSync)}, {"async", uint32(topicAsync)}} {
		t.Run(topic.name, func(t *testing.T) {
			b := newBench(t, Options{})
			b.mustOpen()
			b.define()
			id := topicSync
			if topic.id == uint32(topicAsync) {
				id = topicAsync
			}
			sent := b.mustSend(id, "one", "two", "three")
			require.Len(t, sent, 3)
			require.EqualValues(t, 0, sent[0].Offset)
			require.EqualValues(t, 2, sent[2].Offset)
			require.Equal(t, sent[0].Queue, sent[2].Queue, "messages of one request stay together")

			ms := b.mustPop(id, groupA)
			require.Equal(t, []string{"one", "two", "three"}, bodies(ms))
			require.EqualValues(t, 1, ms[0].Attempt)
			require.Empty(t, b.mustPop(id, groupA), "leased messages do not come again")
			require.Len(t, b.mustPop(id, groupB), 3, "another group has its own progress")

			require.Equal(t, []error{nil, nil, nil}, b.ack(id, groupA, ms...))
			require.Equal(t, []error{nil}, b.ack(id, groupA, ms[0]), "a repeated ack is fine")
			b.clock.advance(time.Hour)
			require.Empty(t, b.mustPop(id, groupA))
			require.Len(t, b.mustPop(id, groupB), 3)
		})
	}
}

func TestRedeliveryInPlace(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one")
	first := b.mustPop(topicSync, groupA)
	b.clock.advance(29 * time.Second)
	require.Empty(t, b.mustPop(topicSync, groupA))
	b.clock.advance(2 * time.Second)
	second := b.mustPop(topicSync, groupA)
	require.Len(t, second, 1)
	require.EqualValues(t, 2, second[0].Attempt)
	require.Equal(t, first[0].Offset, second[0].Offset)
	errs := b.ack(topicSync, groupA, first[0])
	require.True(t, mqerr.Is(errs[0], mqerr.HandleInvalid), "the first lease is over: %v", errs[0])
	require.Equal(t, []error{nil}, b.ack(topicSync, groupA, second[0]))
}

func TestLateAckBeforeRedelivery(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one")
	ms := b.mustPop(topicSync, groupA)
	b.clock.advance(time.Hour)
	require.Equal(t, []error{nil}, b.ack(topicSync, groupA, ms[0]), "nobody else has it yet")
	require.Empty(t, b.mustPop(topicSync, groupA))
}

func TestChangeMovesTheDeadline(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one")
	ms := b.mustPop(topicSync, groupA)
	require.Equal(t, []error{nil}, b.change(topicSync, groupA, time.Minute, brokerapi.ChangeLease, ms[0]))
	b.clock.advance(45 * time.Second)
	require.Empty(t, b.mustPop(topicSync, groupA))
	require.Equal(t, []error{nil}, b.change(topicSync, groupA, 0, brokerapi.ChangeLease, ms[0]), "the first handle still works")
	again := b.mustPop(topicSync, groupA)
	require.Len(t, again, 1)
	require.EqualValues(t, 2, again[0].Attempt)
	require.Equal(t, []error{nil}, b.change(topicSync, groupA, 0, brokerapi.ChangeKeep, again[0]))
	kept := b.mustPop(topicSync, groupA)
	require.EqualValues(t, 2, kept[0].Attempt, "given back: the attempt does not count")
	require.Equal(t, []error{nil}, b.ack(topicSync, groupA, kept[0]))
	errs := b.change(topicSync, groupA, time.Minute, brokerapi.ChangeLease, kept[0])
	require.True(t, mqerr.Is(errs[0], mqerr.HandleInvalid), "done messages do not come back: %v", errs[0])
}

func TestAnyQueueAndFairness(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	for range 8 {
		b.mustSend(topicSync, "x")
	}
	queues := map[brokerapi.QueueID]int{}
	for _, m := range b.mustPop(topicSync, groupA) {
		queues[m.Queue]++
	}
	require.Equal(t, map[brokerapi.QueueID]int{0: 2, 1: 2, 2: 2, 3: 2}, queues)
}

func TestTagsAreFilteredAndSkipped(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	tagged := func(tag string) {
		m := message(tag)
		m.TagHash = brokerapi.HashTag([]byte(tag))
		m.Sys = append([]byte{tagField<<3 | 2, byte(len(tag))}, tag...)
		_, err := wait(t, func(done func(*brokerapi.SendReply, error)) {
			b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{m}}, done)
		})
		require.NoError(t, err)
	}
	for _, tag := range []string{"red", "blue", "red", "green", "blue", "red"} {
		tagged(tag)
	}
	b.mustSend(topicSync, "untagged")
	want := brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: []string{"blue", "green"}}
	ms, more, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Filter: want})
	require.NoError(t, err)
	require.False(t, more)
	require.ElementsMatch(t, []string{"blue", "green", "blue"}, bodies(ms))
	require.Empty(t, b.mustPop(topicSync, groupA), "what the filter let pass is done for the group")
}

// TestFilterChangesWhileMessagesAreOut: what came back and no longer matches is done, too.
func TestFilterChangesWhileMessagesAreOut(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "untagged one", "untagged two")
	require.Len(t, b.mustPop(topicSync, groupA), 2)
	b.clock.advance(time.Minute)
	want := brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: []string{"blue"}}
	ms, more, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Filter: want})
	require.NoError(t, err)
	require.Empty(t, ms)
	require.False(t, more, "nothing is left to be looked at")
	b.clock.advance(time.Minute)
	require.Empty(t, b.mustPop(topicSync, groupA))
	before := b.views()
	b.kill()
	b.fs.(*memfs.FS).Restart()
	require.Equal(t, before, b.replayed())
}

func TestAttemptIDRepeatsTheLease(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one", "two")
	req := brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), AttemptID: "attempt", Client: "push"}
	first, _, err := b.pop(req)
	require.NoError(t, err)
	require.Len(t, first, 2)
	b.ack(topicSync, groupA, first[0])
	b.again() // the answer was lost, and the broker restarted
	rest, _, err := b.pop(req)
	require.NoError(t, err)
	require.Equal(t, []string{"two"}, bodies(rest))
	require.Equal(t, first[1].Lease, rest[0].Lease)
	require.EqualValues(t, 1, rest[0].Attempt)
}

func TestSessionLeaseLivesWithItsClient(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one", "two")
	req := brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Session: true, Client: "push"}
	ms, _, err := b.pop(req)
	require.NoError(t, err)
	require.Len(t, ms, 2)
	for range 20 { // ten minutes, reported every 30 s
		b.clock.advance(30 * time.Second)
		require.NoError(t, b.proxy.Alive(t.Context(), []string{"push"}))
		require.Empty(t, b.mustPop(topicSync, groupA))
	}
	require.Equal(t, []error{nil}, b.ack(topicSync, groupA, ms[0]))
	b.clock.advance(61 * time.Second)
	again := b.mustPop(topicSync, groupA)
	require.Equal(t, []string{"two"}, bodies(again))
	require.EqualValues(t, 2, again[0].Attempt)
}

func TestGoodbyeEndsTheSession(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one")
	_, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Session: true, Client: "push"})
	require.NoError(t, err)
	require.NoError(t, b.proxy.EndSession(t.Context(), "push"))
	require.Empty(t, b.mustPop(topicSync, groupA))
	b.clock.advance(1100 * time.Millisecond)
	require.Len(t, b.mustPop(topicSync, groupA), 1)
}

func TestSessionsGetAFreshTimeoutAfterAStart(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one")
	_, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Session: true, Client: "push"})
	require.NoError(t, err)
	b.clock.advance(50 * time.Second)
	b.again()
	b.clock.advance(50 * time.Second)
	require.Empty(t, b.mustPop(topicSync, groupA), "clients come back only with their next heartbeat")
	b.clock.advance(11 * time.Second)
	require.Len(t, b.mustPop(topicSync, groupA), 1)
}

// TestLoweredMaxAttempts: what was ready when the group's attempts were lowered goes out once more, and
// is counted.
func TestLoweredMaxAttempts(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one")
	require.Len(t, b.mustPop(topicSync, groupB), 1)
	b.clock.advance(31 * time.Second)
	require.NoError(t, b.engine.call(t.Context(), func(*writer) {}))
	require.NoError(t, b.engine.Define(t.Context(), &Definitions{Groups: []group.Definition{{ID: groupB, Name: "b", MaxAttempts: 1, Version: 9}}, Version: 9}))
	require.EqualValues(t, 2, b.mustPop(topicSync, groupB)[0].Attempt)
	q, err := b.proxy.DescribeGroup(t.Context(), brokerapi.TopicID(topicSync), brokerapi.GroupID(groupB))
	require.NoError(t, err)
	over := int64(0)
	for _, one := range q {
		over += one.OverMax
	}
	require.EqualValues(t, 1, over)
}

func TestReadyIsToldOncePerArming(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	arm := func() []got {
		ms, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Arm: true})
		require.NoError(t, err)
		return ms
	}
	require.Empty(t, arm())
	b.mustSend(topicSync, "one")
	require.Equal(t, brokerapi.Ready{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Count: 1}, b.event())
	b.mustSend(topicSync, "two")
	require.Len(t, arm(), 2, "the pop that found messages arms, too")
	b.mustSend(topicSync, "three")
	require.EqualValues(t, 1, b.event().Count)
	require.Empty(t, b.ready, "one event per arming")
}

func (b *bench) event() brokerapi.Ready {
	b.t.Helper()
	select {
	case r := <-b.ready:
		return r
	case <-time.After(10 * time.Second):
		b.t.Fatal("no Ready event within 10 s")
		panic("unreachable")
	}
}

func TestDescribeIsExact(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	sent := b.mustSend(topicAsync, "1", "2", "3", "4", "5")
	sum := func() (s brokerapi.GroupQueue) {
		qs, err := b.proxy.DescribeGroup(t.Context(), brokerapi.TopicID(topicAsync), brokerapi.GroupID(groupA))
		require.NoError(t, err)
		for _, q := range qs {
			s.Ready += q.Ready
			s.InFlight += q.InFlight
			s.Waiting += q.Waiting
			s.OldestMS = max(s.OldestMS, q.OldestMS)
		}
		return s
	}
	require.Equal(t, brokerapi.GroupQueue{Ready: 5, OldestMS: sent[0].StoreTime}, sum())
	ms := b.mustPop(topicAsync, groupA)
	require.Equal(t, brokerapi.GroupQueue{InFlight: 5}, sum())
	b.ack(topicAsync, groupA, ms[0], ms[1])
	b.change(topicAsync, groupA, time.Minute, brokerapi.ChangeKeep, ms[2])
	require.Equal(t, brokerapi.GroupQueue{InFlight: 2, Waiting: 1}, sum())
	b.clock.advance(31 * time.Second)
	require.Equal(t, brokerapi.GroupQueue{Ready: 2, Waiting: 1, OldestMS: sent[0].StoreTime}, sum())
}

func TestBadRequestsAreRefused(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	_, err := b.send(99, "x")
	require.True(t, mqerr.Is(err, mqerr.TopicNotFound), "%v", err)
	_, _, err = b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: 99})
	require.True(t, mqerr.Is(err, mqerr.GroupNotFound), "%v", err)
	_, err = b.send(topicSync, string(make([]byte, 2<<20)))
	require.True(t, mqerr.Is(err, mqerr.Invalid), "a message larger than a segment: %v", err)
	b.mustSend(topicSync, "one")
	ms := b.mustPop(topicSync, groupA)
	for _, h := range []brokerapi.Handle{
		{Queue: -1},
		{Queue: 99},
		{Queue: ms[0].Queue, Offset: -1, Lease: ms[0].Lease},
		{Queue: ms[0].Queue, Offset: 1 << 40, Lease: ms[0].Lease},
		{Queue: ms[0].Queue, Offset: ms[0].Offset, Lease: ms[0].Lease + 8},
		{Queue: ms[0].Queue, Offset: ms[0].Offset},
	} {
		r, err := wait(t, func(done func(*brokerapi.AckReply, error)) {
			b.proxy.Ack(&brokerapi.AckRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Handles: []brokerapi.Handle{h}}, done)
		})
		require.NoError(t, err)
		require.True(t, mqerr.Is(r.Errors[0], mqerr.HandleInvalid), "%+v: %v", h, r.Errors[0])
	}
	require.Equal(t, []error{nil}, b.ack(topicSync, groupA, ms[0]))
}

func TestDeletedTopicIsGoneForGood(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one", "two")
	ms := b.mustPop(topicSync, groupA)
	defs := definitions()
	defs.Topics, defs.Version = defs.Topics[1:], 9
	require.NoError(t, b.engine.Define(t.Context(), defs))
	_, err := b.send(topicSync, "x")
	require.True(t, mqerr.Is(err, mqerr.TopicNotFound))
	_, err = wait(t, func(done func(*brokerapi.AckReply, error)) {
		b.proxy.Ack(&brokerapi.AckRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Handles: []brokerapi.Handle{ms[0].handle()}}, done)
	})
	require.True(t, mqerr.Is(err, mqerr.TopicNotFound))
	b.again()
	_, err = b.send(topicSync, "x")
	require.True(t, mqerr.Is(err, mqerr.TopicNotFound))
}

func TestGroupsBeginWhereTheySay(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicAsync, "old")
	b.clock.advance(time.Minute)
	defs := definitions()
	from := b.clock.Wall()
	defs.Groups = append(defs.Groups, groupFrom(10, "last", 1, 0), groupFrom(11, "time", 2, from+1), groupFrom(12, "first", 0, 0))
	require.NoError(t, b.engine.Define(t.Context(), defs))
	b.mustSend(topicAsync, "middle")
	b.clock.advance(time.Minute)
	b.mustSend(topicAsync, "new")
	require.ElementsMatch(t, []string{"middle", "new"}, bodies(b.mustPop(topicAsync, 10)))
	require.ElementsMatch(t, []string{"new"}, bodies(b.mustPop(topicAsync, 11)))
	require.ElementsMatch(t, []string{"old", "middle", "new"}, bodies(b.mustPop(topicAsync, 12)))
}

// TestCleanStartReadsNoLog: also when the run before recovered from a crash and then did nothing.
func TestCleanStartReadsNoLog(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one", "two")
	b.again()
	_, err := b.engine.Close()
	require.NoError(t, err)
	require.NoError(t, b.store.CloseClean(uint64(b.epoch)))
	b.engine = nil

	replayed := int64(-1)
	b.opt.Events.Recovered = func(_, _ record.Pos, records int64, _ time.Duration) { replayed = records }
	b.mustOpen()
	require.Zero(t, replayed)
	require.Len(t, b.mustPop(topicSync, groupA), 2)
}
