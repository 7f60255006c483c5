package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// TestJudgeLeft: a receive that is given up while messages are read for its filter leaves nothing behind.
func TestJudgeLeft(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.numbered(topicAsync, 200)
	b.again()
	for range cap(b.engine.flights) {
		b.engine.flights <- struct{}{}
	}
	proxy, err := b.engine.Attach("other", brokerapi.Events{})
	require.NoError(t, err)
	answered := make(chan error, 1)
	req := sqlPop("n = -1", 1)
	proxy.Pop(&req, func(_ *brokerapi.PopReply, err error) { answered <- err })
	judges := func() (n int) {
		require.NoError(t, b.engine.call(t.Context(), func(w *writer) { n = len(w.topics.byID[topicAsync].sub(groupA).judges) }))
		return n
	}
	require.Equal(t, 1, judges())
	require.NoError(t, proxy.Close())
	for range cap(b.engine.flights) {
		<-b.engine.flights
	}
	require.True(t, mqerr.Is(<-answered, mqerr.Unavailable))
	require.Zero(t, judges())
}

// TestPullWithSQLDeadline: a pull that has read nothing that fits until its time is over says how far it came.
func TestPullWithSQLDeadline(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.numbered(topicAsync, 2000)
	b.again()
	for range cap(b.engine.cold) {
		b.engine.cold <- struct{}{}
	}
	replies := make(chan *brokerapi.PullReply, 1)
	b.proxy.Pull(&brokerapi.PullRequest{
		Head: brokerapi.Head{Deadline: time.Now().Add(time.Hour)}, Topic: brokerapi.TopicID(topicAsync), Max: 1,
		Filter: brokerapi.Filter{Kind: brokerapi.FilterSQL, SQL: "n = -1"},
	}, func(r *brokerapi.PullReply, _ error) { replies <- r })
	require.NoError(t, b.engine.call(t.Context(), func(*writer) {}))
	b.clock.advance(2 * time.Hour)
	for range cap(b.engine.cold) {
		<-b.engine.cold
	}
	r := <-replies
	require.NotNil(t, r)
	require.EqualValues(t, candidates, r.Next)
	require.Greater(t, r.Max, r.Next)
	r.Release()
}

// TestLiteSubscriptionsComeAndGo: subscriptions that ended are not remembered.
func TestLiteSubscriptionsComeAndGo(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineLite()
	b.sendLite("a", "a")
	b.sendLite("b", "b")
	b.sendLite("c", "c")
	for range 50 {
		b.subscribeLite(groupLite, "client", "a", "b", "c")
		b.subscribeLite(groupLite, "client", "a", "c")
		b.subscribeLite(groupLite, "client", "c")
	}
	b.subscribeLite(groupLite, "client", "c", "b")
	n := 0
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
		for s := w.topics.byID[topicLite].lite.groups[groupLite].clients["client"].first; s != nil; s = s.next {
			n++
		}
	}))
	require.Equal(t, 2, n)
	require.ElementsMatch(t, []string{"b", "c"}, b.drainLite(groupLite, "client"))
}
