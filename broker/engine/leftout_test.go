package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// attempt is a receive that a client may repeat, with a lease of ten minutes. The longest delay of the group is
// one minute.
var attempt = brokerapi.PopRequest{
	Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupB), AttemptID: "attempt", Client: "push", Invisible: 10 * time.Minute,
}

// spoil damages one byte of a stored message, or mends it again.
func (b *bench) spoil(at brokerapi.LogPos) {
	b.t.Helper()
	f, err := b.fs.Open("data/log/00000000000000000000")
	require.NoError(b.t, err)
	one := make([]byte, 1)
	_, err = f.ReadAt(one, int64(at)+record.HeaderSize+20)
	require.NoError(b.t, err)
	_, err = f.WriteAt([]byte{^one[0]}, int64(at)+record.HeaderSize+20)
	require.NoError(b.t, err)
	require.NoError(b.t, f.Close())
}

// standsFor checks that one message of the group is out until its ten minutes are over.
func (b *bench) standsFor(left time.Duration) {
	b.t.Helper()
	b.clock.advance(left - time.Second)
	require.Empty(b.t, b.mustPop(topicSync, groupB), "a second before the end of the lease")
	b.clock.advance(time.Second + 2*time.Millisecond)
	ms := b.mustPop(topicSync, groupB)
	require.Len(b.t, ms, 1)
	require.EqualValues(b.t, 2, ms[0].Attempt)
}

// TestRepeatCannotRead: a client has a message, repeats its receive, and then the message cannot be read: the lease
// that it has from the first answer stays as it is.
//
//fault:damage a receive is repeated, and a message of its first answer cannot be read any more => the lease that the client has stays as it is
func TestRepeatCannotRead(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	sent := b.mustSend(topicSync, "one")
	first, _, err := b.pop(attempt)
	require.NoError(t, err)
	require.Len(t, first, 1)
	b.spoil(sent[0].Pos)
	again, _, err := b.pop(attempt)
	require.NoError(t, err)
	require.Empty(t, again)
	b.spoil(sent[0].Pos)
	b.standsFor(10 * time.Minute)
}

// TestRepeatOvertakes: a receive that waits for a slow disk is repeated and then finds that it cannot read a
// message; the repeated one can. The lease is that of the second answer and stays as it is.
//
//fault:damage a receive is repeated while the first one still reads, and only the second can read a message => the lease of the second answer stays as it is
func TestRepeatOvertakes(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	sent := b.mustSend(topicSync, "one")
	b.again() // what is older than the process is read beside the writer
	b.spoil(sent[0].Pos)
	for range cap(b.engine.cold) {
		b.engine.cold <- struct{}{}
	}
	pop := func() chan []string {
		req, c := attempt, make(chan []string, 1)
		req.Max = 1
		b.proxy.Pop(&req, func(r *brokerapi.PopReply, err error) {
			defer r.Release()
			all := []string{}
			for _, m := range r.Messages {
				all = append(all, string(m.Body))
			}
			c <- all
		})
		return c
	}
	first := pop()
	require.Eventually(t, func() bool {
		reads := false
		require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
			reads = w.views.pop.Len() == 1 && w.batch.Size() == 0 && len(w.synced) == 0
		}))
		return reads
	}, 20*time.Second, time.Millisecond, "the first receive waits for the disk")
	free := b.hold()
	second := pop()
	for range cap(b.engine.cold) {
		<-b.engine.cold
	}
	require.Empty(t, <-first)
	b.spoil(sent[0].Pos)
	free()
	require.Equal(t, []string{"one"}, <-second)
	b.standsFor(10 * time.Minute)
}

// TestGiveBackAfterRepeat: a proxy gives back an answer that did not arrive, and the client has the same messages by
// a repeated receive already: its lease stays. When the last answer is given back they go to others at once.
//
//fault:network a receive is repeated before the proxy gives back the first answer => the lease of the second answer stays as it is
func TestGiveBackAfterRepeat(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one")
	first, _, err := b.pop(attempt)
	require.NoError(t, err)
	again, _, err := b.pop(attempt)
	require.NoError(t, err)
	require.Equal(t, first, again)
	refused := b.change(topicSync, groupB, 0, brokerapi.ChangeKeep, first...)
	require.True(t, mqerr.Is(refused[0], mqerr.HandleInvalid), "%v", refused)
	require.Empty(t, b.mustPop(topicSync, groupB), "it is the client's")
	require.Equal(t, []error{nil}, b.change(topicSync, groupB, 0, brokerapi.ChangeKeep, again...))
	ms := b.mustPop(topicSync, groupB)
	require.Len(t, ms, 1)
	require.EqualValues(t, 1, ms[0].Attempt)

	b.mustSend(topicSync, "two")
	for range 2 {
		ms, _, err = b.pop(attempt)
		require.NoError(t, err)
		require.Equal(t, []string{"two"}, bodies(ms))
	}
	b.change(topicSync, groupB, 0, brokerapi.ChangeKeep, ms...)
	require.Equal(t, []error{nil}, b.change(topicSync, groupB, 0, brokerapi.ChangeLease, ms...), "the client may end its lease")
	require.Equal(t, []string{"two"}, bodies(b.mustPop(topicSync, groupB)))
}
