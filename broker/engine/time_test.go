package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// bubbleClock is the clock of a test in a bubble, where time passes when nobody has anything to do.
type bubbleClock struct{}

func (bubbleClock) Wall() int64  { return time.Now().UnixMilli() }
func (bubbleClock) Lease() int64 { return time.Now().UnixMilli() }

// TestTimeAlone: leases and sessions end and checkpoints are saved by themselves, on time.
func TestTimeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saved := make(chan time.Time, 100)
		b := newBench(t, Options{Clock: bubbleClock{}, CheckpointInterval: time.Minute})
		b.opt.Events.Checkpointed = func(record.Pos, time.Duration) { saved <- time.Now() }
		b.mustOpen()
		b.define()
		time.Sleep(500 * time.Microsecond) // the clock of leases loses the fraction
		b.mustSend(topicSync, "one")
		pop := func(client string, session bool) []got {
			ms, _, err := b.pop(brokerapi.PopRequest{
				Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Client: client, Invisible: 10 * time.Second, Session: session, Arm: true,
			})
			require.NoError(t, err)
			return ms
		}
		heard := func() time.Time {
			select {
			case <-b.ready:
			case <-time.After(time.Hour):
				t.Fatal("no event")
			}
			return time.Now()
		}
		began := time.Now()
		require.Len(t, pop("simple", false), 1)
		time.Sleep(10*time.Second - 250*time.Microsecond)
		require.Empty(t, pop("simple", false), "a quarter of a millisecond early")
		took := heard().Sub(began)
		require.GreaterOrEqual(t, took, 10*time.Second)
		require.LessOrEqual(t, took, 10*time.Second+2*time.Millisecond)

		began = time.Now()
		require.Len(t, pop("push", true), 1)
		took = heard().Sub(began)
		require.GreaterOrEqual(t, took, time.Minute-time.Millisecond, "nobody has reported the client")
		require.LessOrEqual(t, took, time.Minute+2*time.Millisecond)

		require.Len(t, pop("push", true), 1)
		time.Sleep(50 * time.Second)
		began = time.Now()
		require.Empty(t, pop("push", true), "a receive is a sign of life")
		took = heard().Sub(began)
		require.GreaterOrEqual(t, took, time.Minute-time.Millisecond)

		began = time.Now()
		require.Len(t, pop("push", true), 1)
		require.NoError(t, b.proxy.EndSession(t.Context(), "push"))
		took = heard().Sub(began)
		require.GreaterOrEqual(t, took, time.Second-time.Millisecond)
		require.LessOrEqual(t, took, time.Second+2*time.Millisecond)

		time.Sleep(10 * time.Minute) // what has happened is saved
		for len(saved) > 0 {
			<-saved
		}
		began = time.Now()
		b.mustSend(topicSync, "two")
		took = (<-saved).Sub(began)
		require.GreaterOrEqual(t, took, time.Minute-time.Millisecond)
		require.LessOrEqual(t, took, time.Minute+2*time.Millisecond)
		synctest.Wait()
		turns := b.engine.counts.Turns.Load()
		time.Sleep(time.Hour)
		require.Equal(t, turns, b.engine.counts.Turns.Load(), "nothing happens: no turn")
		require.Empty(t, saved)
	})
}

// TestDeadlines: a request whose time is over leaves nothing.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{Clock: bubbleClock{}})
		b.mustOpen()
		b.define()
		free := b.hold()
		answers := make(chan error, 2)
		for _, d := range []time.Duration{time.Second, time.Minute} {
			b.proxy.Send(&brokerapi.SendRequest{
				Head: brokerapi.Head{Deadline: time.Now().Add(d)}, Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{message("x")},
			}, func(_ *brokerapi.SendReply, err error) { answers <- err })
		}
		time.Sleep(2 * time.Second)
		free()
		late, inTime := <-answers, <-answers
		require.True(t, mqerr.Is(late, mqerr.Timeout), "%v", late)
		require.NoError(t, inTime)
		require.Len(t, b.mustPop(topicSync, groupA), 1)
	})
}

// TestWallClockSteps: a step forward frees no lease, a step back makes no store time go back.
//
//fault:clock the wall clock steps forward and back by hours => no lease ends early, no store time goes back
func TestWallClockSteps(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one")
	require.Len(t, b.mustPop(topicSync, groupA), 1)
	b.clock.step.Store(time.Hour.Milliseconds())
	require.Empty(t, b.mustPop(topicSync, groupA))
	later := b.mustSend(topicSync, "two")[0].StoreTime
	b.clock.step.Store(-time.Hour.Milliseconds())
	require.Equal(t, later, b.mustSend(topicSync, "three")[0].StoreTime)
	require.Len(t, b.mustPop(topicSync, groupA), 2)
	b.again()
	require.Equal(t, later, b.mustSend(topicSync, "four")[0].StoreTime)
}

// tickingClock calls a function once in the middle of a turn's look at the clock, behind the time of leases.
type tickingClock struct {
	*fakeClock
	between atomic.Pointer[func()]
}

func (c *tickingClock) Wall() int64 {
	at := c.fakeClock.Wall()
	if f := c.between.Swap(nil); f != nil {
		(*f)()
	}
	return at
}

// TestLeaseFromMidTurn: a turn that is held up behind its look at the clock gives no lease that is shorter by
// that to a request which came meanwhile, and moves no deadline to too early.
func TestLeaseFromMidTurn(t *testing.T) {
	clock := &tickingClock{fakeClock: newClock()}
	b := newBench(t, Options{Clock: clock})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one")
	// late makes a call while a turn stands behind its look at the clock, and has the clock go on by 20 s before.
	late := func(call func()) {
		called := make(chan struct{})
		f := func() {
			clock.advance(20 * time.Second)
			call()
			close(called)
		}
		clock.between.Store(&f)
		require.NoError(t, b.engine.call(t.Context(), func(*writer) {}))
		<-called
	}
	popped := make(chan []brokerapi.Handle, 1)
	late(func() {
		b.proxy.Pop(&brokerapi.PopRequest{
			Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Max: 1, Client: "client", Invisible: 30 * time.Second,
		}, func(r *brokerapi.PopReply, err error) {
			defer r.Release()
			var hs []brokerapi.Handle
			for _, m := range r.Messages {
				hs = append(hs, got{Delivery: m}.handle())
			}
			popped <- hs
		})
	})
	handles := <-popped
	require.Len(t, handles, 1)
	clock.advance(29 * time.Second)
	require.Empty(t, b.mustPop(topicSync, groupA), "29 s of a lease of 30 s are over")

	changed := make(chan error, 1)
	late(func() {
		b.proxy.Change(&brokerapi.ChangeRequest{
			Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Handles: handles, Invisible: 30 * time.Second,
		}, func(r *brokerapi.ChangeReply, err error) { changed <- err })
	})
	require.NoError(t, <-changed)
	clock.advance(29 * time.Second)
	require.Empty(t, b.mustPop(topicSync, groupA), "29 s of a renewal by 30 s are over")
	clock.advance(1001 * time.Millisecond)
	require.Len(t, b.mustPop(topicSync, groupA), 1)
}

// TestEpochs: an epoch begins once, and whoever has seen a later one is told.
func TestEpochs(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	_, err := wait(t, func(done func(*brokerapi.SendReply, error)) {
		b.proxy.Send(&brokerapi.SendRequest{Head: brokerapi.Head{Epoch: brokerapi.Epoch(b.epoch) + 1}, Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{message("x")}}, done)
	})
	require.True(t, mqerr.Is(err, mqerr.Fenced), "%v", err)
	for _, e := range []record.Epoch{b.epoch, b.epoch - 1} {
		if err := b.engine.begin(Identity{Epoch: e}); !mqerr.Is(err, mqerr.Fenced) {
			t.Errorf("epoch %d begins again: %v", e, err)
		}
	}
}
