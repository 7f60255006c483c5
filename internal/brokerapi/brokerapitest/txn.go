package brokerapitest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// ifTransactions skips a test of a broker without transactions.
func ifTransactions(test func(*session)) func(*session) {
	return func(s *session) {
		if !s.Transactions {
			s.t.Skip("this broker has no transactions")
		}
		test(s)
	}
}

// half is a half message that is checked after a time, 0: the broker's default.
func half(id string, after time.Duration) brokerapi.Message {
	return brokerapi.Message{
		Queue: brokerapi.AnyQueue, Type: brokerapi.Transaction, ID: []byte(id), Body: []byte("body of " + id), User: []byte{1}, Sys: []byte{2, 3},
		Digest: [16]byte{9}, CheckAfter: after,
	}
}

func (s *session) end(topic brokerapi.TopicID, id string, commit bool) error {
	s.t.Helper()
	req := &brokerapi.EndTxnRequest{Head: s.head(), Topic: topic, ID: []byte(id), Commit: commit, Source: brokerapi.TxnByClient}
	_, err := await(s.t, func(done func(*brokerapi.EndTxnReply, error)) { s.EndTxn(req, done) })
	return err
}

func transactions(s *session) {
	for _, id := range []string{"a", "b", "c"} {
		r := s.send(half(id, 0))
		require.EqualValues(s.t, -1, r[0].Offset)
	}
	require.Empty(s.t, s.pop(s.receive()), "half messages are invisible")
	require.NoError(s.t, s.end(s.Topic, "a", true))
	require.NoError(s.t, s.end(s.Topic, "b", false))
	got := s.popUntil(1)
	require.Equal(s.t, "body of a", string(got[0].Body))
	require.Equal(s.t, brokerapi.Transaction, got[0].Type)
	require.GreaterOrEqual(s.t, got[0].Offset, brokerapi.QueueOffset(0))
	s.ok(s.ack(s.Group, handles(got)...))

	require.NoError(s.t, s.end(s.Topic, "a", true), "the same verdict again")
	require.NoError(s.t, s.end(s.Topic, "b", false), "the same verdict again")
	require.True(s.t, mqerr.Is(s.end(s.Topic, "a", false), mqerr.Invalid))
	require.True(s.t, mqerr.Is(s.end(s.Topic, "b", true), mqerr.Invalid))
	require.True(s.t, mqerr.Is(s.end(s.Topic, "unknown", true), mqerr.NotFound))
	require.True(s.t, mqerr.Is(s.end(s.OtherTopic, "c", true), mqerr.NotFound))
	require.True(s.t, mqerr.Is(s.end(9999, "c", true), mqerr.TopicNotFound))
	require.Empty(s.t, s.pop(s.receive()))

	again := s.send(half("c", 0))
	require.True(s.t, again[0].Duplicate, "sent again by a client that got no answer")
	other := s.another(brokerapi.Events{}) // a verdict may come through any proxy
	require.NoError(s.t, other.end(s.Topic, "c", true))
	require.Len(s.t, s.popUntil(1), 1)
}

// committedArms: a receive that waits hears of a commit.
func committedArms(s *session) {
	e := &ears{}
	p := s.another(e.events())
	s.send(half("id", 0))
	require.Empty(s.t, p.pop(p.receive(armed)))
	require.NoError(s.t, s.end(s.Topic, "id", true))
	require.Equal(s.t, 1, p.hears(e, s.Topic, s.Group))
	require.Len(s.t, p.popUntil(1), 1)
}

func (s *session) checks(most int) []brokerapi.Check {
	s.t.Helper()
	r, err := await(s.t, func(done func(*brokerapi.ChecksReply, error)) {
		s.Checks(&brokerapi.ChecksRequest{Head: s.head(), Max: most}, done)
	})
	require.NoError(s.t, err)
	defer r.Release()
	var out []brokerapi.Check
	for _, c := range r.Checks {
		c.Message = own([]brokerapi.Delivery{c.Message})[0]
		out = append(out, c)
	}
	return out
}

func transactionChecks(s *session) {
	notices := make(chan brokerapi.Notice, 64)
	p := s.another(brokerapi.Events{Notice: func(n brokerapi.Notice) {
		select {
		case notices <- n:
		default:
		}
	}})
	for i := range 3 {
		s.send(half(fmt.Sprint(i), 50*time.Millisecond))
	}
	s.pause(100 * time.Millisecond)
	require.Empty(s.t, p.checks(10), "it has no producers")
	_, err := p.Producers(s.context(), &brokerapi.ProducersRequest{Topics: []brokerapi.TopicID{s.Topic, s.OtherTopic}})
	require.NoError(s.t, err)
	select {
	case n := <-notices:
		require.Equal(s.t, brokerapi.NoticeChecks, n)
	case <-time.After(patience):
		s.t.Fatal("no notice")
	}
	got := append(p.checks(2), p.checks(2)...)
	require.Len(s.t, got, 3)
	for i, c := range got {
		require.Equal(s.t, s.Topic, c.Topic)
		require.Equal(s.t, 1, c.Checks)
		require.Equal(s.t, "body of "+fmt.Sprint(i), string(c.Message.Body))
		require.Equal(s.t, []byte{2, 3}, c.Message.Sys)
		require.Equal(s.t, [16]byte{9}, c.Message.Digest)
		require.Equal(s.t, brokerapi.Transaction, c.Message.Type)
		require.EqualValues(s.t, 1, c.Message.Attempt)
		require.NoError(s.t, s.end(s.Topic, fmt.Sprint(i), true))
	}
	require.Empty(s.t, p.checks(10))
	s.popUntil(3)
	_, err = await(s.t, func(done func(*brokerapi.ChecksReply, error)) {
		p.Checks(&brokerapi.ChecksRequest{Head: s.head()}, done)
	})
	require.True(s.t, mqerr.Is(err, mqerr.Invalid), err)
}
