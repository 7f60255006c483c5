package quorum

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

func TestStaleSessionsAndIncarnations(t *testing.T) {
	c := begin(t, 2, m1, m2)
	old := open(t, c, 0, m2)
	s2, superseded, err := c.Open(ms, m2, false)
	require.NoError(t, err)
	require.Equal(t, old, superseded)
	_, err = c.Acked(ms, old, 7, 100, 100)
	require.True(t, mqerr.Is(err, mqerr.Fenced), err)
	require.False(t, c.Sent(ms, old, 100))
	require.False(t, c.Close(ms, old).Moved)
	require.Equal(t, record.Pos(60), c.Confirm())
	require.True(t, c.Sent(ms, s2, 100))

	_, err = c.Acked(ms, s2, 6, 100, 100)
	require.True(t, mqerr.Is(err, mqerr.Fenced), "an ack of an older epoch")
	for _, ends := range [][2]record.Pos{{101, 100}, {90, 91}, {90, -1}} {
		_, err = c.Acked(ms, s2, 7, ends[0], ends[1])
		require.True(t, mqerr.Is(err, mqerr.Invalid), ends)
	}
	require.Equal(t, record.Pos(60), c.Confirm())

	// It restarted, and nobody but itself says so: it is another member than S has.
	newer := Member{2, 22}
	s2 = open(t, c, 2*ms, newer)
	require.Equal(t, record.Pos(60), ack(t, c, 2*ms, s2, 100).Confirm)
	require.Equal(t, NoSession, c.Waits(nil)[0].Reason)
	_, _, err = c.Open(3*ms, m2, false)
	require.True(t, mqerr.Is(err, mqerr.Fenced), "the process from before")
	v := atLeast(2, view(5, m1, newer))
	v.Replicas = []Member{m1, newer}
	require.Equal(t, record.Pos(100), c.Controller(3*ms, v).Confirm, "the controller says so, too")
	require.Equal(t, record.Pos(100), c.Controller(3*ms, view(5, m1, m2)).Confirm)
	require.True(t, c.Sent(3*ms, s2, 100), "an old view changes nothing")

	v.Replicas = []Member{m1, {2, 32}}
	c.Controller(4*ms, v)
	require.False(t, c.Sent(4*ms, s2, 100), "a newer process has registered")

	_, _, err = c.Open(4*ms, m1, false)
	require.True(t, mqerr.Is(err, mqerr.Invalid), err)
}

func TestEpochEnds(t *testing.T) {
	for name, do := range map[string]func(c *Core, s Session) Out{
		"a follower has seen a higher one": func(c *Core, _ Session) Out { return c.Higher(8) },
		"an ack of a higher one": func(c *Core, s Session) Out {
			o, _ := c.Acked(ms, s, 8, 100, 100)
			return o
		},
		"the controller has a higher one": func(c *Core, _ Session) Out { return c.Controller(ms, View{Epoch: 8}) },
		"it resigned":                     func(c *Core, _ Session) Out { return c.Controller(ms, View{Epoch: 7, Version: 5, Set: all}) },
		"an answer shows it":              func(c *Core, _ Session) Out { return c.Answered(ms, 0, Refused, View{Epoch: 9}) },
		"it runs twice": func(c *Core, _ Session) Out {
			return c.Controller(ms, View{Epoch: 7, Version: 5, Master: Member{1, 99}, Set: []Member{{1, 99}}})
		},
	} {
		c := begin(t, 1, m1, m2)
		s2 := open(t, c, 0, m2)
		require.False(t, c.Higher(7).Over)
		require.False(t, c.Controller(0, View{Epoch: 6, Version: 99}).Over, "the past")
		require.True(t, do(c, s2).Over, name)
		require.True(t, mqerr.Is(c.Over(), mqerr.Fenced), name)
		_, err := c.Acked(ms, s2, 7, 100, 100)
		require.Error(t, err, name)
		require.Equal(t, Out{Confirm: 60, Over: true}, c.Tick(time.Hour), name)
		_, _, err = c.Open(ms, m3, false)
		require.Error(t, err, name)
	}
}

func TestNewRefuses(t *testing.T) {
	good := Options{Self: m1, View: view(5, m1), Start: 100, Written: 100, Durable: 100}
	_, err := New(good, 0)
	require.NoError(t, err)
	for name, change := range map[string]func(*Options){
		"no copies":            func(o *Options) { o.View.MinISR = 0 },
		"another master":       func(o *Options) { o.Self = m2 },
		"not in the set":       func(o *Options) { o.View.Set = []Member{m2} },
		"no epoch":             func(o *Options) { o.View.Epoch = 0 },
		"no epoch record":      func(o *Options) { o.Start = 0 },
		"not durable":          func(o *Options) { o.Durable = 99 },
		"confirmed beyond":     func(o *Options) { o.Confirm = 101 },
		"written behind":       func(o *Options) { o.Written = 99 },
		"a group beyond bound": func(o *Options) { o.View.Replicas = make([]Member, PeersMax+1) },
	} {
		o := good
		change(&o)
		_, err := New(o, 0)
		require.True(t, mqerr.Is(err, mqerr.Invalid), name)
	}
}

func TestPeersAreBounded(t *testing.T) {
	c := begin(t, 1, m1)
	for i := Replica(2); i < 2+PeersMax; i++ {
		_, _, err := c.Open(0, Member{i, 1000}, false)
		require.NoError(t, err)
	}
	_, _, err := c.Open(0, Member{900, 1000}, false)
	require.True(t, mqerr.Is(err, mqerr.Exhausted), err)
	for s := Session(1); s <= PeersMax; s++ {
		c.Close(0, s)
	}
	c.Controller(0, view(5, m1))
	require.Len(t, c.Peers(nil), 3, "who is not registered and has no session is forgotten")
	require.Equal(t, Peer{Member: Member{2, 1000}}, c.Peers(nil)[0])
}

func TestWaits(t *testing.T) {
	c := begin(t, 2, m1, m2, m3)
	c.Tick(500 * ms)
	s2 := open(t, c, 500*ms, m2)
	s3 := open(t, c, 500*ms, m3)
	c.OwnEnd(140, 130)
	ack(t, c, 600*ms, s3, 120)
	require.Equal(t, []Wait{{OwnFlush, 1, 0, 10}, {NoAck, 2, 500 * ms, 140}, {LateAck, 3, 0, 20}}, c.Waits(nil))
	c.Close(700*ms, s2)
	require.Equal(t, Wait{NoSession, 2, 700 * ms, 140}, c.Waits(nil)[1])
	require.Equal(t, "late_ack", LateAck.String())
	require.Equal(t, "reason 99", Reason(99).String())
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	c := begin(t, 2, m1, m2, m3)
	s2, s3 := open(t, c, 0, m2), open(t, c, 0, m3)
	end, now := record.Pos(100), ms
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		end, now = end+8, now+ms
		c.OwnEnd(end, end)
		c.Sent(now, s2, end)
		for _, s := range []Session{s2, s3} {
			if _, err := c.Acked(now, s, 7, end, end); err != nil {
				t.Fatal(err)
			}
		}
		c.Tick(now)
	}))
	require.Equal(t, end, c.Confirm())
}
