package longpoll

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeBroker is a broker of one topic and group that counts its leases. How it answers is up to
// hold: a nil one answers before Pop returns.
type fakeBroker struct {
	brokerapi.Broker // calls that are not used panic

	shard brokerapi.ShardID
	polls *Polls
	hold  func(answer func())

	mu       sync.Mutex
	ready    int
	leased   int // handed out and neither taken by a client nor given back
	armed    bool
	pops     int
	err      error
	requests []brokerapi.PopRequest
}

type only struct{ b *fakeBroker }

func (o only) Broker(brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	return o.b, 7, nil
}

func (b *fakeBroker) Pop(req *brokerapi.PopRequest, done func(*brokerapi.PopReply, error)) {
	answer := func() {
		b.mu.Lock()
		b.pops++
		b.requests = append(b.requests, *req)
		if err := b.err; err != nil {
			b.mu.Unlock()
			done(nil, err)
			return
		}
		n := min(req.Max, b.ready)
		b.ready -= n
		b.leased += n
		b.armed = req.Arm && b.ready == 0
		reply := brokerapi.NewPopReply(make([]brokerapi.Delivery, n), nil)
		reply.More = b.ready > 0
		b.mu.Unlock()
		done(reply, nil)
	}
	b.mu.Lock()
	hold := b.hold
	b.mu.Unlock()
	if hold == nil {
		answer()
		return
	}
	hold(answer)
}

func (b *fakeBroker) Change(req *brokerapi.ChangeRequest, done func(*brokerapi.ChangeReply, error)) {
	b.mu.Lock()
	b.leased -= len(req.Handles)
	b.mu.Unlock()
	if req.Mode != brokerapi.ChangeKeep || req.Invisible != 0 {
		panic("not a give-back")
	}
	b.store(len(req.Handles))
	done(&brokerapi.ChangeReply{Errors: make([]error, len(req.Handles))}, nil)
}

// store makes messages ready, as a send does.
func (b *fakeBroker) store(n int) {
	b.mu.Lock()
	b.ready += n
	tell, count := b.armed, b.ready
	b.armed = false
	b.mu.Unlock()
	if tell {
		b.polls.Ready(b.shard, []brokerapi.Ready{{Topic: 1, Group: 2, Count: count}})
	}
}

func (b *fakeBroker) took(n int) {
	b.mu.Lock()
	b.leased -= n
	b.mu.Unlock()
}

func (b *fakeBroker) state() (ready, leased, pops int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready, b.leased, b.pops
}

func newFake(o Options) *fakeBroker {
	b := &fakeBroker{shard: 1}
	o.Brokers = only{b}
	b.polls = New(o)
	return b
}

// received is what became of one receive.
type received struct {
	messages int
	err      error
	after    time.Duration
}

// receive starts a receive of up to 32 messages and sends what becomes of it.
func (b *fakeBroker) receive(poll time.Duration) (*Wait, <-chan received) {
	got, start := make(chan received, 2), time.Now()
	req := &Request{Shards: []brokerapi.ShardID{b.shard}, Deadline: start.Add(poll)}
	req.Pop.Topic, req.Pop.Group, req.Pop.Max = 1, 2, 32
	w := b.polls.Receive(req, func(a Answer) {
		r := received{err: a.Err, after: time.Since(start)}
		if a.Reply != nil {
			r.messages = len(a.Reply.Messages)
			b.took(r.messages)
			a.Reply.Release()
		}
		got <- r
	})
	return w, got
}

func TestMessageThatIsThereIsAnsweredAtOnce(t *testing.T) {
	b := newFake(Options{})
	b.store(3)
	_, got := b.receive(20 * time.Second)
	require.Equal(t, 3, (<-got).messages)
	require.Equal(t, brokerapi.Epoch(7), b.requests[0].Epoch)
	require.True(t, b.requests[0].Arm)
	require.Zero(t, b.polls.Stats().Waiting)
}

func TestWaitingReceiveIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFake(Options{})
		_, got := b.receive(20 * time.Second)
		time.Sleep(3 * time.Second)
		b.store(1)
		require.Equal(t, received{messages: 1, after: 3 * time.Second}, <-got)
	})
}

func TestAnsweredReceiveLeavesNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFake(Options{})
		b.store(1)
		_, got := b.receive(20 * time.Second)
		<-got
		w, _ := b.receive(20 * time.Second)
		w.Cancel()
		time.Sleep(time.Minute)
		require.Zero(t, b.polls.Stats().TimerWakes)
	})
}

func TestEmptyReceiveWaitsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFake(Options{})
		_, long := b.receive(20 * time.Second)
		_, short := b.receive(5 * time.Second)
		require.Equal(t, received{after: 5 * time.Second}, <-short)
		require.Equal(t, received{after: 20 * time.Second}, <-long)
		require.Equal(t, uint64(2), b.polls.Stats().TimerWakes)
	})
}

// TestIdleReceivesDoNothing: 100 receives wait, and for 10 s nothing at all happens.
func TestIdleReceivesDoNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFake(Options{})
		_, first := b.receive(5 * time.Second) // one that is over leaves no timer behind
		b.store(1)
		<-first
		var all []<-chan received
		for range 100 {
			_, got := b.receive(20 * time.Second)
			all = append(all, got)
		}
		before := b.polls.Stats()
		require.Equal(t, 100, before.Waiting)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, before, b.polls.Stats())
		b.polls.Drain()
		for _, got := range all {
			require.Equal(t, received{after: 10 * time.Second}, <-got)
		}
	})
}

// TestReadyWakesNoMoreThanItSays: events name how many messages there are.
func TestReadyWakesNoMoreThanItSays(t *testing.T) {
	b := newFake(Options{})
	for range 50 {
		b.receive(time.Hour)
	}
	before := b.polls.Stats().Pops
	b.polls.Ready(1, []brokerapi.Ready{{Topic: 1, Group: 2, Count: 3}}) // none is there in fact
	require.LessOrEqual(t, b.polls.Stats().Pops, before+3)
	before = b.polls.Stats().Pops
	b.polls.Ready(1, []brokerapi.Ready{{Topic: 1, Group: 2, Count: 70}}) // 3 batches of 32
	require.LessOrEqual(t, b.polls.Stats().Pops, before+3)
	b.polls.Ready(1, []brokerapi.Ready{{Topic: 1, Group: 99, Count: 5}, {Topic: 99, Group: 2, Count: 5}})
	require.Equal(t, 50, b.polls.Stats().Waiting)
	b.polls.Drain()
}

func TestOldestReceiveIsServedFirst(t *testing.T) {
	b := newFake(Options{})
	var all []<-chan received
	for range 5 {
		_, got := b.receive(time.Hour)
		all = append(all, got)
	}
	for i := range all {
		b.store(1)
		require.Equal(t, 1, (<-all[i]).messages, "receive %d", i)
	}
}

// TestEventDuringPopIsNotLost: the pop finds nothing, and before its reply is there the broker says
// that something is ready.
func TestEventDuringPopIsNotLost(t *testing.T) {
	b := newFake(Options{})
	var held []func()
	b.hold = func(answer func()) { held = append(held, answer) }
	_, got := b.receive(time.Hour)
	b.mu.Lock()
	b.ready = 1
	b.mu.Unlock()
	b.polls.Ready(1, []brokerapi.Ready{{Topic: 1, Group: 2, Count: 1}})
	require.Len(t, held, 1, "a second pop while one is in flight")
	b.mu.Lock()
	b.ready = 0 // the pop was executed before the message came
	b.mu.Unlock()
	held[0]()
	require.Len(t, held, 2, "no second pop")
	b.store(1)
	held[1]()
	require.Equal(t, 1, (<-got).messages)
}

func TestCancelledReceiveGivesBack(t *testing.T) {
	b := newFake(Options{})
	var held []func()
	b.hold = func(answer func()) { held = append(held, answer) }
	w, got := b.receive(time.Hour)
	require.True(t, w.Cancel())
	require.False(t, w.Cancel())
	b.store(2)
	held[0]()
	ready, leased, _ := b.state()
	require.Equal(t, 2, ready)
	require.Zero(t, leased)
	require.Empty(t, got)
	require.Equal(t, uint64(2), b.polls.Stats().GivenBack)
	require.Empty(t, b.polls.core.groups)
}

// TestGivenBackMessageGoesToTheNext: what a cancelled receive took wakes one that waits.
func TestGivenBackMessageGoesToTheNext(t *testing.T) {
	b := newFake(Options{})
	_, second := b.receive(time.Hour)
	var held []func()
	b.hold = func(answer func()) { held = append(held, answer) }
	w, _ := b.receive(time.Hour)
	b.store(1)
	require.Len(t, held, 2)
	require.True(t, w.Cancel())
	held[0]() // takes the message, for nobody
	held[1]()
	require.Equal(t, 1, (<-second).messages)
}

func TestUnreachableBrokerIsAnErrorAtFirst(t *testing.T) {
	b := newFake(Options{})
	b.err = mqerr.New(mqerr.Unavailable, "no master")
	_, got := b.receive(time.Hour)
	require.True(t, mqerr.Is((<-got).err, mqerr.Unavailable))
}

// TestDownAndUp: a receive that waits lives through a restart of the broker, with Up and without.
func TestDownAndUp(t *testing.T) {
	for _, told := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newFake(Options{})
			_, got := b.receive(20 * time.Second)
			b.mu.Lock()
			b.err, b.armed = mqerr.New(mqerr.Unavailable, "gone"), false
			b.mu.Unlock()
			b.polls.Down(1)
			time.Sleep(2500 * time.Millisecond)
			b.mu.Lock()
			b.err, b.ready = nil, 1 // nobody is armed, so nobody is told
			b.mu.Unlock()
			want := 3 * time.Second
			if told {
				b.polls.Up(1)
				want = 2500 * time.Millisecond
			}
			require.Equal(t, received{messages: 1, after: want}, <-got)
			time.Sleep(time.Minute)
			require.Zero(t, b.polls.Stats().Waiting)
		})
	}
}

// TestReplyAfterDownIsNotTrusted: the reply of a pop says that the broker is armed, but it went down.
func TestReplyAfterDownIsNotTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFake(Options{})
		var held []func()
		b.hold = func(answer func()) { held = append(held, answer) }
		_, got := b.receive(20 * time.Second)
		b.polls.Down(1)
		held[0]()
		b.mu.Lock()
		b.hold = nil
		b.armed = false
		b.ready = 1
		b.mu.Unlock()
		require.Equal(t, received{messages: 1, after: time.Second}, <-got)
	})
}

// TestBrokerBackBeforeTheFailureIsKnown: the pop was lost with the old link, the new one is up.
func TestBrokerBackBeforeTheFailureIsKnown(t *testing.T) {
	b := newFake(Options{})
	b.err = mqerr.New(mqerr.UnknownOutcome, "link broke")
	var held []func()
	b.hold = func(answer func()) { held = append(held, answer) }
	_, got := b.receive(time.Hour)
	b.polls.Up(1)
	b.hold = nil
	held[0] = func() {}
	w := onlyOpen(t, b.polls)
	b.mu.Lock()
	b.err, b.ready = nil, 1
	b.mu.Unlock()
	w.popped(nil, mqerr.New(mqerr.UnknownOutcome, "link broke"))
	require.Equal(t, 1, (<-got).messages)
}

func onlyOpen(t *testing.T, p *Polls) *Wait {
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Len(t, p.core.due, 1)
	return p.core.due[0]
}

// TestFinalErrorGoesToAll: when the group is deleted every receive learns it.
func TestFinalErrorGoesToAll(t *testing.T) {
	b := newFake(Options{})
	var all []<-chan received
	for range 10 {
		_, got := b.receive(time.Hour)
		all = append(all, got)
	}
	b.mu.Lock()
	b.err = mqerr.New(mqerr.GroupNotFound, "deleted")
	b.mu.Unlock()
	b.polls.Ready(1, []brokerapi.Ready{{Topic: 1, Group: 2, Count: 1}})
	for _, got := range all {
		require.True(t, mqerr.Is((<-got).err, mqerr.GroupNotFound))
	}
}

func TestBounds(t *testing.T) {
	b := newFake(Options{MaxReceives: 3, MaxPerGroup: 2})
	w, _ := b.receive(time.Hour)
	b.receive(time.Hour)
	_, got := b.receive(time.Hour)
	require.True(t, mqerr.Is((<-got).err, mqerr.Exhausted))
	require.True(t, w.Cancel())
	_, got = b.receive(time.Hour)
	require.Empty(t, got)
	other := &Request{Shards: []brokerapi.ShardID{1}, Deadline: time.Now().Add(time.Hour)}
	other.Pop.Topic, other.Pop.Group = 1, 3
	b.polls.Receive(other, func(Answer) {})
	errs := make(chan error, 1)
	more := *other
	b.polls.Receive(&more, func(a Answer) { errs <- a.Err })
	require.True(t, mqerr.Is(<-errs, mqerr.Exhausted))
	require.Equal(t, uint64(2), b.polls.Stats().Refused)
	b.polls.Drain()
	_, got = b.receive(time.Hour)
	late := <-got
	require.NoError(t, late.err, "who comes late has not heard yet that it should go elsewhere")
	require.Zero(t, late.messages)
}

// TestManySynchronousAnswersDoNotNest: a broker that answers within the call must not cost stack.
func TestManySynchronousAnswersDoNotNest(t *testing.T) {
	b := newFake(Options{MaxPerGroup: 1 << 20})
	var answers atomic.Int64
	for range 20_000 {
		req := &Request{Shards: []brokerapi.ShardID{1}, Deadline: time.Now().Add(time.Hour)}
		req.Pop.Topic, req.Pop.Group, req.Pop.Max = 1, 2, 1
		b.polls.Receive(req, func(Answer) { answers.Add(1) })
	}
	b.store(20_000)
	require.Equal(t, int64(20_000), answers.Load())
}

// TestRaceOfCancelDeadlineAndAnswer runs receives that are cancelled at any moment against brokers
// that answer at any moment. Every receive ends once and every lease is taken or given back.
func TestRaceOfCancelDeadlineAndAnswer(t *testing.T) {
	b := newFake(Options{MaxPerGroup: 1 << 20})
	b.hold = func(answer func()) { go answer() }
	const receives, messages = 3000, 2000
	var wg sync.WaitGroup
	var ends, got atomic.Int64
	wg.Go(func() {
		for range messages {
			b.store(1)
		}
	})
	for range receives {
		wg.Go(func() {
			w, c := b.receive(time.Duration(rand.IntN(4)) * time.Millisecond)
			if rand.IntN(2) == 0 && w.Cancel() {
				ends.Add(1)
				return
			}
			r := <-c
			got.Add(int64(r.messages))
			ends.Add(1)
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool {
		ready, leased, _ := b.state()
		return leased == 0 && int64(ready)+got.Load() == messages
	}, 5*time.Second, time.Millisecond, "leases leaked")
	require.Equal(t, int64(receives), ends.Load())
	require.Zero(t, b.polls.Stats().Waiting)
}
