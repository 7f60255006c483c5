package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/store/record"
)

// later is a delayed message due after d, by the test's clock.
func (b *bench) later(body string, d time.Duration) brokerapi.Message {
	m := message(body)
	m.Type, m.DeliverAt = brokerapi.Delay, b.clock.Wall()+d.Milliseconds()
	return m
}

func (b *bench) sendAll(t record.TopicID, ms ...brokerapi.Message) []brokerapi.SendResult {
	b.t.Helper()
	r, err := wait(b.t, func(done func(*brokerapi.SendReply, error)) {
		b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(t), Messages: ms}, done)
	})
	require.NoError(b.t, err)
	return r.Results
}

func (b *bench) recall(t record.TopicID, at brokerapi.LogPos, due int64) (string, error) {
	b.t.Helper()
	r, err := wait(b.t, func(done func(*brokerapi.RecallReply, error)) {
		b.proxy.Recall(&brokerapi.RecallRequest{Topic: brokerapi.TopicID(t), Ref: at, DeliverAt: due}, done)
	})
	if err != nil {
		return "", err
	}
	return string(r.ID), nil
}

// settle has what is due delivered and made visible.
func (b *bench) settle() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		due := true
		require.NoError(b.t, b.engine.call(b.t.Context(), func(w *writer) {
			_, at, waits := w.views.timers.Next()
			due = waits && at <= w.stamp || len(w.topics.hidden) > 0
		}))
		return !due
	}, 20*time.Second, time.Millisecond)
}

// take receives and acks.
func (b *bench) take(t record.TopicID, g record.GroupID) []string {
	b.t.Helper()
	got := b.mustPop(t, g)
	b.ack(t, g, got...)
	return bodies(got)
}

// TestDelay: a delayed message has no place until its time, and then the store time of its delivery.
func TestDelay(t *testing.T) {
	for _, topic := range []record.TopicID{topicSync, topicAsync} {
		b := newBench(t, Options{})
		b.mustOpen()
		b.define()
		m := b.later("later", time.Minute)
		r := b.sendAll(topic, m)[0]
		require.EqualValues(t, -1, r.Offset)
		require.Equal(t, brokerapi.AnyQueue, r.Queue)
		require.Empty(t, b.mustPop(topic, groupA))
		b.clock.advance(time.Minute - time.Millisecond)
		require.Empty(t, b.mustPop(topic, groupA), "a millisecond early")
		b.clock.advance(time.Millisecond)
		b.settle()
		got := b.mustPop(topic, groupA)
		require.Equal(t, []string{"later"}, bodies(got))
		require.Equal(t, m.DeliverAt, got[0].DeliverAt)
		require.Equal(t, m.DeliverAt, got[0].StoreTime)
		require.Equal(t, brokerapi.Delay, got[0].Type)
		require.EqualValues(t, 1, got[0].Attempt)
		require.Equal(t, []error{nil}, b.ack(topic, groupA, got...))
		require.Empty(t, b.mustPop(topic, groupA))
	}
}

// TestDelayPast: what is due at once has a place at once.
func TestDelayPast(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	for _, d := range []time.Duration{-time.Hour, 0} {
		r := b.sendAll(topicSync, b.later("past", d))[0]
		require.GreaterOrEqual(t, int64(r.Offset), int64(0))
		require.Equal(t, []string{"past"}, bodies(b.mustPop(topicSync, groupA)))
	}
	require.Zero(t, b.engine.counts.Delayed.Load())
}

// TestDelayBatch: a request may hold messages that wait and others; each is told where it is.
func TestDelayBatch(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	one, three := b.later("one", time.Second), b.later("three", 2*time.Second)
	r := b.sendAll(topicSync, one, message("two"), three, message("four"))
	require.EqualValues(t, []brokerapi.QueueOffset{-1, 0, -1, 1}, []brokerapi.QueueOffset{r[0].Offset, r[1].Offset, r[2].Offset, r[3].Offset})
	require.Equal(t, r[1].Queue, r[3].Queue)
	require.Equal(t, []string{"two", "four"}, b.take(topicSync, groupA))
	b.clock.advance(time.Hour)
	b.again()
	b.settle()
	require.ElementsMatch(t, []string{"one", "three"}, b.take(topicSync, groupA))
}

// TestDelayQueue: a message whose sender chose the queue goes there, others in turn.
func TestDelayQueue(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	fixed := b.later("fixed", time.Second)
	fixed.Queue, fixed.GroupHash, fixed.TagHash = 3, 7, 9
	b.sendAll(topicSync, fixed)
	for range 8 {
		b.sendAll(topicSync, b.later("any", time.Second))
	}
	b.clock.advance(time.Second)
	b.again()
	b.settle()
	count := map[brokerapi.QueueID]int{}
	for _, m := range b.mustPop(topicSync, groupA) {
		count[m.Queue]++
		if m.body == "fixed" {
			require.EqualValues(t, 3, m.Queue)
		}
	}
	require.Equal(t, map[brokerapi.QueueID]int{0: 2, 1: 2, 2: 2, 3: 3}, count)
}

// TestDelayAlone: a message is delivered on time though nobody asks, and an idle broker sleeps.
func TestDelayAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{Clock: bubbleClock{}, CheckpointInterval: time.Minute})
		b.mustOpen()
		b.define()
		pop := brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Arm: true}
		for _, d := range []time.Duration{7 * time.Millisecond, 1500 * time.Millisecond, 90 * time.Second} {
			m := message("later")
			m.DeliverAt = time.Now().Add(d).UnixMilli()
			b.sendAll(topicSync, m)
			ms, _, err := b.pop(pop)
			require.NoError(t, err)
			require.Empty(t, ms)
			<-b.ready
			late := time.Now().UnixMicro() - 1000*m.DeliverAt
			require.GreaterOrEqual(t, late, int64(0))
			require.LessOrEqual(t, late, int64(2000), "µs late")
			ms, _, err = b.pop(pop)
			require.NoError(t, err)
			require.Len(t, ms, 1)
			require.Equal(t, []error{nil}, b.ack(topicSync, groupA, ms...))
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		turns := b.engine.counts.Turns.Load()
		time.Sleep(time.Hour)
		require.Equal(t, turns, b.engine.counts.Turns.Load(), "nothing waits: no turn")
	})
}

// stepClock is bubble time with a wall clock that can be set.
type stepClock struct{ step *atomic.Int64 }

func (c stepClock) Wall() int64  { return time.Now().UnixMilli() + c.step.Load() }
func (c stepClock) Lease() int64 { return time.Now().UnixMilli() }

// TestDelaySteps: a step forward of the wall clock delivers what has become due, though nobody asks; a step
// back delays nothing that was due before, and what was not waits for the clock to come there again.
func TestDelaySteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := new(atomic.Int64)
		b := newBench(t, Options{Clock: stepClock{step}})
		b.mustOpen()
		b.define()
		at := func(d time.Duration) brokerapi.Message {
			m := message(fmt.Sprint(d))
			m.DeliverAt = time.Now().Add(d).UnixMilli()
			return m
		}
		pop := brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Arm: true, Max: 1}
		next := func() (string, time.Duration) {
			began := time.Now()
			for {
				ms, _, err := b.pop(pop)
				require.NoError(t, err)
				if len(ms) > 0 {
					b.ack(topicSync, groupA, ms...)
					return ms[0].body, time.Since(began)
				}
				<-b.ready
			}
		}
		b.sendAll(topicSync, at(time.Hour), at(2*time.Hour), at(4*time.Hour))
		ms, _, err := b.pop(pop)
		require.NoError(t, err)
		require.Empty(t, ms)
		synctest.Wait()
		step.Store((90 * time.Minute).Milliseconds())
		body, took := next()
		require.Equal(t, "1h0m0s", body)
		require.LessOrEqual(t, took, 1100*time.Millisecond)

		step.Store((3 * time.Hour).Milliseconds())
		b.sendAll(topicSync, message("sees three hours"))
		step.Store(0)
		var got []string
		for range 2 {
			body, took = next()
			got = append(got, body)
			require.LessOrEqual(t, took, 10*time.Millisecond, "it was due before the step back")
		}
		require.ElementsMatch(t, []string{"2h0m0s", "sees three hours"}, got)
		body, took = next()
		require.Equal(t, "4h0m0s", body)
		require.Greater(t, took, 3*time.Hour+59*time.Minute)
		require.LessOrEqual(t, took, 4*time.Hour+time.Second)
	})
}

// TestRecall: a recalled message is never delivered, and a recall is told the truth at any time.
func TestRecall(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	notFound := func(text string, err error) {
		t.Helper()
		require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
		require.ErrorContains(t, err, text)
	}
	m, other := b.later("recalled", time.Minute), b.later("other", time.Minute)
	r := b.sendAll(topicSync, m, other)
	now := b.later("now", 0)
	at := b.sendAll(topicSync, now)[0].Pos
	for name, c := range map[string]struct {
		pos brokerapi.LogPos
		due int64
	}{
		"another time": {r[0].Pos, m.DeliverAt + 1}, "another place": {r[0].Pos + 8, m.DeliverAt}, "no record": {1 << 40, m.DeliverAt}, "below 0": {-8, m.DeliverAt},
	} {
		_, err := b.recall(topicSync, c.pos, c.due)
		t.Log(name)
		notFound("known", err)
	}
	_, err := b.recall(topicAsync, r[0].Pos, m.DeliverAt)
	notFound("known", err)
	_, err = b.recall(99, r[0].Pos, m.DeliverAt)
	require.True(t, mqerr.Is(err, mqerr.TopicNotFound), "%v", err)
	_, err = b.recall(topicSync, at, now.DeliverAt)
	notFound("delivered already", err)
	recalls := func() {
		t.Helper()
		id, err := b.recall(topicSync, r[0].Pos, m.DeliverAt)
		require.NoError(t, err)
		require.Equal(t, string(m.ID), id)
	}
	recalls()
	recalls()
	b.again()
	recalls()
	got := b.mustPop(topicSync, groupA)
	require.Equal(t, []string{"now"}, bodies(got))
	b.ack(topicSync, groupA, got...)
	b.clock.advance(2 * time.Minute)
	b.settle()
	require.Equal(t, []string{"other"}, bodies(b.mustPop(topicSync, groupA)))
	recalls()
	_, err = b.recall(topicSync, r[1].Pos, other.DeliverAt)
	notFound("delivered already", err)
	b.again()
	recalls()
	b.clock.advance(25 * time.Hour)
	b.sendAll(topicSync, b.later("makes it forgotten", time.Minute))
	_, err = b.recall(topicSync, r[0].Pos, m.DeliverAt)
	notFound("that is forgotten", err)
}

// TestDelayDeletedTopic: the messages of a deleted topic go with it.
func TestDelayDeletedTopic(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	m := b.later("gone", time.Minute)
	r := b.sendAll(topicSync, m, b.later("gone", time.Hour))
	b.sendAll(topicAsync, b.later("stays", time.Minute))
	require.NoError(t, b.engine.Define(t.Context(), &Definitions{DeletedTopics: []record.TopicID{topicSync}, Version: 9}))
	_, err := b.recall(topicSync, r[0].Pos, m.DeliverAt)
	require.True(t, mqerr.Is(err, mqerr.TopicNotFound), "%v", err)
	b.clock.advance(2 * time.Hour)
	b.again()
	b.settle()
	require.Equal(t, []string{"stays"}, bodies(b.mustPop(topicAsync, groupA)))
	require.Empty(t, b.state()[sectionTimers])
}

// TestDelayFromLast: a group that begins behind the last message gets what shows after it was made, however
// long that was stored before, and nothing else.
func TestDelayFromLast(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.sendAll(topicSync, b.later("shows before", time.Second), b.later("shows after", time.Minute), message("before"))
	b.clock.advance(time.Second)
	b.settle()
	last := groupFrom(9, "last", group.FromLast, 0)
	require.NoError(t, b.engine.Define(t.Context(), &Definitions{Groups: []group.Definition{last}, Version: 9}))
	for i := range 40 {
		b.mustSend(topicSync, fmt.Sprint("after ", i))
	}
	b.clock.advance(time.Minute)
	b.again()
	b.settle()
	var got []string
	for range 3 {
		got = append(got, bodies(b.mustPop(topicSync, 9))...)
	}
	require.Len(t, got, 41)
	require.Contains(t, got, "shows after")
	require.NotContains(t, got, "before")
	require.NotContains(t, got, "shows before")
}

// TestDelayMany: what is due together comes in bounded turns, all of it, in the order of its time, and the
// views of the live path are those of a replay and of a checkpoint.
func TestDelayMany(t *testing.T) {
	b := newBench(t, Options{CheckpointBytes: 1 << 40})
	b.mustOpen()
	b.define()
	seed := testseed.First(t)
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	const n = 3 * deliverTurn / 2
	ref := map[string]int64{}
	var recalled []string
	for i := 0; i < n; {
		var ms []brokerapi.Message
		for range 500 {
			m := b.later(fmt.Sprint(i), time.Duration(1+r.IntN(1000))*time.Millisecond)
			m.Queue = 1
			ref[fmt.Sprint(i)] = m.DeliverAt
			ms = append(ms, m)
			i++
		}
		topic := []record.TopicID{topicSync, topicAsync}[r.IntN(2)]
		for k, res := range b.sendAll(topic, ms...) {
			if r.IntN(50) == 0 {
				_, err := b.recall(topic, res.Pos, ms[k].DeliverAt)
				require.NoError(t, err)
				recalled = append(recalled, string(ms[k].Body))
			}
		}
	}
	before := b.state()
	b.again()
	b.sameAs(before, "a replay")
	b.clock.advance(500 * time.Millisecond)
	b.settle()
	require.NotZero(t, b.engine.counts.Delivered.Load())
	before = b.state()
	b.again()
	b.sameAs(before, "a replay")
	_, err := b.engine.Close() // saves
	require.NoError(t, err)
	require.NoError(t, b.store.Close())
	b.mustOpen()
	b.sameAs(before, "a checkpoint")
	b.clock.advance(500 * time.Millisecond)
	b.settle()
	var all []string
	for _, topic := range []record.TopicID{topicSync, topicAsync} {
		last := int64(0)
		for {
			ms, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topic), Group: brokerapi.GroupID(groupA), Max: 1024})
			require.NoError(t, err)
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				require.GreaterOrEqual(t, ref[m.body], last, "not in the order of its time")
				last = ref[m.body]
				all = append(all, m.body)
			}
		}
	}
	for _, body := range slices.Concat(all, recalled) {
		_, once := ref[body]
		require.True(t, once, "%s twice, or recalled and delivered", body)
		delete(ref, body)
	}
	require.Empty(t, ref, "lost")
	require.Zero(t, b.engine.views.timers.Len())
}

// sameAs compares all views but the epoch.
func (b *bench) sameAs(before map[string]string, what string) {
	b.t.Helper()
	for name, data := range b.state() {
		if name != sectionBase && name != sectionEpochs && data != before[name] {
			b.t.Fatalf("%s gives another view of %s", what, name)
		}
	}
}

// TestDelayNoSpace: deliveries wait while they might find no room, and go on by themselves.
func TestDelayNoSpace(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.sendAll(topicAsync, b.later("later", time.Second))
	room := func(hold bool, reserve int64) {
		b.engine.log.Hold(hold)
		require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
			l := *w.e.spaces.limits.Load()
			l.Retention = reserve
			w.e.spaces.limits.Store(&l)
		}))
	}
	room(true, 1<<40)
	b.clock.advance(time.Second)
	require.Equal(t, 1, b.timers())
	b.clock.advance(2 * time.Second)
	require.Equal(t, 1, b.timers())
	require.Positive(t, b.engine.SpaceRefused(space.Broker))
	room(false, 0)
	b.clock.advance(2 * time.Second)
	require.Zero(t, b.timers(), "a turn after the pause")
	b.settle()
	require.Len(t, b.mustPop(topicAsync, groupA), 1)
}

func (b *bench) timers() (n int) {
	require.NoError(b.t, b.engine.call(b.t.Context(), func(w *writer) { n = w.views.timers.Len() }))
	return n
}
