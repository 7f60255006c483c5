package engine

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

const (
	topicLite  record.TopicID = 9
	groupLite  record.GroupID = 9
	groupLite2 record.GroupID = 10
)

// defineLite makes a parent of lite topics with two groups that are bound to it.
func (b *bench) defineLite() {
	b.t.Helper()
	d := definitions()
	d.Topics = append(d.Topics, topic.Definition{ID: topicLite, Name: "parent", Type: 5, Queues: 1, Flush: topic.FlushSync, Version: 5})
	d.Groups = append(d.Groups,
		group.Definition{ID: groupLite, Name: "lite", MaxAttempts: 17, LiteTopic: "parent", Version: 6},
		group.Definition{ID: groupLite2, Name: "lite2", MaxAttempts: 17, LiteTopic: "parent", Version: 7})
	d.Version = 7
	require.NoError(b.t, b.engine.Define(b.t.Context(), d))
}

func liteMessage(name, body string) brokerapi.Message {
	m := message(body)
	m.Type, m.Lite = brokerapi.Lite, name
	return m
}

func (b *bench) trySendLite(name string, bodies ...string) ([]brokerapi.SendResult, error) {
	b.t.Helper()
	req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(topicLite)}
	for _, body := range bodies {
		req.Messages = append(req.Messages, liteMessage(name, body))
	}
	r, err := wait(b.t, func(done func(*brokerapi.SendReply, error)) { b.proxy.Send(req, done) })
	if err != nil {
		return nil, err
	}
	return r.Results, nil
}

func (b *bench) sendLite(name string, bodies ...string) []brokerapi.SendResult {
	b.t.Helper()
	r, err := b.trySendLite(name, bodies...)
	require.NoError(b.t, err)
	return r
}

func (b *bench) trySync(g record.GroupID, client string, req brokerapi.SyncLiteRequest) error {
	req.Topic, req.Group, req.Client = brokerapi.TopicID(topicLite), brokerapi.GroupID(g), client
	_, err := b.proxy.SyncLite(b.t.Context(), &req)
	return err
}

func (b *bench) subscribeLite(g record.GroupID, client string, names ...string) {
	b.t.Helper()
	require.NoError(b.t, b.trySync(g, client, brokerapi.SyncLiteRequest{Action: brokerapi.LiteCompleteAdd, Names: names}))
}

func (b *bench) popLite(g record.GroupID, client string, max int) ([]got, bool) {
	b.t.Helper()
	out, more, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicLite), Group: brokerapi.GroupID(g), Client: client, Max: max})
	require.NoError(b.t, err)
	return out, more
}

// drainLite receives and acks until nothing is ready, and returns the bodies in order.
func (b *bench) drainLite(g record.GroupID, client string) []string {
	b.t.Helper()
	var all []string
	for {
		out, _ := b.popLite(g, client, 32)
		if len(out) == 0 {
			return all
		}
		all = append(all, bodies(out)...)
		for _, err := range b.ack(topicLite, g, out...) {
			require.NoError(b.t, err)
		}
	}
}

func TestClientGetsItsLiteTopicsOnly(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineLite()
	b.sendLite("a", "a1")
	b.sendLite("b", "b1")
	r := b.sendLite("c", "c1")
	require.GreaterOrEqual(t, r[0].Queue, brokerapi.QueueID(lite.FirstQueue))
	require.EqualValues(t, 0, r[0].Offset)

	none, more := b.popLite(groupLite, "one", 32)
	require.Empty(t, none, "a client that has not said what it subscribes to waits")
	require.False(t, more)
	b.subscribeLite(groupLite, "one", "a", "c", "later")
	b.subscribeLite(groupLite, "two", "b")
	out, more := b.popLite(groupLite, "one", 32)
	require.Equal(t, []string{"a1", "c1"}, bodies(out), "one batch spans lite topics")
	require.False(t, more)
	require.Equal(t, []string{"b1"}, b.drainLite(groupLite, "two"))
	require.Equal(t, []error{nil, nil}, b.ack(topicLite, groupLite, out...))

	b.sendLite("later", "l1")
	require.Equal(t, []string{"l1"}, b.drainLite(groupLite, "one"), "a lite topic that was made after the subscription")
	require.NoError(t, b.trySync(groupLite, "one", brokerapi.SyncLiteRequest{Action: brokerapi.LitePartialRemove, Names: []string{"a"}}))
	b.sendLite("a", "a2")
	require.Empty(t, b.drainLite(groupLite, "one"))
	require.NoError(t, b.trySync(groupLite, "one", brokerapi.SyncLiteRequest{Action: brokerapi.LitePartialAdd, Names: []string{"a"}}))
	require.Equal(t, []string{"a2"}, b.drainLite(groupLite, "one"))
	require.NoError(t, b.trySync(groupLite, "one", brokerapi.SyncLiteRequest{Action: brokerapi.LiteCompleteRemove}))
	b.sendLite("c", "c2")
	require.Empty(t, b.drainLite(groupLite, "one"))

	b.subscribeLite(groupLite2, "one", "a", "b", "c", "later")
	require.ElementsMatch(t, []string{"a1", "a2", "b1", "c1", "c2", "l1"}, b.drainLite(groupLite2, "one"), "another group has its own place in each")
}

func TestLiteTopicsTakeTurns(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineLite()
	b.subscribeLite(groupLite, "one", "busy", "quiet")
	for i := range 40 {
		b.sendLite("busy", fmt.Sprint("busy", i))
	}
	out, more := b.popLite(groupLite, "one", 1)
	require.Len(t, out, 1)
	require.True(t, more || out[0].Attempt == 1)
	b.sendLite("quiet", "quiet")
	b.ack(topicLite, groupLite, out...)
	seen := []string{}
	for range 3 {
		out, _ = b.popLite(groupLite, "one", 1)
		seen = append(seen, bodies(out)...)
		b.ack(topicLite, groupLite, out...)
	}
	require.Contains(t, seen, "quiet", "a lite topic with much does not keep others waiting")
}

func TestLiteEventsReachTheClientConcerned(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineLite()
	b.subscribeLite(groupLite, "one", "a", "both")
	b.subscribeLite(groupLite, "two", "b", "both")
	arm := func(client string) {
		t.Helper()
		out, more, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicLite), Group: brokerapi.GroupID(groupLite), Client: client, Arm: true})
		require.NoError(t, err)
		require.Empty(t, out)
		require.False(t, more)
	}
	hears := func(clients ...string) {
		t.Helper()
		var want, have []uint64
		for _, c := range clients {
			want = append(want, brokerapi.HashClient(c))
			select {
			case r := <-b.ready:
				require.Positive(t, r.Count)
				have = append(have, r.Client)
			case <-time.After(10 * time.Second):
				t.Fatal("no event")
			}
		}
		require.ElementsMatch(t, want, have)
		require.Empty(t, b.ready)
	}
	arm("one")
	arm("two")
	arm("not known")
	b.sendLite("a", "1")
	hears("one")
	b.sendLite("b", "1")
	hears("two")
	b.sendLite("a", "2") // nobody is armed for it
	require.Equal(t, []string{"1", "2"}, b.drainLite(groupLite, "one"))
	require.Equal(t, []string{"1"}, b.drainLite(groupLite, "two"))
	arm("one")
	arm("two")
	b.sendLite("both", "x")
	hears("one", "two")
	out, _ := b.popLite(groupLite, "two", 32)
	require.Len(t, out, 1)
	arm("one")
	b.change(topicLite, groupLite, 0, brokerapi.ChangeLease, out...)
	hears("one") // the message came back
	b.subscribeLite(groupLite, "not known", "both")
	hears("not known") // the subscription made it ready
}

func TestLiteLeaseThatEndsWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{Clock: bubbleClock{}})
		b.mustOpen()
		b.defineLite()
		b.subscribeLite(groupLite, "one", "a")
		b.sendLite("a", "1")
		out, _ := b.popLite(groupLite, "one", 32)
		require.Len(t, out, 1)
		_, more, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicLite), Group: brokerapi.GroupID(groupLite), Client: "one", Arm: true})
		require.NoError(t, err)
		require.False(t, more)
		began := time.Now()
		<-b.ready
		require.InDelta(t, 30, time.Since(began).Seconds(), 1)
		again, _ := b.popLite(groupLite, "one", 32)
		require.Equal(t, []string{"1"}, bodies(again))
		require.EqualValues(t, 2, again[0].Attempt)
		b.kill()
	})
}

func TestLiteSurvivesRestart(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineLite()
	b.subscribeLite(groupLite, "one", "a", "b")
	b.sendLite("a", "a1", "a2")
	b.sendLite("b", "b1")
	out, _ := b.popLite(groupLite, "one", 1)
	require.Len(t, out, 1)
	require.Equal(t, []error{nil}, b.ack(topicLite, groupLite, out...))
	before := b.state()
	b.again()
	after := b.state()
	for _, name := range []string{sectionLite, sectionPop, sectionQueues} {
		require.Equal(t, before[name], after[name], name)
	}
	none, _ := b.popLite(groupLite, "one", 32)
	require.Empty(t, none, "who subscribes is not in the log: the client says it again")
	b.subscribeLite(groupLite, "one", "a", "b")
	require.ElementsMatch(t, []string{"a1", "a2", "b1"}, append(b.drainLite(groupLite, "one"), bodies(out)...))

	_, err := b.engine.Close() // with a checkpoint
	require.NoError(t, err)
	require.NoError(t, b.store.Close())
	saved := string(b.engine.views.lite.Encode(nil))
	b.engine = nil
	b.mustOpen()
	require.Equal(t, saved, b.state()[sectionLite])
	require.Equal(t, b.sendLite("a", "a3")[0].Queue, b.sendLite("a", "a4")[0].Queue)
	b.subscribeLite(groupLite, "one", "a", "b")
	require.Equal(t, []string{"a3", "a4"}, b.drainLite(groupLite, "one"))
}

func TestLiteQuotas(t *testing.T) {
	b := newBench(t, Options{LiteTopics: 3, LiteSubscriptions: 5})
	b.mustOpen()
	b.defineLite()
	for i := range 3 {
		b.sendLite(fmt.Sprint("n", i), "x")
	}
	_, err := b.trySendLite("n3", "x")
	require.True(t, mqerr.Is(err, mqerr.QuotaExceeded), "%v", err)
	b.sendLite("n2", "another one for a lite topic that is there")
	names := make([]string, 5+LiteSlack+1)
	for i := range names {
		names[i] = fmt.Sprint("s", i)
	}
	err = b.trySync(groupLite, "one", brokerapi.SyncLiteRequest{Action: brokerapi.LiteCompleteAdd, Names: names})
	require.True(t, mqerr.Is(err, mqerr.QuotaExceeded), "%v", err)
	b.subscribeLite(groupLite, "one", names[1:]...)
	err = b.trySync(groupLite, "one", brokerapi.SyncLiteRequest{Names: names[:1]})
	require.True(t, mqerr.Is(err, mqerr.QuotaExceeded), "%v", err)
	require.NoError(t, b.trySync(groupLite, "one", brokerapi.SyncLiteRequest{Names: names[1:2]}), "it has that one")
	s, err := b.engine.Views(t.Context())
	require.NoError(t, err)
	require.Equal(t, 5+LiteSlack, s.LiteSubscriptions)
	require.Equal(t, 3, s.LiteTopics)
}

func TestLiteRefusals(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineLite()
	for name, messages := range map[string][]brokerapi.Message{
		"two lite topics":      {liteMessage("a", "1"), liteMessage("b", "1")},
		"without a lite topic": {func() brokerapi.Message { m := liteMessage("", "1"); return m }()},
		"not of its type":      {func() brokerapi.Message { m := liteMessage("a", "1"); m.Type = brokerapi.Normal; return m }()},
		"for a queue":          {func() brokerapi.Message { m := liteMessage("a", "1"); m.Queue = 0; return m }()},
		"a long name":          {liteMessage(string(make([]byte, lite.NameMax+1)), "1")},
	} {
		_, err := wait(t, func(done func(*brokerapi.SendReply, error)) {
			b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicLite), Messages: messages}, done)
		})
		require.True(t, mqerr.Is(err, mqerr.Invalid), "%s: %v", name, err)
	}
	for name, req := range map[string]brokerapi.SyncLiteRequest{
		"action":    {Action: 9, Names: []string{"a"}},
		"no name":   {Names: []string{""}},
		"beginning": {Names: []string{"a"}, From: 77},
	} {
		require.True(t, mqerr.Is(b.trySync(groupLite, "one", req), mqerr.Invalid), name)
	}
	require.True(t, mqerr.Is(b.trySync(groupA, "one", brokerapi.SyncLiteRequest{}), mqerr.Invalid), "a group that is not bound")
	require.True(t, mqerr.Is(b.trySync(99, "one", brokerapi.SyncLiteRequest{}), mqerr.GroupNotFound))
	require.True(t, mqerr.Is(b.trySync(groupLite, "", brokerapi.SyncLiteRequest{}), mqerr.Invalid))
	errs := b.ack(topicLite, groupLite, got{Delivery: brokerapi.Delivery{Queue: brokerapi.QueueID(lite.FirstQueue) + 5}})
	require.True(t, mqerr.Is(errs[0], mqerr.HandleInvalid))
}

func TestLiteVersionsAndBeginnings(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineLite()
	for i := range 5 {
		b.sendLite("a", fmt.Sprint("a", i))
	}
	b.sendLite("b", "b0")
	require.NoError(t, b.trySync(groupLite, "one", brokerapi.SyncLiteRequest{Names: []string{"a"}, From: brokerapi.LiteFromTail, Value: 2, Version: 5}))
	require.NoError(t, b.trySync(groupLite, "one", brokerapi.SyncLiteRequest{Names: []string{"b"}, Version: 4}), "overtaken: ignored")
	before := b.state()
	b.again()
	require.Equal(t, before[sectionPop], b.state()[sectionPop], "where a group begins is in the log")
	b.subscribeLite(groupLite, "one", "a")
	require.Equal(t, []string{"a3", "a4"}, b.drainLite(groupLite, "one"))
	require.NoError(t, b.trySync(groupLite, "one", brokerapi.SyncLiteRequest{Names: []string{"a"}, From: brokerapi.LiteFromFirst}))
	require.Empty(t, b.drainLite(groupLite, "one"), "it has read that one")
	for from, want := range map[brokerapi.LiteFrom][]string{
		brokerapi.LiteFromFirst: {"0", "1"}, brokerapi.LiteFromEnd: nil, brokerapi.LiteFromOffset: {"1"}, brokerapi.LiteFromTime: {"0", "1"},
	} {
		name := fmt.Sprint("from", from)
		b.sendLite(name, "0")
		b.sendLite(name, "1")
		require.NoError(t, b.trySync(groupLite2, "one", brokerapi.SyncLiteRequest{Names: []string{name}, From: from, Value: 1}))
		require.Equal(t, want, b.drainLite(groupLite2, "one"), name)
	}
}

func TestLiteTopicsExpire(t *testing.T) {
	b := newBench(t, Options{LiteExpiry: time.Hour})
	b.mustOpen()
	b.defineLite()
	notices := make(chan brokerapi.Notice, 8)
	other, err := b.engine.Attach("other", brokerapi.Events{Notice: func(n brokerapi.Notice) { notices <- n }})
	require.NoError(t, err)
	for _, name := range []string{"done", "undone", "unread", "busy"} {
		b.sendLite(name, "1")
	}
	_, err = other.SyncLite(t.Context(), &brokerapi.SyncLiteRequest{
		Topic: brokerapi.TopicID(topicLite), Group: brokerapi.GroupID(groupLite), Client: "one", Action: brokerapi.LiteCompleteAdd, Names: []string{"done", "undone", "busy"},
	})
	require.NoError(t, err)
	out, _ := b.popLite(groupLite, "one", 32)
	require.Len(t, out, 3)
	_, err = other.SyncLite(t.Context(), &brokerapi.SyncLiteRequest{ // so that its notices go there
		Topic: brokerapi.TopicID(topicLite), Group: brokerapi.GroupID(groupLite), Client: "one", Names: []string{"done"},
	})
	require.NoError(t, err)
	keep := out[slices.IndexFunc(out, func(g got) bool {
		return g.Queue == brokerapi.QueueID(b.engine.views.lite.Named(topicLite, "undone").Queue)
	})]
	for _, g := range out {
		if g.Queue != keep.Queue {
			b.ack(topicLite, groupLite, g)
		}
	}
	names := func() (out []string) {
		t.Helper()
		require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
			w.views.lite.Each(topicLite, func(c *lite.Topic) { out = append(out, c.Name) })
		}))
		slices.Sort(out)
		return out
	}
	b.clock.advance(50 * time.Minute)
	b.sendLite("busy", "2")
	b.clock.advance(11 * time.Minute)
	names() // a turn
	alive := func() { require.NoError(t, other.Alive(t.Context(), []string{"one"})) }
	alive()
	require.Equal(t, []string{"busy", "undone"}, names(), "what is all done or was never read goes after an hour")
	require.EqualValues(t, 1, b.engine.counts.LiteUndone.Load(), "the message that nobody read is counted")
	require.Empty(t, notices, "its client was silent for three minutes by then: nobody is to be told")

	_, err = other.SyncLite(t.Context(), &brokerapi.SyncLiteRequest{
		Topic: brokerapi.TopicID(topicLite), Group: brokerapi.GroupID(groupLite), Client: "one", Action: brokerapi.LiteCompleteAdd, Names: []string{"undone", "busy"},
	})
	require.NoError(t, err)
	for range 31 {
		b.clock.advance(2 * time.Minute)
		alive()
	}
	require.Equal(t, []string{"busy"}, names(), "after two hours it goes with what is not done; the other one has an un-done message, too, but is younger")
	require.EqualValues(t, 2, b.engine.counts.LiteUndone.Load())
	require.Equal(t, brokerapi.NoticeLite, <-notices)
	gone, err := other.LiteGone(t.Context(), &brokerapi.LiteGoneRequest{})
	require.NoError(t, err)
	require.Equal(t, []brokerapi.LiteGone{{Topic: brokerapi.TopicID(topicLite), Group: brokerapi.GroupID(groupLite), Client: "one", Name: "undone"}}, gone.Gone)
	gone, err = other.LiteGone(t.Context(), &brokerapi.LiteGoneRequest{})
	require.NoError(t, err)
	require.Empty(t, gone.Gone)
	require.True(t, mqerr.Is(b.ack(topicLite, groupLite, keep)[0], mqerr.HandleInvalid))

	before := b.state()
	b.again()
	after := b.state()
	for _, name := range []string{sectionLite, sectionPop} { // extents that were given up lie elsewhere
		require.Equal(t, before[name], after[name], name)
	}
	q := b.sendLite("undone", "anew")[0]
	require.Zero(t, q.Offset)
	require.NotEqual(t, keep.Queue, q.Queue)
}

func TestLiteClientsEnd(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineLite()
	count := func() int {
		s, err := b.engine.Views(t.Context())
		require.NoError(t, err)
		return s.LiteSubscriptions
	}
	b.subscribeLite(groupLite, "bye", "a", "b")
	b.subscribeLite(groupLite, "silent", "a")
	b.subscribeLite(groupLite2, "silent", "a")
	b.subscribeLite(groupLite, "alive", "a")
	require.Equal(t, 5, count())
	require.NoError(t, b.proxy.EndSession(t.Context(), "bye"))
	require.Equal(t, 3, count())
	for range 2 {
		b.clock.advance(2 * time.Minute)
		require.NoError(t, b.proxy.Alive(t.Context(), []string{"alive"}))
	}
	require.Equal(t, 1, count())
	b.sendLite("a", "1")
	require.Equal(t, []string{"1"}, b.drainLite(groupLite, "alive"))
	d := definitions() // the parent and the groups are deleted
	d.Version = 99
	require.NoError(t, b.engine.Define(t.Context(), d))
	require.Zero(t, count())
	before := b.state()
	b.again()
	require.Equal(t, before[sectionLite], b.state()[sectionLite])
}

// TestLiteAgainstModel sends, subscribes, receives, acks, lets leases end and restarts at random: every
// message is done once by a client that subscribed, and what is stored survives.
func TestLiteAgainstModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := newBench(t, Options{})
		b.mustOpen()
		b.defineLite()
		defer b.kill()
		names := []string{"a", "b", "c", "d"}
		clients := []string{"one", "two"}
		subs := map[string]map[string]bool{"one": {}, "two": {}}
		sent, acked := map[string]string{}, map[string]bool{} // body to name
		for i := range rapid.IntRange(1, 40).Draw(r, "steps") {
			client := rapid.SampledFrom(clients).Draw(r, "client")
			switch rapid.IntRange(0, 6).Draw(r, "what") {
			case 0, 1:
				name, body := rapid.SampledFrom(names).Draw(r, "name"), fmt.Sprint("m", i)
				b.sendLite(name, body)
				sent[body] = name
			case 2:
				set := rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(r, "set")
				b.subscribeLite(groupLite, client, set...)
				subs[client] = map[string]bool{}
				for _, n := range set {
					subs[client][n] = true
				}
			case 3, 4:
				out, _ := b.popLite(groupLite, client, rapid.IntRange(1, 4).Draw(r, "max"))
				for _, g := range out {
					require.True(r, subs[client][sent[g.body]], "%s got %s of %s", client, g.body, sent[g.body])
					require.False(r, acked[g.body])
				}
				if len(out) > 0 && rapid.Bool().Draw(r, "ack") {
					for j, err := range b.ack(topicLite, groupLite, out...) {
						require.NoError(r, err)
						acked[out[j].body] = true
					}
				}
			case 5:
				b.clock.advance(31 * time.Second)
			case 6:
				before := b.state()
				b.again()
				after := b.state()
				require.Equal(r, before[sectionLite], after[sectionLite])
				require.Equal(r, before[sectionPop], after[sectionPop])
				subs = map[string]map[string]bool{"one": {}, "two": {}}
			}
		}
		b.clock.advance(31 * time.Second)
		b.subscribeLite(groupLite, "one", names...)
		for _, body := range b.drainLite(groupLite, "one") {
			require.False(r, acked[body])
			acked[body] = true
		}
		require.Len(r, acked, len(sent), "nothing is lost")
	})
}

// TestLiteTopicsKeepOrder: a lite topic has one delivery under way, the others go on.
func TestLiteTopicsKeepOrder(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineLite()
	b.subscribeLite(groupLite, "one", "a", "b")
	b.subscribeLite(groupLite, "two", "a", "b")
	b.sendLite("a", "a1")
	first, _ := b.popLite(groupLite, "one", 32)
	require.Equal(t, []string{"a1"}, bodies(first))
	b.sendLite("a", "a2")
	b.sendLite("b", "b1")
	second, _ := b.popLite(groupLite, "two", 32)
	require.Equal(t, []string{"b1"}, bodies(second), "a2 waits for a1, b1 does not")
	_, more, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicLite), Group: brokerapi.GroupID(groupLite), Client: "two", Arm: true})
	require.NoError(t, err)
	require.False(t, more)
	b.ack(topicLite, groupLite, first...)
	select {
	case r := <-b.ready:
		require.Equal(t, brokerapi.HashClient("two"), r.Client, "the end of a1 makes a2 ready")
	case <-time.After(10 * time.Second):
		t.Fatal("no event")
	}
	next, _ := b.popLite(groupLite, "two", 32)
	require.Equal(t, []string{"a2"}, bodies(next))
	_, err = b.proxy.Reset(t.Context(), &brokerapi.ResetRequest{Topic: brokerapi.TopicID(topicLite), Group: brokerapi.GroupID(groupLite), To: brokerapi.ResetEnd})
	require.True(t, mqerr.Is(err, mqerr.Unsupported), "%v", err)
}

var liteTopicsFlag = flag.Int("lite-topics", 10_000, "lite topics of TestManyLiteTopics")

// TestManyLiteTopics: what many lite topics under one parent cost.
func TestManyLiteTopics(t *testing.T) {
	if testing.Short() || raceSlows > 1 {
		t.Skip("long")
	}
	const mine = 2000
	n := *liteTopicsFlag
	b := newBench(t, Options{})
	b.mustOpen()
	b.defineLite()
	heap := func() int64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	send := func(from, to int) {
		var wg sync.WaitGroup
		for i := from; i < to; i++ {
			wg.Add(1)
			b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicLite), Messages: []brokerapi.Message{liteMessage(fmt.Sprintf("session-%08d", i), "x")}},
				func(_ *brokerapi.SendReply, err error) {
					if err != nil {
						t.Error(err)
					}
					wg.Done()
				})
			if i%1000 == 999 {
				wg.Wait()
			}
		}
		wg.Wait()
	}
	names := make([]string, mine)
	for i := range names {
		names[i] = fmt.Sprintf("session-%08d", i*(n/mine))
	}
	before, began := heap(), time.Now()
	send(0, n)
	t.Logf("first messages: %v each, %d bytes of heap each (with the file system in memory)", time.Since(began)/time.Duration(n), (heap()-before)/int64(n))
	began = time.Now()
	send(0, 2000)
	t.Logf("later messages: %v each", time.Since(began)/2000)
	b.subscribeLite(groupLite, "one", names...)
	began = time.Now()
	got := b.drainLite(groupLite, "one")
	require.Len(t, got, mine+2000/(n/mine))
	t.Logf("receive and ack of %d lite topics in batches of 32: %v each", mine, time.Since(began)/time.Duration(len(got)))
	began = time.Now()
	for range 100 {
		none, _ := b.popLite(groupLite, "one", 32)
		require.Empty(t, none)
	}
	t.Logf("empty receive: %v", time.Since(began)/100)
	began = time.Now()
	b.state()
	t.Logf("encoding of all views: %v", time.Since(began))
	began = time.Now()
	b.state()
	t.Logf("the same again: %v", time.Since(began))
	began = time.Now()
	b.again()
	t.Logf("restart from the log: %v", time.Since(began))
	s, err := b.engine.Views(t.Context())
	require.NoError(t, err)
	require.Equal(t, n, s.LiteTopics)
}
