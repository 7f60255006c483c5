package engine

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// defineBounded makes the test's topics, with group a bounded.
func (b *bench) defineBounded(all, client int64, version uint64, change ...func(*group.Definition)) {
	b.t.Helper()
	d := definitions()
	for i := range d.Groups {
		if g := &d.Groups[i]; g.ID == groupA {
			g.MaxInFlight, g.MaxInFlightClient, g.Version = all, client, version
			for _, f := range change {
				f(g)
			}
		}
	}
	d.Version = version
	require.NoError(b.t, b.engine.Define(b.t.Context(), d))
}

// armed receives for one client and tells how many messages came, whether there is more, and whether the
// client is full.
func (b *bench) armed(t record.TopicID, g record.GroupID, client string, max int) (out []got, more, full bool) {
	b.t.Helper()
	req := &brokerapi.PopRequest{Topic: brokerapi.TopicID(t), Group: brokerapi.GroupID(g), Client: client, Max: max, Invisible: 30 * time.Second, Arm: true}
	r, err := wait(b.t, func(done func(*brokerapi.PopReply, error)) { b.proxy.Pop(req, done) })
	require.NoError(b.t, err)
	defer r.Release()
	for _, m := range r.Messages {
		out = append(out, got{m, string(m.Body)})
	}
	return out, r.More, r.Full
}

func (b *bench) noEvent() {
	b.t.Helper()
	b.settleTurn()
	select {
	case e := <-b.ready:
		b.t.Fatalf("an event for somebody who cannot have more: %+v", e)
	default:
	}
}

// settleTurn waits for the end of a turn that began after the call.
func (b *bench) settleTurn() {
	for range 2 {
		require.NoError(b.t, b.engine.call(b.t.Context(), func(*writer) {}))
	}
}

func many(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func TestGroupIsBounded(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineBounded(5, 0, 10)
	b.mustSend(topicSync, many(20)...)
	out, more, full := b.armed(topicSync, groupA, "one", 3)
	require.Len(t, out, 3)
	require.True(t, more)
	require.False(t, full)
	second, more, _ := b.armed(topicSync, groupA, "two", 3)
	require.Len(t, second, 2, "to the bound, exactly")
	require.False(t, more, "nothing more for anybody")
	none, more, full := b.armed(topicSync, groupA, "three", 3)
	require.Empty(t, none)
	require.False(t, more || full)
	b.mustSend(topicSync, "another")
	b.noEvent()

	b.again() // leases, and so the bound, are known again
	none, _, _ = b.armed(topicSync, groupA, "three", 3)
	require.Empty(t, none)
	b.ack(topicSync, groupA, out[0])
	require.Equal(t, brokerapi.Ready{Topic: 1, Group: 1, Count: 1}, b.event(), "room for one")
	got, _, _ := b.armed(topicSync, groupA, "three", 3)
	require.Len(t, got, 1)
	b.change(topicSync, groupA, 0, brokerapi.ChangeKeep, got...)
	b.event()
	got, _, _ = b.armed(topicSync, groupA, "three", 3)
	require.Len(t, got, 1)
	b.clock.advance(time.Minute) // all leases end
	b.settleTurn()
	b.event()
	got, more, _ = b.armed(topicSync, groupA, "three", 32)
	require.Len(t, got, 5)
	require.False(t, more)
	b.defineBounded(7, 0, 11)
	b.event()
	got, _, _ = b.armed(topicSync, groupA, "three", 32)
	require.Len(t, got, 2)
	require.EqualValues(t, 1, b.engine.Counts().InFlightFull.Load(), "the bound shows where it was met")
}

// TestUnknownClientIsBounded: the first receive of a client that nobody knows yet gets no more than it may have.
func TestUnknownClientIsBounded(t *testing.T) {
	b := newBench(t, Options{MaxInFlightClient: 4})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, many(20)...)
	out, _, _ := b.armed(topicSync, groupA, "new", 10)
	require.Len(t, out, 4)
}

func TestClientIsBounded(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered=%v", ordered), func(t *testing.T) {
			b := newBench(t, Options{MaxInFlightClient: 4})
			b.mustOpen()
			b.defineBounded(0, 0, 10, func(g *group.Definition) { g.Ordered = ordered })
			for i := range 20 {
				m := message(fmt.Sprint(i))
				m.Type, m.Queue, m.GroupHash = brokerapi.FIFO, brokerapi.QueueID(i%4), uint64(i+1)
				req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{m}}
				_, err := wait(t, func(done func(*brokerapi.SendReply, error)) { b.proxy.Send(req, done) })
				require.NoError(t, err)
			}
			var greedy []got
			for range 4 {
				out, _, _ := b.armed(topicSync, groupA, "greedy", 3)
				greedy = append(greedy, out...)
			}
			require.Len(t, greedy, 4, "one client cannot lease the whole backlog")
			_, more, full := b.armed(topicSync, groupA, "greedy", 3)
			require.True(t, more && full, "there is more, for others")
			other, _, full := b.armed(topicSync, groupA, "other", 3)
			require.Len(t, other, 3)
			require.False(t, full)
			b.noEvent()
			b.ack(topicSync, groupA, greedy[0])
			require.Equal(t, brokerapi.Ready{Topic: 1, Group: 1, Client: brokerapi.HashClient("greedy"), Count: 1}, b.event())
			out, _, full := b.armed(topicSync, groupA, "greedy", 3)
			require.Len(t, out, 1)
			require.False(t, full)
		})
	}
}

func TestLiteClientIsBounded(t *testing.T) {
	b := newBench(t, Options{MaxInFlight: 3, MaxInFlightClient: 2})
	b.mustOpen()
	b.defineLite()
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		b.sendLite(name, name)
	}
	b.subscribeLite(groupLite, "one", "a", "b", "c", "d")
	b.subscribeLite(groupLite, "two", "e", "f")
	one, more, full := b.armed(topicLite, groupLite, "one", 32)
	require.Len(t, one, 2)
	require.False(t, more || full)
	two, _, _ := b.armed(topicLite, groupLite, "two", 32)
	require.Len(t, two, 1, "the group's bound")
	none, _, _ := b.armed(topicLite, groupLite, "two", 32)
	require.Empty(t, none)
	b.noEvent()
	b.ack(topicLite, groupLite, one[0])
	clients := map[uint64]bool{b.event().Client: true, b.event().Client: true}
	require.Equal(t, map[uint64]bool{brokerapi.HashClient("one"): true, brokerapi.HashClient("two"): true}, clients)
	two, _, _ = b.armed(topicLite, groupLite, "two", 32)
	require.Len(t, two, 1)
	none, _, _ = b.armed(topicLite, groupLite, "one", 32)
	require.Empty(t, none)
	b.ack(topicLite, groupLite, two...)
	require.Equal(t, brokerapi.HashClient("one"), b.event().Client)
}

// TestNewBoundOfAClientIsTold: a client that waits at its bound hears when the group gets a larger one.
func TestNewBoundOfAClientIsTold(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineBounded(0, 2, 10)
	b.mustSend(topicSync, many(10)...)
	out, _, _ := b.armed(topicSync, groupA, "one", 5)
	require.Len(t, out, 2)
	none, _, full := b.armed(topicSync, groupA, "one", 5)
	require.Empty(t, none)
	require.True(t, full)
	b.noEvent()
	b.defineBounded(0, 3, 11)
	require.Equal(t, brokerapi.Ready{Topic: 1, Group: 1, Client: brokerapi.HashClient("one"), Count: 1}, b.event())
	out, _, _ = b.armed(topicSync, groupA, "one", 5)
	require.Len(t, out, 1)
}

// TestTableIsBounded: nothing new is handed out at the bound of all groups, but what came back is.
func TestTableIsBounded(t *testing.T) {
	b := newBench(t, Options{InFlightTable: 4})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, many(10)...)
	first := b.mustPop(topicSync, groupA)
	require.GreaterOrEqual(t, len(first), 4)
	_, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupB)})
	require.True(t, mqerr.Is(err, mqerr.Exhausted), "%v", err)
	require.EqualValues(t, 1, b.engine.Counts().TableFull.Load())
	b.clock.advance(time.Minute)
	again := b.mustPop(topicSync, groupA)
	require.Equal(t, len(first), len(again))
	for _, err := range b.ack(topicSync, groupA, again...) {
		require.NoError(t, err)
	}
	require.NotEmpty(t, b.mustPop(topicSync, groupB))
}

// TestBoundsSurviveATopic: who waits for room on a topic that is deleted is forgotten, and the group's room is
// there again.
func TestBoundsSurviveATopic(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineBounded(2, 1, 10)
	b.mustSend(topicSync, many(5)...)
	b.mustSend(topicAsync, many(5)...)
	for _, client := range []string{"one", "two"} {
		out, _, _ := b.armed(topicSync, groupA, client, 5)
		require.Len(t, out, 1)
	}
	none, _, _ := b.armed(topicAsync, groupA, "three", 5)
	require.Empty(t, none)
	d := definitions()
	d.Topics = []topic.Definition{d.Topics[1]}
	d.Groups[0].MaxInFlight, d.Groups[0].MaxInFlightClient, d.Groups[0].Version = 2, 1, 10
	d.Version = 12
	require.NoError(t, b.engine.Define(t.Context(), d))
	require.EqualValues(t, topicAsync, b.event().Topic)
	out, _, _ := b.armed(topicAsync, groupA, "three", 5)
	require.Len(t, out, 1)
}

// TestMemoryIsShort: sends are refused, nothing new is handed out, acks and what comes back go on.
func TestMemoryIsShort(t *testing.T) {
	var pressed atomic.Bool
	var refused atomic.Int64
	b := newBench(t, Options{Pressed: pressed.Load, PressedRefused: func() { refused.Add(1) }})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, many(4)...)
	first, _, _ := b.armed(topicSync, groupA, "one", 2)
	require.Len(t, first, 2)
	pressed.Store(true)
	_, err := b.send(topicSync, "no")
	require.True(t, mqerr.Is(err, mqerr.Exhausted), "%v", err)
	_, _, err = b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA)})
	require.True(t, mqerr.Is(err, mqerr.Exhausted), "%v", err)
	require.NoError(t, b.ack(topicSync, groupA, first[0])[0])
	b.clock.advance(time.Minute)
	require.Len(t, b.mustPop(topicSync, groupA), 1)
	require.EqualValues(t, 2, refused.Load(), "what was refused counts, and not how often memory was looked at")
	pressed.Store(false)
	b.mustSend(topicSync, "yes")
	require.Len(t, b.mustPop(topicSync, groupA), 3)
}

// Describe shows the bounds that count: the group's own, else the broker's.
func TestBoundsAreDescribed(t *testing.T) {
	b := newBench(t, Options{MaxInFlight: 50, MaxInFlightClient: 40})
	b.mustOpen()
	for version, own := range []int64{0, 7, 0} {
		b.defineBounded(own, 0, uint64(10+version))
		qs, err := b.proxy.DescribeGroup(t.Context(), brokerapi.TopicID(topicSync), brokerapi.GroupID(groupA))
		require.NoError(t, err)
		for _, q := range qs {
			require.Equal(t, [2]int64{or(own, 50), 40}, [2]int64{q.MaxInFlight, q.MaxInFlightClient})
		}
	}
}
