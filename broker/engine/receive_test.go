package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// TestTagsAreComparedByText: an equal hash is not an equal tag. What the text tells apart is done.
func TestTagsAreComparedByText(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	m := message("other")
	m.TagHash, m.Sys = brokerapi.HashTag([]byte("blue")), append([]byte{tagField<<3 | 2, 5}, "other"...)
	_, err := wait(t, func(done func(*brokerapi.SendReply, error)) {
		b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{m}}, done)
	})
	require.NoError(t, err)
	want := brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: []string{"blue"}}
	ms, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Filter: want})
	require.NoError(t, err)
	require.Empty(t, ms)
	b.clock.advance(time.Hour)
	require.Empty(t, b.mustPop(topicSync, groupA), "done for the group")
	require.Len(t, b.mustPop(topicSync, groupB), 1)
}

// TestBoundsOfAReply: at most Max messages and MaxBytes of records, and More tells the truth.
func TestBoundsOfAReply(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	body := string(make([]byte, 10_000))
	b.mustSend(topicSync, body, body, body, body, body, body, body)
	pop := func(most, bytes int) (int, bool) {
		ms, more, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Max: most, MaxBytes: bytes})
		require.NoError(t, err)
		return len(ms), more
	}
	for _, c := range []struct {
		most, bytes, got int
		more             bool
	}{{2, 0, 2, true}, {-5, 0, 1, true}, {32, 25_000, 2, true}, {32, -1, 1, true}, {1 << 40, 1 << 40, 1, false}, {1, 0, 0, false}} {
		n, more := pop(c.most, c.bytes)
		require.Equal(t, c.got, n, "%+v", c)
		require.Equal(t, c.more, more, "%+v", c)
	}
}

// TestGoneProxyHearsNothing: what it armed is forgotten, and a receive that comes behind its end does not
// arm.
func TestGoneProxyHearsNothing(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	req := &brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Max: 1, Invisible: time.Minute, Arm: true}
	pop := func(via func(done func(*brokerapi.PopReply, error))) {
		r, err := wait(t, via)
		require.NoError(t, err)
		require.Empty(t, r.Messages)
	}
	armed := func() (n int) {
		require.NoError(t, b.engine.call(t.Context(), func(w *writer) { n = w.ready.armed }))
		return n
	}
	pop(func(done func(*brokerapi.PopReply, error)) { b.proxy.Pop(req, done) })
	require.Equal(t, 1, armed())
	require.NoError(t, b.proxy.Close())
	require.Zero(t, armed())
	pop(func(done func(*brokerapi.PopReply, error)) {
		b.engine.submit(&popOp{from: b.proxy.(*session), req: req, done: done})
	})
	require.Zero(t, armed())
	_, err := wait(t, func(done func(*brokerapi.PopReply, error)) { b.proxy.Pop(req, done) })
	require.True(t, mqerr.Is(err, mqerr.Unavailable), "%v", err)
}

// TestGroupThatFoundNothingHasBegun: also behind messages that it does not want, and after a restart.
func TestGroupThatFoundNothingHasBegun(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicAsync, "old")
	defs := definitions()
	defs.Groups = append(defs.Groups, groupFrom(10, "last", 1, 0))
	require.NoError(t, b.engine.Define(t.Context(), defs))
	require.Empty(t, b.mustPop(topicAsync, 10))
	b.again()
	qs, err := b.proxy.DescribeGroup(t.Context(), brokerapi.TopicID(topicAsync), 10)
	require.NoError(t, err)
	require.True(t, qs[0].Used)
	require.EqualValues(t, 1, qs[0].Floor)
}
