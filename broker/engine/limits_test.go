package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/store/record"
)

// limit gives a topic limits by a new definition.
func (b *bench) limit(id record.TopicID, l topic.Limits) {
	b.t.Helper()
	var d topic.Definition
	require.NoError(b.t, b.engine.call(b.t.Context(), func(w *writer) { d = *w.views.topics.Get(id) }))
	d.Limits, d.Version = l, d.Version+100
	require.NoError(b.t, b.engine.Define(b.t.Context(), &Definitions{Topics: []topic.Definition{d}, Version: d.Version}))
}

// A topic's times and number of checks count in the place of the broker's, at once and after a restart; what is in
// the log stays.
func TestCheckLimitsOfATopic(t *testing.T) {
	b := newBench(t, Options{Txn: TxnOptions{CheckLimit: 5}})
	b.mustOpen()
	b.define()
	defineParking(b)
	b.limit(topicSync, topic.Limits{CheckAfterMS: 1000, CheckIntervalMS: 2000, CheckLimit: 2})
	for _, restart := range []bool{false, true} {
		if restart {
			b.sameAgain()
		}
		p := b.attachProducer("p", topicSync)
		before := b.engine.Counts().GivenUp.Load()
		b.mustHalf(fmt.Sprint("default ", restart), "a")
		id := fmt.Sprint("said ", restart)
		said := half(id, "b")
		said.Messages[0].CheckAfter = 20 * time.Second
		_, err := b.sendReq(said)
		require.NoError(t, err)
		b.pass(999 * time.Millisecond)
		require.Empty(t, p.take(10))
		b.pass(time.Millisecond)
		require.Len(t, p.take(10), 1)
		b.pass(2 * time.Second)
		require.Len(t, p.take(10), 1)
		require.Equal(t, before, b.engine.Counts().GivenUp.Load())
		b.pass(2 * time.Second)
		require.Equal(t, before+1, b.engine.Counts().GivenUp.Load(), "two checks, then it is given up")
		require.Empty(t, p.take(10))
		b.pass(15 * time.Second)
		require.Len(t, p.take(10), 1, "the sender's own time goes before")
		require.NoError(t, b.end(id, true))
		require.NoError(t, p.broker.Close())
	}
}

// A lower number of checks counts for transactions that are open, without anybody asking.
func TestLowerCheckLimit(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	defineParking(b)
	p := b.attachProducer("p", topicSync)
	b.mustHalf("id", "a")
	b.pass(6 * time.Second)
	require.Len(t, p.take(10), 1)
	require.NoError(t, p.broker.Close())
	b.pass(time.Minute)
	require.Zero(t, b.engine.Counts().GivenUp.Load())
	b.limit(topicSync, topic.Limits{CheckLimit: 1})
	b.look()
	require.EqualValues(t, 1, b.engine.Counts().GivenUp.Load())
	b.sameAgain()
}

// The expiry of lite topics is the parent's; a change counts for those that exist.
func TestLiteExpiryOfATopic(t *testing.T) {
	b := newBench(t, Options{LiteExpiry: 10 * time.Hour})
	b.mustOpen()
	b.defineLite()
	names := func() (out []string) {
		t.Helper()
		require.NoError(t, b.engine.call(t.Context(), func(*writer) {})) // a turn
		require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
			w.views.lite.Each(topicLite, func(c *lite.Topic) { out = append(out, c.Name) })
		}))
		slices.Sort(out)
		return out
	}
	b.sendLite("old", "1")
	b.clock.advance(2 * time.Hour)
	b.sendLite("new", "1")
	require.Equal(t, []string{"new", "old"}, names())
	b.limit(topicLite, topic.Limits{LiteExpiryMS: time.Hour.Milliseconds()})
	require.Equal(t, []string{"new"}, names(), "nobody read it")
	b.sendLite("third", "1")
	b.again()
	b.clock.advance(59 * time.Minute)
	require.Equal(t, []string{"new", "third"}, names())
	b.limit(topicLite, topic.Limits{})
	b.clock.advance(8 * time.Hour)
	require.Equal(t, []string{"new", "third"}, names(), "the broker's own again")
	b.clock.advance(2 * time.Hour)
	require.Empty(t, names())
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) { require.Empty(t, w.lite.old) }))
}

// A topic's duplicate window is its own: shorter, longer, none, or one where the broker has none.
func TestDuplicateWindowOfATopic(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define() // the broker's window is 10 minutes
	b.limit(topicSync, topic.Limits{DuplicatesMS: 1000})
	b.limit(topicAsync, topic.Limits{DuplicatesMS: time.Hour.Milliseconds()})
	short, long := b.sendThese(topicSync, named("x", "x"))[0], b.sendThese(topicAsync, named("x", "x"))[0]
	b.clock.advance(999 * time.Millisecond)
	require.Equal(t, again(short), b.sendThese(topicSync, named("x", "x"))[0])
	b.clock.advance(time.Millisecond)
	require.False(t, b.sendThese(topicSync, named("x", "x"))[0].Duplicate, "its window is over")
	for i := range 59 {
		b.clock.advance(time.Minute)
		switch i {
		case 20:
			b.sameAfterRestart()
		case 40:
			b.again() // by replay
		}
		b.mustSend(topicSync, "more") // what is old goes
		require.Equal(t, again(long), b.sendThese(topicAsync, named("x", "x"))[0], i)
	}
	b.clock.advance(time.Minute)
	require.False(t, b.sendThese(topicAsync, named("x", "x"))[0].Duplicate)

	b.limit(topicAsync, topic.Limits{DuplicatesMS: -1})
	require.False(t, b.sendThese(topicAsync, named("x", "x"))[0].Duplicate, "none at all")
	for _, r := range b.sendThese(topicAsync, named("y", "y"), named("y", "y")) {
		require.False(t, r.Duplicate)
	}
	b.sameAfterRestart()
	require.False(t, b.sendThese(topicAsync, named("y", "y"))[0].Duplicate)
	require.Equal(t, 10*time.Minute, b.engine.views.dups.Window(), "nobody asks for more")
}
