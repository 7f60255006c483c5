package engine

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// topicDead is the dead-letter topic of group b, which gives up after two deliveries.
const topicDead record.TopicID = 40

// wantsTopics makes the engine note the topics that it asks for.
func wantsTopics(o *Options) chan string {
	asked := make(chan string, 64)
	o.Events.WantTopic = func(name string) {
		select {
		case asked <- name:
		default:
		}
	}
	return asked
}

// defineDead answers the engine's wish for the dead-letter topic of group b.
func (b *bench) defineDead() {
	b.t.Helper()
	require.NoError(b.t, b.engine.Define(b.t.Context(), &Definitions{
		Topics: []topic.Definition{{ID: topicDead, Name: "%DLQ%b", Queues: 1, Version: 9}}, Version: 9,
	}))
}

// turns lets the writer work until ok.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	end := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			b.t.Fatalf("never: %s", what)
		}
		require.NoError(b.t, b.engine.call(b.t.Context(), func(*writer) {}))
	}
}

// popDead receives from the dead-letter topic until it has n messages.
func (b *bench) popDead(n int) []got {
	b.t.Helper()
	var all []got
	b.until(fmt.Sprintf("%d dead letters", n), func() bool {
		all = append(all, b.mustPop(topicDead, groupA)...)
		return len(all) >= n
	})
	require.Len(b.t, all, n)
	return all
}

// use delivers everything of the sync topic to group b for the last time, and lets the leases end.
func (b *bench) use(n int) {
	b.t.Helper()
	for range 2 {
		require.Len(b.t, b.mustPop(topicSync, groupB), n)
		b.clock.advance(31 * time.Second)
	}
}

// properties are the user properties of a delivery.
func properties(t *testing.T, d brokerapi.Delivery) map[string]string {
	t.Helper()
	return pairs(t, d.User, 2)
}

// TestMaxAttempts: a message that was handed out as often as the group allows is moved, once, and says
// why; before the dead-letter topic exists it waits.
func TestMaxAttempts(t *testing.T) {
	o := Options{}
	asked := wantsTopics(&o)
	b := newBench(t, o)
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "m")
	first := b.clock.Wall()
	b.use(1)
	require.Empty(t, b.mustPop(topicSync, groupB), "it is not handed out a third time")
	b.until("the topic is asked for", func() bool { return len(asked) > 0 })
	require.Equal(t, "%DLQ%b", <-asked)
	require.EqualValues(t, 1, b.waiting(topicSync, groupB))
	require.Empty(t, asked, "asked once, not every turn")
	b.clock.advance(4 * time.Second)
	b.until("the topic is asked for again", func() bool { return len(asked) > 0 })
	b.defineDead()
	dead := b.popDead(1)[0]
	require.Equal(t, "m", dead.body)
	require.EqualValues(t, 1, dead.Attempt, "an ordinary topic: it is the first delivery there")
	p := properties(t, dead.Delivery)
	require.Equal(t, map[string]string{
		"DEAD_LETTER_REASON": "attempts used up", "DEAD_LETTER_ATTEMPTS": "2",
		"DEAD_LETTER_FIRST_DELIVERY": fmt.Sprint(first), "DEAD_LETTER_LAST_DELIVERY": fmt.Sprint(first + 31_000),
	}, p)
	origin := pairs(t, dead.Sys, 20)
	require.Len(t, origin, 1)
	require.Contains(t, origin, "sync")
	require.Zero(t, b.waiting(topicSync, groupB))
	before := b.state()
	b.again()
	require.Equal(t, withoutEpoch(before), withoutEpoch(b.state()), "the same views after a restart")
	require.Empty(t, b.mustPop(topicSync, groupB))
	require.EqualValues(t, 0, b.engine.Counts().DeadAttempts.Load())
}

// waiting is how many messages of a topic wait for a group.
func (b *bench) waiting(t record.TopicID, g record.GroupID) int64 {
	b.t.Helper()
	queues, err := b.proxy.DescribeGroup(b.t.Context(), brokerapi.TopicID(t), brokerapi.GroupID(g))
	require.NoError(b.t, err)
	n := int64(0)
	for _, q := range queues {
		n += q.Waiting
	}
	return n
}

// withoutEpoch leaves out what a restart changes.
func withoutEpoch(s map[string]string) map[string]string {
	delete(s, sectionBase)
	delete(s, sectionEpochs)
	return s
}

// TestDyingSurvivesRestart: what was dying dies after a restart, from the log and from a checkpoint.
func TestDyingSurvivesRestart(t *testing.T) {
	for _, how := range []string{"log", "checkpoint"} {
		t.Run(how, func(t *testing.T) {
			o := Options{}
			wantsTopics(&o)
			b := newBench(t, o)
			b.mustOpen()
			b.define()
			b.mustSend(topicSync, "a", "b", "c")
			b.use(3)
			require.Empty(t, b.mustPop(topicSync, groupB))
			if how == "log" {
				b.again()
			} else {
				_, err := b.engine.Close()
				require.NoError(t, err)
				require.NoError(t, b.store.Close())
				b.mustOpen()
			}
			b.defineDead()
			require.ElementsMatch(t, []string{"a", "b", "c"}, bodies(b.popDead(3)))
			require.EqualValues(t, 3, b.engine.Counts().DeadAttempts.Load())
		})
	}
}

// TestDyingIsAcked: an ack that comes while the message waits for its dead-letter topic ends it.
func TestDyingIsAcked(t *testing.T) {
	o := Options{}
	wantsTopics(&o)
	b := newBench(t, o)
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "m")
	b.mustPop(topicSync, groupB)
	b.clock.advance(31 * time.Second)
	last := b.mustPop(topicSync, groupB)
	b.clock.advance(31 * time.Second)
	require.Empty(t, b.mustPop(topicSync, groupB))
	require.NoError(t, b.ack(topicSync, groupB, last...)[0])
	b.defineDead()
	b.clock.advance(time.Minute)
	b.until("a few turns", func() bool { return b.engine.Counts().Turns.Load() > 60 })
	require.Empty(t, b.mustPop(topicDead, groupA))
}

// TestDyingInCrowds: many messages die at once, in bounded pieces, each once.
func TestDyingInCrowds(t *testing.T) {
	o := Options{}
	wantsTopics(&o)
	b := newBench(t, o)
	b.mustOpen()
	b.define()
	b.defineDead()
	const n = 300
	want := map[string]bool{}
	for i := range n {
		body := fmt.Sprintf("m%d-%s", i, strings.Repeat("x", 20_000))
		want[body] = true
		b.mustSend(topicSync, body)
	}
	for range 2 {
		left := n
		for left > 0 {
			left -= len(b.mustPop(topicSync, groupB))
		}
		b.clock.advance(31 * time.Second)
	}
	for _, m := range b.popDead(n) {
		require.True(t, want[m.body], "%.10s came twice, or never was", m.body)
		delete(want, m.body)
	}
}

// TestOwnDeadLetters: the dead letters of a group do not die for the group itself.
func TestOwnDeadLetters(t *testing.T) {
	o := Options{}
	wantsTopics(&o)
	b := newBench(t, o)
	b.mustOpen()
	b.define()
	b.defineDead()
	b.mustSend(topicDead, "m")
	for n := range 4 {
		m := b.mustPop(topicDead, groupB)
		require.Len(t, m, 1)
		require.EqualValues(t, n+1, m[0].Attempt)
		b.clock.advance(31 * time.Second)
	}
}

func (b *bench) forward(t record.TopicID, g record.GroupID, ms ...got) ([]error, error) {
	b.t.Helper()
	req := &brokerapi.ForwardRequest{Topic: brokerapi.TopicID(t), Group: brokerapi.GroupID(g)}
	for _, m := range ms {
		req.Handles = append(req.Handles, m.handle())
	}
	r, err := wait(b.t, func(done func(*brokerapi.ForwardReply, error)) { b.proxy.Forward(req, done) })
	if err != nil {
		return nil, err
	}
	return r.Errors, nil
}

// TestForward: at once, once, whoever asks again; not with the handle of an older delivery.
func TestForward(t *testing.T) {
	o := Options{}
	wantsTopics(&o)
	b := newBench(t, o)
	b.mustOpen()
	b.define()
	b.defineDead()
	b.mustSend(topicSync, "old", "new")
	old := b.mustPop(topicSync, groupB)
	b.clock.advance(31 * time.Second)
	held := b.mustPop(topicSync, groupB)
	require.Len(t, held, 2)
	errs, err := b.forward(topicSync, groupB, held[0], old[1], held[0])
	require.NoError(t, err)
	require.NoError(t, errs[0])
	require.True(t, mqerr.Is(errs[1], mqerr.HandleInvalid), "%v", errs[1])
	require.NoError(t, errs[2])
	errs, err = b.forward(topicSync, groupB, held[0])
	require.NoError(t, err)
	require.NoError(t, errs[0], "again")
	require.NoError(t, b.ack(topicSync, groupB, held[0])[0], "and an ack after it")
	require.NoError(t, b.ack(topicSync, groupB, held[1])[0])
	errs, err = b.forward(topicSync, groupB, held[1])
	require.NoError(t, err)
	require.NoError(t, errs[0], "after an ack: nothing is stored")
	dead := b.popDead(1)[0]
	require.Equal(t, held[0].body, dead.body)
	require.Equal(t, "forwarded by consumer", properties(t, dead.Delivery)["DEAD_LETTER_REASON"])
	require.EqualValues(t, 1, b.engine.Counts().DeadClient.Load())
	before := b.state()
	b.again()
	require.Equal(t, withoutEpoch(before), withoutEpoch(b.state()))
	require.Empty(t, b.mustPop(topicSync, groupB))
}

// TestForwardWaitsForItsTopic: the first dead letter of a group makes its topic. A caller who cannot wait
// is told to try again, and nothing has happened to the message.
func TestForwardWaitsForItsTopic(t *testing.T) {
	o := Options{}
	asked := wantsTopics(&o)
	b := newBench(t, o)
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "m")
	held := b.mustPop(topicSync, groupB)
	type result struct {
		errs []error
		err  error
	}
	try := func() chan result {
		c := make(chan result, 1)
		b.proxy.Forward(&brokerapi.ForwardRequest{Topic: 1, Group: 2, Handles: []brokerapi.Handle{held[0].handle()}}, func(r *brokerapi.ForwardReply, err error) {
			if err != nil {
				c <- result{nil, err}
				return
			}
			c <- result{r.Errors, nil}
		})
		return c
	}
	one := try()
	require.Equal(t, "%DLQ%b", <-asked)
	b.clock.advance(3 * time.Second)
	b.until("it gives up", func() bool { return len(one) > 0 })
	require.True(t, mqerr.Is((<-one).err, mqerr.Unavailable))
	two := try()
	b.defineDead()
	b.until("it goes on", func() bool { return len(two) > 0 })
	r := <-two
	require.NoError(t, r.err)
	require.NoError(t, r.errs[0])
	require.Equal(t, "m", b.popDead(1)[0].body)
	three := try() // one that waits when the engine ends is answered, too
	b.until("it is answered", func() bool { return len(three) > 0 })
}

// TestForwardEndsWithTheEngine: what waits for a topic is answered at the end.
func TestForwardEndsWithTheEngine(t *testing.T) {
	o := Options{}
	asked := wantsTopics(&o)
	b := newBench(t, o)
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "m")
	held := b.mustPop(topicSync, groupB)
	ended := make(chan error, 1)
	b.proxy.Forward(&brokerapi.ForwardRequest{Topic: 1, Group: 2, Handles: []brokerapi.Handle{held[0].handle()}}, func(_ *brokerapi.ForwardReply, err error) { ended <- err })
	<-asked
	_, err := b.engine.Close()
	require.NoError(t, err)
	require.Error(t, <-ended)
	require.NoError(t, b.store.Close())
	b.mustOpen()
}

// TestDeadLetterIsLogged once a minute and group.
func TestDeadLetterIsLogged(t *testing.T) {
	logs := &lines{}
	o := Options{Log: slog.New(logs)}
	wantsTopics(&o)
	b := newBench(t, o)
	b.mustOpen()
	b.define()
	b.defineDead()
	b.mustSend(topicSync, "a", "b", "c")
	for _, m := range b.mustPop(topicSync, groupB)[:2] {
		_, err := b.forward(topicSync, groupB, m)
		require.NoError(t, err)
	}
	require.Equal(t, 1, logs.count("dead letter"))
	b.clock.advance(61 * time.Second)
	for _, m := range b.mustPop(topicSync, groupB) {
		_, err := b.forward(topicSync, groupB, m)
		require.NoError(t, err)
	}
	require.Equal(t, 2, logs.count("dead letter"))
}

// lines counts log lines.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, r.Message)
	return nil
}

func (l *lines) count(prefix string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, s := range l.text {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}
