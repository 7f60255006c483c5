package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// life asks until the trace is over, with at most so many events in one answer.
func (b *bench) life(topic brokerapi.TopicID, pos brokerapi.LogPos, events int) []brokerapi.TraceEvent {
	b.t.Helper()
	req := brokerapi.TraceRequest{Topic: topic, Pos: pos, Max: events}
	var all []brokerapi.TraceEvent
	for {
		r, err := b.proxy.Trace(b.t.Context(), &req)
		require.NoError(b.t, err)
		all = append(all, r.Events...)
		if !r.More {
			require.Equal(b.t, r.End, r.Next)
			return all
		}
		req.State = r.State
	}
}

// TestTrace: what happens to a message can be told from the log, in one answer as in many.
func TestTrace(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	sync, ga, gb := brokerapi.TopicID(topicSync), brokerapi.GroupID(groupA), brokerapi.GroupID(groupB)
	pop := func(client string, g brokerapi.GroupID, session bool, tags ...string) []got {
		t.Helper()
		req := brokerapi.PopRequest{Topic: sync, Group: g, Client: client, Session: session, Max: 1}
		if len(tags) > 0 {
			req.Filter = brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: tags}
		}
		ms, _, err := b.pop(req)
		require.NoError(t, err)
		return ms
	}
	b.mustSend(topicSync, "before")
	require.Len(t, pop("early", ga, false), 1) // defines the number of this client
	pos := b.mustSend(topicSync, "one")[0]
	b.clock.advance(time.Second)
	m := pop("early", ga, false)
	require.Len(t, m, 1)
	require.Equal(t, []error{nil}, b.change(topicSync, groupA, 0, brokerapi.ChangeLease, m...))
	m = pop("late", ga, false)
	require.Len(t, m, 1)
	require.Equal(t, []error{nil}, b.change(topicSync, groupA, 10*time.Minute, brokerapi.ChangeLease, m...))
	b.clock.advance(time.Second)
	require.Equal(t, []error{nil}, b.ack(topicSync, groupA, m...))
	pop("picky", gb, false, "nosuchtag")
	for i := range 50 { // others do not matter
		b.mustSend(topicSync, fmt.Sprintf("other %d", i))
		m := pop("late", ga, false)
		require.Equal(t, []error{nil}, b.ack(topicSync, groupA, m...))
	}
	all := b.life(sync, pos.Pos, 0)
	var told []string
	for _, e := range all {
		told = append(told, fmt.Sprintf("%s group %d client %q attempt %d", e.What, e.Group, e.Client, e.Attempt))
	}
	require.Equal(t, []string{
		`stored group 0 client "" attempt 0`,
		`leased group 1 client "early" attempt 1`,
		`nacked group 1 client "early" attempt 1`,
		`leased group 1 client "late" attempt 2`,
		`changed group 1 client "late" attempt 2`,
		`acked group 1 client "late" attempt 2`,
		`filtered group 2 client "" attempt 0`,
	}, told)
	require.InDelta(t, all[1].TimeMS+30_000, all[1].UntilMS, 1)
	require.InDelta(t, all[4].TimeMS+600_000, all[4].UntilMS, 1)
	require.Equal(t, fmt.Sprintf("queue %d offset %d", pos.Queue, pos.Offset), all[0].Text)
	for max := 1; max < 4; max++ {
		parts := b.life(sync, pos.Pos, max)
		require.Len(t, parts, len(all))
		for i := range all {
			require.Equal(t, all[i].Pos, parts[i].Pos)
			require.Equal(t, all[i].What, parts[i].What)
		}
	}
	b.engine.o.TraceBytes = 1
	require.Len(t, b.life(sync, pos.Pos, 0), len(all))
	b.engine.o.TraceBytes = 1 << 20

	// A client that is gone, and whose lease was one of its session.
	second := b.mustSend(topicSync, "two")[0]
	require.Len(t, pop("mortal", ga, true), 1)
	require.NoError(t, b.proxy.EndSession(t.Context(), "mortal"))
	require.NoError(t, b.proxy.EndSession(t.Context(), "early"))
	told = nil
	for _, e := range b.life(sync, second.Pos, 0) {
		told = append(told, fmt.Sprintf("%s by %q", e.What, e.Client))
	}
	require.Equal(t, []string{`stored by ""`, `leased by "mortal"`, `ended by "mortal"`}, told)
	gone := b.life(sync, pos.Pos, 0)
	require.Regexp(t, `^client #\d+$`, gone[1].Client, "its number was defined before the message, and nobody has it now")
	b.again()
	require.Equal(t, gone, b.life(sync, pos.Pos, 0), "as before the restart")

	_, err := b.proxy.Trace(t.Context(), &brokerapi.TraceRequest{Topic: sync, Pos: pos.Pos + 8})
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
	_, err = b.proxy.Trace(t.Context(), &brokerapi.TraceRequest{Topic: sync, Pos: 1 << 50})
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
	_, err = b.proxy.Trace(t.Context(), &brokerapi.TraceRequest{Topic: sync, Pos: pos.Pos, State: []byte("{}x")})
	require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
	_, err = b.proxy.Trace(t.Context(), &brokerapi.TraceRequest{Topic: sync, Pos: pos.Pos, State: []byte(`{"next":` + fmt.Sprint(int64(pos.Pos)+1) + `}`)})
	require.Error(t, err, "a position that no record begins at")
}
