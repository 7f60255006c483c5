package follower

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

var master = quorum.Member{Replica: 1, Inc: 11}

// start returns a follower with a log [0, 100) of epochs 3 and 5, confirmed to 60, which promised epoch 6.
func start(t *testing.T) *Core {
	t.Helper()
	x := replica.New(0)
	require.NoError(t, x.Append(3, 0, 50))
	require.NoError(t, x.Append(5, 50, 100))
	c, err := New(Options{Log: x, Durable: 100, Confirm: 60, Promised: 6})
	require.NoError(t, err)
	return c
}

// greet brings a follower to where it awaits the welcome of epoch 7.
func greet(t *testing.T, c *Core) {
	t.Helper()
	todo, err := c.Follow(7, master)
	require.NoError(t, err)
	if todo.Promise != 0 {
		c.PromiseKept(todo.Promise)
	}
	_, err = c.Hello()
	require.NoError(t, err)
}

func welcome(v replica.Verdict, at record.Pos) Welcome {
	return Welcome{Session: 4, Epoch: 7, Master: master, Answer: replica.Answer{Verdict: v, At: at}, Confirm: 90, LogEnd: 150}
}

func TestALifeOfAFollower(t *testing.T) {
	c := start(t)
	require.Equal(t, Idle, c.State())
	todo, err := c.Follow(7, master)
	require.NoError(t, err)
	require.Equal(t, Todo{Promise: 7}, todo)
	_, err = c.Hello()
	require.True(t, mqerr.Is(err, mqerr.Unavailable), "nobody hears of it before the promise is on disk")
	c.PromiseKept(7)
	h, err := c.Hello()
	require.NoError(t, err)
	require.Equal(t, replica.Hello{End: 100, Confirm: 60, Spans: []replica.Span{{Epoch: 5, Start: 50, End: 100}, {Epoch: 3, Start: 0, End: 50}}}, h)

	todo, err = c.Welcome(welcome(replica.Truncate, 80))
	require.NoError(t, err)
	require.Equal(t, Todo{Cut: true, CutAt: 80}, todo)
	_, ok := c.Ack()
	require.False(t, ok, "nothing is acked before the cut is on disk")
	b := Batch{Session: 4, Epoch: 7, Start: 80, End: 120, RecordEpoch: 6, Confirm: 95}
	_, err = c.Batch(b)
	require.True(t, mqerr.Is(err, mqerr.Fenced), "nor appended")
	todo, err = c.CutDone(80)
	require.NoError(t, err)
	require.Equal(t, Todo{Ack: true}, todo)
	a, ok := c.Ack()
	require.True(t, ok)
	require.Equal(t, Ack{Session: 4, Epoch: 7, Written: 80, Durable: 80}, a)
	require.Equal(t, record.Pos(80), c.Confirm(), "the master's C, as far as the log goes")
	require.Equal(t, CatchingUp, c.State())

	todo, err = c.Batch(b)
	require.NoError(t, err)
	require.Equal(t, Todo{Append: true}, todo)
	require.Equal(t, record.Pos(80), c.Confirm(), "not before it is written")
	_, err = c.Batch(Batch{Session: 4, Epoch: 7, Start: 120, End: 130, RecordEpoch: 7})
	require.True(t, mqerr.Is(err, mqerr.Internal), "one after another")
	todo, err = c.Appended(b)
	require.NoError(t, err)
	require.Equal(t, Todo{Ack: true}, todo)
	a, _ = c.Ack()
	require.Equal(t, Ack{Session: 4, Epoch: 7, Written: 120, Durable: 80}, a)
	require.Equal(t, record.Pos(95), c.Confirm())
	require.True(t, c.Flushed(120).Ack)
	a, _ = c.Ack()
	require.Equal(t, record.Pos(120), a.Durable)

	b = Batch{Session: 4, Epoch: 7, Start: 120, End: 150, RecordEpoch: 7, Confirm: 95}
	_, err = c.Batch(b)
	require.NoError(t, err)
	_, err = c.Appended(b)
	require.NoError(t, err)
	require.Equal(t, InSync, c.State())
	todo, err = c.Beat(Beat{Session: 4, Epoch: 7, LogEnd: 150, Confirm: 150})
	require.NoError(t, err)
	require.True(t, todo.Ack, "the master is to know that it is heard")
	require.Equal(t, record.Pos(150), c.Confirm())
	_, err = c.Beat(Beat{Session: 4, Epoch: 7, LogEnd: 170, Confirm: 120})
	require.NoError(t, err)
	require.Equal(t, record.Pos(150), c.Confirm(), "C never goes back")
	require.Equal(t, CatchingUp, c.State())
	require.NoError(t, c.Check())

	require.Equal(t, Todo{Close: true}, c.Lost())
	_, ok = c.Ack()
	require.False(t, ok)
	require.Equal(t, Connecting, c.State())
}

func TestAPromiseIsAFence(t *testing.T) {
	c := start(t)
	greet(t, c)
	_, err := c.Welcome(welcome(replica.Resume, 100))
	require.NoError(t, err)
	b := Batch{Session: 4, Epoch: 7, Start: 100, End: 120, RecordEpoch: 7, Confirm: 100}
	_, err = c.Batch(b)
	require.NoError(t, err)
	require.Equal(t, Todo{Close: true, Promise: 9}, c.Seen(9))
	require.Equal(t, Idle, c.State(), "who leads epoch 9 is not known")
	todo, err := c.Appended(b)
	require.NoError(t, err)
	require.Equal(t, Todo{}, todo, "it is written, and nobody may hear of it")
	require.Equal(t, record.Pos(120), c.End())
	_, ok := c.Ack()
	require.False(t, ok)
	_, err = c.Follow(7, master)
	require.True(t, mqerr.Is(err, mqerr.Fenced), err)
	_, err = c.Beat(Beat{Session: 4, Epoch: 7, LogEnd: 150, Confirm: 120})
	require.True(t, mqerr.Is(err, mqerr.Fenced), err)
	require.Equal(t, record.Pos(90), c.Confirm())
	require.Equal(t, Todo{}, c.Seen(8))
	require.Equal(t, record.Epoch(9), c.Promised())
	require.NoError(t, c.Check())
}

func TestAMasterOfAHigherEpoch(t *testing.T) {
	c := start(t)
	greet(t, c)
	w := welcome(replica.Truncate, 90)
	w.Epoch, w.Master = 8, quorum.Member{Replica: 2, Inc: 12}
	todo, err := c.Welcome(w)
	require.NoError(t, err)
	require.Equal(t, Todo{Promise: 8, Cut: true, CutAt: 90}, todo)
	todo, err = c.CutDone(90)
	require.NoError(t, err)
	require.False(t, todo.Ack, "the promise is not on disk")
	require.True(t, c.PromiseKept(8).Ack)
	got, ok := c.Master()
	require.True(t, ok)
	require.Equal(t, w.Master, got)
}

func TestNothingBelowConfirmIsCut(t *testing.T) {
	for name, w := range map[string]Welcome{
		"cut":      welcome(replica.Truncate, 59),
		"replace":  func() Welcome { w := welcome(replica.Snapshot, 0); w.LogMin = 59; return w }(),
		"diverged": welcome(replica.Diverged, 0),
	} {
		c := start(t)
		greet(t, c)
		w.Epoch, w.Master.Inc = 8, 99
		_, err := c.Welcome(w)
		require.True(t, mqerr.Is(err, mqerr.Corrupt), name)
		require.Equal(t, Failed, c.State(), name)
		require.Equal(t, record.Pos(100), c.End(), name)
		_, err = c.Follow(8, master)
		require.ErrorIs(t, err, c.Failed(), name)
		_, err = c.Hello()
		require.Error(t, err, name)
		require.Equal(t, record.Epoch(9), c.Seen(9).Promise, "epochs are seen all the same")
		require.Equal(t, Failed, c.State(), name)
	}
	c := start(t)
	_, err := c.CutDone(59)
	require.True(t, mqerr.Is(err, mqerr.Corrupt), err)
	require.Equal(t, record.Pos(100), c.End())
}

func TestSnapshotAndMoreSpans(t *testing.T) {
	c := start(t)
	greet(t, c)
	todo, err := c.Welcome(welcome(replica.MoreSpans, 0))
	require.NoError(t, err)
	require.Equal(t, Todo{MoreSpans: true}, todo)
	w := welcome(replica.Snapshot, 0)
	w.LogMin = 60
	todo, err = c.Welcome(w)
	require.NoError(t, err)
	require.Equal(t, Todo{Snapshot: true}, todo)
	_, ok := c.Ack()
	require.False(t, ok)
}

func TestWelcomeRefuses(t *testing.T) {
	for name, change := range map[string]func(*Welcome){
		"an epoch that is over":    func(w *Welcome) { w.Epoch = 6 },
		"another master":           func(w *Welcome) { w.Master.Inc++ },
		"no session":               func(w *Welcome) { w.Session = 0 },
		"resume elsewhere":         func(w *Welcome) { w.At = 99 },
		"cut beyond the end":       func(w *Welcome) { w.Answer = replica.Answer{Verdict: replica.Truncate, At: 101} },
		"no verdict":               func(w *Welcome) { w.Verdict = 0 },
		"a log that ends early":    func(w *Welcome) { w.LogMin = 151 },
		"confirmed beyond its end": func(w *Welcome) { w.Confirm = 151 },
	} {
		c := start(t)
		greet(t, c)
		w := welcome(replica.Resume, 100)
		change(&w)
		_, err := c.Welcome(w)
		require.Error(t, err, name)
		_, ok := c.Ack()
		require.False(t, ok, name)
		require.Equal(t, Reconciling, c.State(), name)
		_, err = c.Welcome(welcome(replica.Resume, 100))
		require.NoError(t, err, name)
		_, err = c.Welcome(welcome(replica.Resume, 100))
		require.Error(t, err, "one is enough")
	}
}

func TestBatchRefuses(t *testing.T) {
	c := start(t)
	greet(t, c)
	_, err := c.Welcome(welcome(replica.Resume, 100))
	require.NoError(t, err)
	good := Batch{Session: 4, Epoch: 7, Start: 100, End: 120, RecordEpoch: 7, Confirm: 90}
	for name, test := range map[string]struct {
		kind   mqerr.Kind
		change func(*Batch)
	}{
		"another session":         {mqerr.Fenced, func(b *Batch) { b.Session = 3 }},
		"an epoch that is over":   {mqerr.Fenced, func(b *Batch) { b.Epoch = 6 }},
		"an epoch to come":        {mqerr.Fenced, func(b *Batch) { b.Epoch = 8 }},
		"a gap":                   {mqerr.Invalid, func(b *Batch) { b.Start = 108 }},
		"an overlap":              {mqerr.Invalid, func(b *Batch) { b.Start = 92 }},
		"nothing":                 {mqerr.Invalid, func(b *Batch) { b.End = 100 }},
		"records of older epochs": {mqerr.Invalid, func(b *Batch) { b.RecordEpoch = 4 }},
		"records of newer epochs": {mqerr.Invalid, func(b *Batch) { b.RecordEpoch = 8 }},
		"a part of one write":     {mqerr.Invalid, func(b *Batch) { b.More = true }},
		"a negative C":            {mqerr.Invalid, func(b *Batch) { b.Confirm = -1 }},
	} {
		b := good
		test.change(&b)
		_, err := c.Batch(b)
		require.True(t, mqerr.Is(err, test.kind), "%s: %v", name, err)
	}
	require.Equal(t, record.Pos(90), c.Confirm())
	_, err = c.Batch(good)
	require.NoError(t, err)
	_, err = c.Beat(Beat{Session: 4, Epoch: 7, LogEnd: 100, Confirm: 101})
	require.True(t, mqerr.Is(err, mqerr.Invalid), err)
}

func TestAnotherMasterOfTheSameEpochIsAnotherStream(t *testing.T) {
	c := start(t)
	greet(t, c)
	todo, err := c.Follow(7, master)
	require.NoError(t, err)
	require.Equal(t, Todo{}, todo, "that is known")
	require.Equal(t, Reconciling, c.State())
	require.Equal(t, Todo{}, c.Seen(7))
	todo, err = c.Follow(8, quorum.Member{Replica: 2, Inc: 12})
	require.NoError(t, err)
	require.Equal(t, Todo{Close: true, Promise: 8}, todo)
	require.Equal(t, Connecting, c.State())
}

func TestNewRefuses(t *testing.T) {
	x := replica.New(0)
	require.NoError(t, x.Append(3, 0, 50))
	for _, o := range []Options{
		{Log: x, Durable: 51, Promised: 3}, {Log: x, Durable: 50, Confirm: 51, Promised: 3}, {Log: x, Durable: 50, Promised: 2}, {Log: x, Durable: 50},
	} {
		_, err := New(o)
		require.Error(t, err, o)
	}
}
