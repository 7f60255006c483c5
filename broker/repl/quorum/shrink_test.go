package quorum

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/store/record"
)

func TestShrink(t *testing.T) {
	s := time.Second
	tick := func(c *Core, from, to time.Duration) (at time.Duration) {
		for at = from; at < to; at += 100 * ms {
			if c.Tick(at).Propose {
				return at
			}
		}
		return 0
	}
	t.Run("never came", func(t *testing.T) {
		c := begin(t, 1, m1, m2)
		require.Equal(t, 3*s, tick(c, 0, 20*s))
		require.Equal(t, []Wait{{NoSession, 2, 0, 100}}, c.Waits(nil))
		require.Equal(t, record.Pos(60), c.Confirm(), "it counts until the controller has confirmed")
		require.Equal(t, record.Pos(100), c.Controller(3*s, view(6, m1)).Confirm)
	})
	t.Run("gone", func(t *testing.T) {
		c := begin(t, 1, m1, m2)
		s2 := open(t, c, 0, m2)
		tick(c, 0, s)
		c.Close(s, s2)
		require.Equal(t, 2*s, tick(c, s, 20*s))
	})
	t.Run("left", func(t *testing.T) {
		c := begin(t, 1, m1, m2)
		s2 := open(t, c, 0, m2)
		ack(t, c, 0, s2, 100)
		tick(c, 0, s)
		require.True(t, c.Left(s, s2).Propose, "nobody waits for it")
		p, _ := c.Pending()
		require.Equal(t, []Member{m1}, p.Set)
	})
	t.Run("left and came back", func(t *testing.T) {
		c := begin(t, 1, m1, m2)
		s2 := open(t, c, 0, m2)
		c.Left(0, s2)
		s2 = open(t, c, 0, m2)
		require.False(t, c.Controller(0, view(6, m1, m2)).Propose)
		ack(t, c, 0, s2, 100)
		tick(c, 0, s)
		require.False(t, c.Close(s, s2).Propose)
		require.Equal(t, 2*s, tick(c, s, 20*s), "the goodbye was that of a session before")
	})
	t.Run("silent while something is to ack", func(t *testing.T) {
		c := begin(t, 1, m1, m2)
		s2 := open(t, c, 0, m2)
		ack(t, c, s, s2, 100)
		require.Zero(t, tick(c, s, 4*s))
		ack(t, c, 4*s, s2, 100)
		c.OwnEnd(200, 200)
		require.Equal(t, 7*s, tick(c, 4*s, 20*s))
		p, _ := c.Pending()
		require.Equal(t, []Member{m1}, p.Set)
	})
	t.Run("silent while nothing is to ack", func(t *testing.T) {
		c := begin(t, 1, m1, m2)
		ack(t, c, s, open(t, c, 0, m2), 100)
		require.Equal(t, 11*s, tick(c, s, 20*s), "what it does not ack is no sign of life")
	})
	t.Run("behind", func(t *testing.T) {
		c := begin(t, 1, m1, m2)
		s2 := open(t, c, 0, m2)
		ack(t, c, 0, s2, 100)
		for at := ms; ; at += 100 * ms {
			c.OwnEnd(c.written+10, c.written+10)
			if at == ms {
				c.Sent(at, s2, c.written)
			}
			o, err := c.Acked(at, s2, 7, 105, 105)
			require.NoError(t, err)
			if o.Propose {
				require.Equal(t, 10*s+ms, at, "acks, but none reaches what was sent")
				return
			}
		}
	})
	t.Run("late but steady", func(t *testing.T) {
		c := begin(t, 1, m1, m2)
		s2 := open(t, c, 0, m2)
		for at := ms; at < 60*s; at += 100 * ms {
			c.OwnEnd(c.written+10, c.written+10)
			c.Sent(at, s2, c.written)
			o, err := c.Acked(at, s2, 7, max(100, c.written-500), max(100, c.written-500)) // 5 s late
			require.NoError(t, err)
			require.False(t, o.Propose, at)
		}
	})
	t.Run("this process stood still", func(t *testing.T) {
		c := begin(t, 1, m1, m2)
		s2 := open(t, c, 0, m2)
		ack(t, c, 0, s2, 100)
		c.OwnEnd(200, 200)
		require.False(t, c.Tick(20*s).Propose, "its own silence is not the member's")
		require.Equal(t, 23*s, tick(c, 20*s, 60*s))
	})
}

func TestRejoinWaits(t *testing.T) {
	c := begin(t, 1, m1)
	s2 := open(t, c, 0, m2)
	ack(t, c, 0, s2, 100)
	ack(t, c, time.Second, s2, 100)
	s2 = open(t, c, time.Second, m2)
	require.False(t, ack(t, c, 2*time.Second, s2, 100).Propose, "since the session began")
	require.False(t, ack(t, c, 3*time.Second+900*ms, s2, 100).Propose)
	require.True(t, ack(t, c, 4*time.Second, s2, 100).Propose)
}
