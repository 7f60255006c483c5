package quorum

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/store/record"
)

const ms = time.Millisecond

var (
	m1, m2, m3, m4 = Member{1, 11}, Member{2, 12}, Member{3, 13}, Member{4, 14}
	all            = []Member{m1, m2, m3, m4}
)

func view(version uint64, set ...Member) View {
	return View{Epoch: 7, Master: m1, Version: version, Set: set, Replicas: all, MinISR: 1}
}

func atLeast(minISR int, v View) View {
	v.MinISR = minISR
	return v
}

// begin returns a master of epoch 7 whose EPOCH record ends at 100, with this S in version 5.
func begin(t *testing.T, minISR int, set ...Member) *Core {
	t.Helper()
	c, err := New(Options{Self: m1, View: atLeast(minISR, view(5, set...)), Start: 100, Written: 100, Durable: 100, Confirm: 60}, 0)
	require.NoError(t, err)
	return c
}

func open(t *testing.T, c *Core, now time.Duration, m Member) Session {
	t.Helper()
	s, _, err := c.Open(now, m, false)
	require.NoError(t, err)
	return s
}

func ack(t *testing.T, c *Core, now time.Duration, s Session, end record.Pos) Out {
	t.Helper()
	for c.now+500*ms < now {
		require.False(t, c.Tick(c.now+500*ms).Propose)
	}
	c.Sent(now, s, c.written)
	o, err := c.Acked(now, s, 7, end, end)
	require.NoError(t, err)
	require.NoError(t, c.Check())
	return o
}

func TestConfirmNeedsEveryMember(t *testing.T) {
	c := begin(t, 2, m1, m2, m3)
	require.Equal(t, record.Pos(60), c.Confirm())
	s2, s3 := open(t, c, 0, m2), open(t, c, 0, m3)
	require.Equal(t, Out{Confirm: 60}, ack(t, c, ms, s2, 100))
	require.Equal(t, Out{Confirm: 90, Moved: true}, ack(t, c, 2*ms, s3, 90))
	require.Equal(t, Out{Confirm: 100, Moved: true}, ack(t, c, 3*ms, s3, 100))
	require.False(t, c.OwnEnd(150, 120).Moved)
	ack(t, c, 4*ms, s2, 150)
	require.Equal(t, record.Pos(120), ack(t, c, 4*ms, s3, 150).Confirm, "the master's own disk counts")
	require.Equal(t, record.Pos(150), c.OwnEnd(150, 150).Confirm)
	require.Equal(t, record.Pos(150), ack(t, c, 5*ms, s2, 130).Confirm, "an ack that comes late takes nothing back")
	s2b := open(t, c, 6*ms, m2)
	require.Equal(t, record.Pos(150), c.OwnEnd(180, 180).Confirm)
	ack(t, c, 7*ms, s3, 180)
	require.Equal(t, record.Pos(150), c.Confirm(), "nothing of the former session counts")
	require.Equal(t, record.Pos(170), ack(t, c, 8*ms, s2b, 170).Confirm)
}

func TestModeSaysWhichEndCounts(t *testing.T) {
	for mode, want := range map[Mode]record.Pos{Durable: 110, Memory: 130} {
		c, err := New(Options{Self: m1, View: atLeast(2, view(5, m1, m2)), Mode: mode, Start: 100, Written: 100, Durable: 100}, 0)
		require.NoError(t, err)
		c.OwnEnd(140, 120)
		s := open(t, c, 0, m2)
		o, err := c.Acked(ms, s, 7, 130, 110)
		require.NoError(t, err)
		require.Equal(t, want, o.Confirm)
	}
}

func TestNothingIsConfirmedBelowTheMinimum(t *testing.T) {
	c := begin(t, 2, m1)
	require.Equal(t, record.Pos(60), c.OwnEnd(200, 200).Confirm)
	s2 := open(t, c, 0, m2)
	o := ack(t, c, ms, s2, 200)
	require.Equal(t, Out{Confirm: 60, Propose: true}, o, "proposed at once, but a set that is only proposed is no set")
	p, ok := c.Pending()
	require.True(t, ok)
	require.Equal(t, Proposal{Number: 1, Epoch: 7, Master: m1, Version: 5, Set: []Member{m1, m2}}, p)
	require.Equal(t, []Wait{{BelowMinISR, 1, 0, 140}}, c.Waits(nil))
	require.Equal(t, Out{Confirm: 200, Moved: true}, c.Controller(2*ms, atLeast(2, view(6, m1, m2))))
	_, ok = c.Pending()
	require.False(t, ok)
}

func TestTheMinimumChangesWithTheVersion(t *testing.T) {
	c := begin(t, 1, m1)
	require.Equal(t, record.Pos(100), c.Confirm())
	c.Controller(0, atLeast(2, view(5, m1)))
	require.Equal(t, 1, c.MinISR(), "not without a new version")
	c.Controller(0, atLeast(2, view(6, m1)))
	require.Equal(t, 2, c.MinISR())
	require.Equal(t, record.Pos(100), c.OwnEnd(200, 200).Confirm)
	require.Equal(t, record.Pos(200), c.Controller(0, view(7, m1)).Confirm)
	require.True(t, c.Controller(0, atLeast(0, view(8, m1))).Over, "no controller says that")
}

func TestAReplicaCountsFromTheMomentItIsProposed(t *testing.T) {
	c := begin(t, 1, m1)
	c.OwnEnd(200, 200)
	s2 := open(t, c, 0, m2)
	require.False(t, ack(t, c, 0, s2, 200).Propose, "not caught up for long enough")
	o := ack(t, c, 2*time.Second, s2, 200)
	require.True(t, o.Propose)
	require.Equal(t, record.Pos(200), c.OwnEnd(300, 300).Confirm, "C waits for it")
	require.Equal(t, record.Pos(250), ack(t, c, 2*time.Second, s2, 250).Confirm)
	// The answer does not come; it is asked again, the same, and counts all the while.
	o = c.Answered(3*time.Second, 1, Unknown, View{})
	require.Equal(t, Out{Confirm: 250}, o)
	require.False(t, c.Tick(3*time.Second+499*ms).Propose)
	require.True(t, c.Tick(3*time.Second+500*ms).Propose)
	p, _ := c.Pending()
	require.Equal(t, uint64(1), p.Number)
	// The copy that was sent first was carried out, so the second is refused: the view tells.
	require.Equal(t, record.Pos(250), c.Answered(4*time.Second, 1, Refused, view(6, m1, m2)).Confirm)
	set, version := c.Set()
	require.Equal(t, []Member{m1, m2}, set)
	require.Equal(t, uint64(6), version)
	require.Equal(t, record.Pos(300), ack(t, c, 4*time.Second, s2, 300).Confirm)
}

func TestJoinNeedsConfirmAndEpochStart(t *testing.T) {
	for _, test := range []struct {
		end  record.Pos
		want bool
	}{{99, false}, {100, false}, {149, false}, {150, true}} {
		c, err := New(Options{Self: m1, View: view(5, m1), Start: 100, Written: 150, Durable: 150, Times: Times{Rejoin: -1}}, 0)
		require.NoError(t, err)
		require.Equal(t, record.Pos(150), c.Confirm())
		require.Equal(t, test.want, ack(t, c, ms, open(t, c, 0, m2), test.end).Propose, test.end)
	}
	for end, want := range map[record.Pos]bool{99: false, 100: true} { // C is not known to be behind the record yet
		c, err := New(Options{Self: m1, View: atLeast(2, view(5, m1, m3)), Start: 100, Written: 150, Durable: 150, Confirm: 20, Times: Times{Rejoin: -1}}, 0)
		require.NoError(t, err)
		require.Equal(t, want, ack(t, c, ms, open(t, c, 0, m2), end).Propose, end)
	}
	c := begin(t, 1, m1)
	s, _, err := c.Open(0, m2, true)
	require.NoError(t, err)
	ack(t, c, 0, s, 100)
	require.False(t, ack(t, c, time.Hour, s, 100).Propose, "a learner is no member")
}

func TestOneProposalAtATime(t *testing.T) {
	c := begin(t, 1, m1)
	s2, s3 := open(t, c, 0, m2), open(t, c, 0, m3)
	ack(t, c, 0, s2, 100)
	require.True(t, ack(t, c, 2*time.Second, s2, 100).Propose)
	ack(t, c, 2*time.Second, s3, 100)
	require.False(t, ack(t, c, 4*time.Second, s3, 100).Propose)
	first, _ := c.Pending()
	require.Equal(t, []Member{m1, m2}, first.Set)
	c.Controller(4*time.Second, view(5, m1)) // nothing new
	again, _ := c.Pending()
	require.Equal(t, first, again)
	ack(t, c, 4*time.Second, s2, 100)
	o := c.Answered(4*time.Second, 1, Done, view(6, m1, m2))
	require.True(t, o.Propose, "the next one follows")
	next, _ := c.Pending()
	require.Equal(t, Proposal{Number: 2, Epoch: 7, Master: m1, Version: 6, Set: []Member{m1, m2, m3}}, next)
	c.Answered(4*time.Second, 1, Refused, view(6, m1, m2))
	_, ok := c.Pending()
	require.True(t, ok, "an answer to another proposal clears nothing")
	// It is refused although the version is right: an incarnation is over, for ever.
	c.Answered(4*time.Second, 2, Refused, view(6, m1, m2))
	_, ok = c.Pending()
	require.False(t, ok)
}
