package brokerapitest

import (
	"cmp"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// ifDelays skips a test of a broker that has neither delayed messages nor Recall.
func ifDelays(test func(*session)) func(*session) {
	return func(s *session) {
		if !s.Delays {
			s.t.Skip("without delayed messages")
		}
		test(s)
	}
}

// later is a message due after d.
func later(q brokerapi.QueueID, i int, d time.Duration) brokerapi.Message {
	m := message(q, i)
	m.Type, m.DeliverAt = brokerapi.Delay, time.Now().Add(d).UnixMilli()
	return m
}

// A message that is due later has no place until then; it is delivered by itself, not early, with its
// time. One that is due already has a place at once.
func delays(s *session) {
	for d := 300 * time.Millisecond; !s.delaysBy(d); d *= 2 {
		s.t.Logf("the machine is slow: again with more than %v", d)
	}
}

// delaysBy returns false, with nothing left, if the time came before it could be looked at.
func (s *session) delaysBy(d time.Duration) bool {
	m := later(brokerapi.AnyQueue, 0, d)
	fixed := later(1, 1, d)
	for _, one := range []brokerapi.Message{m, fixed} {
		r := s.send(one)[0]
		require.EqualValues(s.t, -1, r.Offset)
		require.Positive(s.t, int64(r.Pos))
	}
	before := s.pop(s.receive())
	if now := time.Now().UnixMilli(); now >= m.DeliverAt {
		s.ok(s.ack(s.Group, handles(append(before, s.popUntil(2-len(before))...))...))
		return false
	}
	require.Empty(s.t, before)
	past := s.send(later(0, 2, -time.Hour))[0]
	require.GreaterOrEqual(s.t, past.Offset, brokerapi.QueueOffset(0))
	got := s.popUntil(3)
	slices.SortFunc(got, func(a, b brokerapi.Delivery) int { return cmp.Compare(a.DeliverAt, b.DeliverAt) })
	require.Less(s.t, got[0].DeliverAt, m.DeliverAt, "what was due")
	got = got[1:]
	require.GreaterOrEqual(s.t, time.Now().UnixMilli(), m.DeliverAt, "early")
	for _, d := range got {
		require.Equal(s.t, brokerapi.Delay, d.Type)
		require.Contains(s.t, []int64{m.DeliverAt, fixed.DeliverAt}, d.DeliverAt)
		require.GreaterOrEqual(s.t, d.StoreTime, d.DeliverAt, "it is in its queue since then")
		if string(d.Body) == string(fixed.Body) {
			require.EqualValues(s.t, 1, d.Queue)
		}
	}
	s.ok(s.ack(s.Group, handles(got)...))
	return true
}

// A delivery by time wakes who has armed.
func delayWakes(s *session) {
	ready := make(chan brokerapi.Ready, 8)
	other := s.another(brokerapi.Events{Ready: func(r []brokerapi.Ready) {
		for _, one := range r {
			ready <- one
		}
	}})
	other.send(later(brokerapi.AnyQueue, 0, time.Second))
	require.Empty(s.t, other.pop(other.receive(armed)))
	select {
	case r := <-ready:
		require.Equal(s.t, s.Topic, r.Topic)
	case <-time.After(patience):
		s.t.Fatal("nobody was told")
	}
	require.Len(s.t, other.popUntil(1), 1)
}

func (s *session) recall(topic brokerapi.TopicID, ref brokerapi.LogPos, at int64) (string, error) {
	s.t.Helper()
	r, err := await(s.t, func(done func(*brokerapi.RecallReply, error)) {
		s.Recall(&brokerapi.RecallRequest{Head: s.head(), Topic: topic, Ref: ref, DeliverAt: at}, done)
	})
	if err != nil {
		return "", err
	}
	return string(r.ID), nil
}

// A recalled message is never delivered; a recall is told the truth.
func recalls(s *session) {
	m, stays := later(0, 0, 400*time.Millisecond), later(0, 1, 400*time.Millisecond)
	r := s.send(m, stays)
	for range 2 {
		id, err := s.recall(s.Topic, r[0].Pos, m.DeliverAt)
		require.NoError(s.t, err)
		require.Equal(s.t, string(m.ID), id)
	}
	_, err := s.recall(s.Topic, r[0].Pos+8, m.DeliverAt)
	refused(s.t, err, mqerr.NotFound)
	_, err = s.recall(s.OtherTopic, r[1].Pos, stays.DeliverAt)
	refused(s.t, err, mqerr.NotFound)
	_, err = s.recall(999, r[1].Pos, stays.DeliverAt)
	refused(s.t, err, mqerr.TopicNotFound)
	got := s.popUntil(1)
	require.Equal(s.t, string(stays.Body), string(got[0].Body))
	_, err = s.recall(s.Topic, r[1].Pos, stays.DeliverAt)
	refused(s.t, err, mqerr.NotFound)
	require.ErrorContains(s.t, err, "delivered")
	_, err = s.recall(s.Topic, r[0].Pos, m.DeliverAt)
	require.NoError(s.t, err)
	require.Empty(s.t, s.pop(s.receive()))
}
