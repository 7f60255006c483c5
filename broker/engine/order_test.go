package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

const groupOrdered record.GroupID = 7

func (b *bench) defineOrdered(ordered bool, version uint64) {
	b.t.Helper()
	require.NoError(b.t, b.engine.Define(b.t.Context(), &Definitions{
		Groups: []group.Definition{{ID: groupOrdered, Name: "ordered", Ordered: ordered, MaxAttempts: 3, Version: version}}, Version: version,
	}))
}

func newOrderedBench(t *testing.T, o Options) *bench {
	b := newBench(t, o)
	b.mustOpen()
	b.define()
	b.defineOrdered(true, 10)
	return b
}

// sendGroups sends messages to queue 0: "A1" is of message group A, "-1" of none.
func (b *bench) sendGroups(bodies ...string) {
	b.t.Helper()
	req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync)}
	for _, body := range bodies {
		m := message(body)
		m.Queue, m.Type = 0, brokerapi.FIFO
		if m.GroupHash = brokerapi.HashGroup([]byte(body[:1])); body[0] == '-' {
			m.GroupHash, m.Type = 0, brokerapi.Normal
		}
		req.Messages = append(req.Messages, m)
	}
	_, err := wait(b.t, func(done func(*brokerapi.SendReply, error)) { b.proxy.Send(req, done) })
	require.NoError(b.t, err)
}

// popN receives up to n messages in order, as "A1" or "A1#2" from the second attempt on.
func (b *bench) popN(n int, more ...func(*brokerapi.PopRequest)) []got {
	b.t.Helper()
	req := brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupOrdered), Max: n}
	for _, f := range more {
		f(&req)
	}
	out, _, err := b.pop(req)
	require.NoError(b.t, err)
	return out
}

func names(ms []got) string {
	var out []string
	for _, m := range ms {
		name := m.body
		if m.Attempt > 1 {
			name = fmt.Sprintf("%s#%d", name, m.Attempt)
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func pick(ms []got, bodies ...string) []got {
	return slices.DeleteFunc(slices.Clone(ms), func(m got) bool { return !slices.Contains(bodies, m.body) })
}

// same asserts that a restart changes nothing, from the log or from a checkpoint.
func (b *bench) same() {
	b.t.Helper()
	before := withoutEpoch(b.state())
	b.again()
	require.Equal(b.t, before, withoutEpoch(b.state()), "replayed")
	_, err := b.engine.Close()
	require.NoError(b.t, err)
	require.NoError(b.t, b.store.Close())
	b.engine = nil
	b.mustOpen()
	require.Equal(b.t, before, withoutEpoch(b.state()), "from a checkpoint")
}

func TestOrderOneDeliveryOfAGroup(t *testing.T) {
	b := newOrderedBench(t, Options{})
	b.sendGroups("A1", "B1", "A2", "A3", "B2", "-1", "-2", "C1")
	first := b.popN(4)
	require.Equal(t, "A1 B1 A2 A3", names(first))
	second := b.popN(10)
	require.Equal(t, "-1 -2 C1", names(second), "B2 waits for B1")
	require.Empty(t, b.popN(10))
	b.sendGroups("A4", "C2", "-3", "D1")
	require.Equal(t, "D1", names(b.popN(10)))
	b.ack(topicSync, groupOrdered, pick(first, "A1", "A3", "B1")...)
	require.Equal(t, "B2", names(b.popN(10)), "A2 is out, still")
	b.same()
	b.clock.advance(31 * time.Second)
	require.Equal(t, "A2#2 B2#2 -1#2 -2#2 C1#2 A4 C2 -3 D1#2", names(b.popN(10)), "all leases have ended; A3 is done")
}

func TestOrderNackGiveBackAndDelay(t *testing.T) {
	b := newOrderedBench(t, Options{})
	b.sendGroups("A1", "A2", "A3", "B1")
	ms := b.popN(2)
	require.Equal(t, "A1 A2", names(ms))
	require.Equal(t, "B1", names(b.popN(2)))
	b.change(topicSync, groupOrdered, 5*time.Second, brokerapi.ChangeLease, ms[0])
	b.ack(topicSync, groupOrdered, ms[1])
	require.Empty(t, b.popN(2), "A1 is to wait")
	b.clock.advance(6 * time.Second)
	ms = b.popN(2)
	require.Equal(t, "A1#2 A3", names(ms))
	b.change(topicSync, groupOrdered, 0, brokerapi.ChangeKeep, ms...)
	ms = b.popN(2)
	require.Equal(t, "A1#2 A3", names(ms), "given back: the same attempt")
	b.change(topicSync, groupOrdered, 0, brokerapi.ChangeLease, ms[1])
	require.Empty(t, b.popN(2), "A1 is out")
	b.same()
	b.ack(topicSync, groupOrdered, ms[0])
	require.Equal(t, "A3#2", names(b.popN(2)))
}

func TestOrderTheSameAttempt(t *testing.T) {
	b := newOrderedBench(t, Options{})
	b.sendGroups("A1", "A2", "A3")
	try := func(r *brokerapi.PopRequest) { r.AttemptID = "try" }
	ms := b.popN(2, try)
	b.ack(topicSync, groupOrdered, ms[0])
	require.Equal(t, "A2", names(b.popN(2, try)))
	b.same()
	b.clock.advance(29 * time.Second)
	again := b.popN(2, try)
	require.Equal(t, "A2", names(again))
	require.Equal(t, ms[1].handle().Lease, again[0].handle().Lease)
	b.clock.advance(2 * time.Second)
	require.Equal(t, "A2#2 A3", names(b.popN(2, try)), "the lease has ended")
}

func TestOrderSessionEnds(t *testing.T) {
	b := newOrderedBench(t, Options{})
	b.sendGroups("A1", "A2")
	require.Equal(t, "A1", names(b.popN(1, func(r *brokerapi.PopRequest) { r.Session, r.Client = true, "gone" })))
	require.Empty(t, b.popN(1))
	require.NoError(t, b.proxy.EndSession(t.Context(), "gone"))
	b.clock.advance(time.Minute)
	require.Equal(t, "A1#2", names(b.popN(1)))
}

func TestOrderFilterSkipsDoNotBreakARun(t *testing.T) {
	b := newOrderedBench(t, Options{ScanEntries: 4})
	req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync)}
	for i := range 30 {
		m := message(fmt.Sprint("A", i))
		m.Queue, m.Type, m.GroupHash = 0, brokerapi.FIFO, 5
		if m.TagHash = 1; i%10 == 0 {
			m.TagHash = brokerapi.HashTag([]byte("x"))
			m.Sys = append([]byte{tagField<<3 | 2, 1}, "x"...)
		}
		req.Messages = append(req.Messages, m)
	}
	_, err := wait(t, func(done func(*brokerapi.SendReply, error)) { b.proxy.Send(req, done) })
	require.NoError(t, err)
	filter := func(r *brokerapi.PopRequest) {
		r.Filter = brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: []string{"x"}}
	}
	var all []string
	for range 10 {
		ms := b.popN(1, filter)
		all = append(all, bodies(ms)...)
		b.same()
		b.ack(topicSync, groupOrdered, ms...)
	}
	require.Equal(t, []string{"A0", "A10", "A20"}, all)
}

// TestOrderWakes: each way in which a message group becomes free tells who waits.
func TestOrderWakes(t *testing.T) {
	b := newOrderedBench(t, Options{})
	b.sendGroups("A1", "A2", "A3")
	arm := func(r *brokerapi.PopRequest) { r.Arm = true }
	ms := b.popN(1)
	heard := func(want bool, why string) {
		t.Helper()
		if want {
			select {
			case <-b.ready:
			case <-time.After(10 * time.Second):
				t.Fatal("not told: " + why)
			}
			return
		}
		require.NoError(t, b.engine.call(t.Context(), func(*writer) {}))
		require.Empty(t, b.ready, why)
	}
	require.Empty(t, b.popN(1, arm))
	heard(false, "A1 is out")
	b.ack(topicSync, groupOrdered, ms...)
	heard(true, "A1 is done")
	ms = b.popN(1)
	require.Equal(t, "A2", names(ms))
	require.Empty(t, b.popN(1, arm))
	b.change(topicSync, groupOrdered, 0, brokerapi.ChangeLease, ms...)
	heard(true, "A2 was given up")
	require.Equal(t, "A2#2", names(b.popN(1)))
	require.Empty(t, b.popN(1, arm))
	b.clock.advance(31 * time.Second)
	_, err := b.engine.Views(t.Context()) // a turn: the timer does not see the clock of the test
	require.NoError(t, err)
	heard(true, "the lease of A2 has ended")
	ms = b.popN(1)
	require.Equal(t, "A2#3", names(ms))
	require.Empty(t, b.popN(1, arm))
	b.defineOrdered(false, 11)
	heard(true, "the group is not ordered any more")
	require.Equal(t, "A3", names(b.popN(1)))
}

func TestOrderChangesWhileMessagesAreOut(t *testing.T) {
	b := newOrderedBench(t, Options{})
	b.defineOrdered(false, 11)
	b.sendGroups("A1", "A2", "A3", "B1", "B2", "A4")
	one, two := b.popN(1), b.popN(1)
	require.Equal(t, "A1", names(one))
	require.Equal(t, "A2", names(two))
	b.defineOrdered(true, 12)
	b.same()
	require.Equal(t, "B1", names(b.popN(3)[:1]))
	b.ack(topicSync, groupOrdered, two...)
	require.Empty(t, b.popN(3), "A1 is out")
	b.same()
	b.ack(topicSync, groupOrdered, one...)
	three := b.popN(1)
	require.Equal(t, "A3", names(three))
	b.defineOrdered(false, 13)
	b.same()
	require.Equal(t, "A4", names(b.popN(5)), "what was passed over comes next")
	b.clock.advance(31 * time.Second)
	require.Equal(t, "A3#2 B1#2 B2#2 A4#2", names(b.popN(5)))
}

func TestOrderDeadLetterReleasesTheNext(t *testing.T) {
	b := newOrderedBench(t, Options{})
	require.NoError(t, b.engine.Define(t.Context(), &Definitions{
		Topics: []topic.Definition{{ID: topicDead, Name: deadPrefix + "ordered", Queues: 1, Version: 11}}, Version: 11,
	}))
	b.sendGroups("A1", "A2")
	for range 3 {
		require.Equal(t, "A1", b.popN(1)[0].body)
		b.clock.advance(31 * time.Second)
	}
	b.until("A2 goes out", func() bool { return names(b.popN(1)) == "A2" })
}

// TestOrderWakesWhenOneIsDead: who waits behind a message that goes to the dead letters is told.
func TestOrderWakesWhenOneIsDead(t *testing.T) {
	b := newOrderedBench(t, Options{})
	b.sendGroups("A1", "A2")
	for range 3 {
		require.Equal(t, "A1", b.popN(1)[0].body)
		b.clock.advance(31 * time.Second)
	}
	require.Empty(t, b.popN(1, func(r *brokerapi.PopRequest) { r.Arm = true }), "its topic does not exist yet")
	require.NoError(t, b.engine.Define(t.Context(), &Definitions{
		Topics: []topic.Definition{{ID: topicDead, Name: deadPrefix + "ordered", Queues: 1, Version: 11}}, Version: 11,
	}))
	select {
	case <-b.ready:
	case <-time.After(10 * time.Second):
		t.Fatal("not told")
	}
	require.Equal(t, "A2", names(b.popN(1)))
}

// TestOrderManyBehindOne: many messages behind a stuck one do not stop the others.
func TestOrderManyBehindOne(t *testing.T) {
	n := 200_000 / raceSlows
	b := newOrderedBench(t, Options{})
	b.sendGroups("A0")
	require.Equal(t, "A0", names(b.popN(1, func(r *brokerapi.PopRequest) { r.Invisible = 24 * time.Hour })))
	batch := make([]string, 0, 1000)
	for i := range n {
		if batch = append(batch, fmt.Sprint("A", i+1)); i%100 == 50 {
			batch = append(batch, fmt.Sprint("B", i))
		}
		if len(batch) >= 1000 || i == n-1 {
			b.sendGroups(batch...)
			batch = batch[:0]
		}
	}
	began := time.Now()
	others := 0
	for {
		ms := b.popN(32)
		if len(ms) == 0 {
			break
		}
		for _, m := range ms {
			require.Equal(t, byte('B'), m.body[0])
		}
		others += len(ms)
		b.ack(topicSync, groupOrdered, ms...)
	}
	require.Equal(t, n/100, others)
	t.Logf("%d messages behind one: looked through in %v", n, time.Since(began))
	b.sendGroups("B0", "C1")
	require.Equal(t, "B0 C1", names(b.popN(32)))
	b.same()
	d, err := b.proxy.DescribeGroup(t.Context(), brokerapi.TopicID(topicSync), brokerapi.GroupID(groupOrdered))
	require.NoError(t, err)
	require.EqualValues(t, n, d[0].Waiting)
	require.EqualValues(t, 0, d[0].Ready)
	b.clock.advance(25 * time.Hour)
	last := -1
	for last < 3000 {
		ms := pick2(b.popN(1000), 'A')
		for _, m := range ms {
			var i int
			_, err := fmt.Sscanf(m.body, "A%d", &i)
			require.NoError(t, err)
			require.Equal(t, last+1, i, "in order, without a gap")
			last = i
		}
		b.ack(topicSync, groupOrdered, ms...)
	}
}

func pick2(ms []got, group byte) []got {
	return slices.DeleteFunc(ms, func(m got) bool { return m.body[0] != group })
}

// TestOrderRecoversFromADamagedQueue: a replay that cannot read whose messages a lease handed out begins
// with the log's first record, which writes the consume queues anew.
//
//fault:damage a consume queue of an ordered group is damaged at a start => it is written anew from the log
func TestOrderRecoversFromADamagedQueue(t *testing.T) {
	b := newOrderedBench(t, Options{})
	many := make([]string, 3000)
	for i := range many {
		many[i] = fmt.Sprint("A", i)
	}
	b.sendGroups(many...)
	_, err := b.engine.Close()
	require.NoError(t, err)
	require.NoError(t, b.store.CloseClean(1))
	b.engine = nil
	b.mustOpen()
	ms := b.popN(3)
	require.Equal(t, "A0 A1 A2", names(ms))
	b.ack(topicSync, groupOrdered, ms[1])
	before := withoutEpoch(b.state())
	b.kill()
	for _, name := range must(b.fs.List("data/queue")) {
		f := must(b.fs.Open("data/queue/" + name))
		size := must(f.Size())
		_, err := f.WriteAt(make([]byte, size-4096), 4096) // all but the head of the file
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	b.mustOpen()
	require.EqualValues(t, b.store.Log().First(), b.engine.writer.views.saved)
	after := withoutEpoch(b.state())
	delete(before, sectionQueues)
	delete(after, sectionQueues) // other files
	require.Equal(t, before, after)
	b.clock.advance(31 * time.Second)
	require.Equal(t, "A0#2 A2#2 A3", names(b.popN(3)))
}
