package brokerapitest

import (
	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// liteTopics: a client gets what it subscribes to and hears of it, in order.
func liteTopics(s *session) {
	if s.LiteParent == 0 {
		s.t.Skip("this broker has no lite topics")
	}
	e := &ears{}
	s = s.another(e.events())
	send := func(name, body string) {
		m := message(brokerapi.AnyQueue, 1)
		m.Type, m.Lite, m.Body = brokerapi.Lite, name, []byte(body)
		_, err := await(s.t, func(done func(*brokerapi.SendReply, error)) {
			s.Send(&brokerapi.SendRequest{Head: s.head(), Topic: s.LiteParent, Messages: []brokerapi.Message{m}}, done)
		})
		require.NoError(s.t, err)
	}
	sync := func(client string, names ...string) error {
		_, err := s.SyncLite(s.context(), &brokerapi.SyncLiteRequest{
			Topic: s.LiteParent, Group: s.LiteGroup, Client: client, Action: brokerapi.LiteCompleteAdd, Names: names,
		})
		return err
	}
	pop := func(client string) []string {
		req := s.receive(func(r *brokerapi.PopRequest) {
			r.Topic, r.Group, r.Client, r.Arm = s.LiteParent, s.LiteGroup, client, true
		})
		var bodies []string
		for _, m := range s.pop(req) {
			bodies = append(bodies, string(m.Body))
		}
		return bodies
	}
	require.NoError(s.t, sync("one", "a"))
	require.NoError(s.t, sync("two", "b"))
	require.Empty(s.t, pop("one"))
	require.Empty(s.t, pop("two"))
	send("b", "b1")
	var heard []brokerapi.Ready
	s.eventually(func() bool {
		heard = append(heard, e.heard()...)
		return len(heard) > 0
	})
	require.Equal(s.t, brokerapi.HashClient("two"), heard[0].Client)
	require.Equal(s.t, []string{"b1"}, pop("two"))
	require.Empty(s.t, pop("one"))
	require.True(s.t, mqerr.Is(sync("one", ""), mqerr.Invalid))
	gone, err := s.LiteGone(s.context(), &brokerapi.LiteGoneRequest{})
	require.NoError(s.t, err)
	require.Empty(s.t, gone.Gone)
}

// listings: lite topics are listed, and a topic that does not grow has nothing to drain.
func listings(s *session) {
	if s.LiteParent == 0 {
		s.t.Skip("this broker has no lite topics")
	}
	m := message(brokerapi.AnyQueue, 1)
	m.Type, m.Lite = brokerapi.Lite, "listed"
	_, err := await(s.t, func(done func(*brokerapi.SendReply, error)) {
		s.Send(&brokerapi.SendRequest{Head: s.head(), Topic: s.LiteParent, Messages: []brokerapi.Message{m}}, done)
	})
	require.NoError(s.t, err)
	r, err := s.LiteList(s.context(), &brokerapi.LiteListRequest{Topic: s.LiteParent, After: "list", Max: 1})
	require.NoError(s.t, err)
	require.Len(s.t, r.Topics, 1)
	require.Equal(s.t, "listed", r.Topics[0].Name)
	require.GreaterOrEqual(s.t, r.Count, 1)
	_, err = s.LiteList(s.context(), &brokerapi.LiteListRequest{Topic: s.LiteParent, Max: -1})
	require.True(s.t, mqerr.Is(err, mqerr.Invalid), "%v", err)
	drained, err := s.Drain(s.context(), &brokerapi.DrainRequest{Topic: s.Topic, Began: 5})
	require.NoError(s.t, err)
	require.Equal(s.t, &brokerapi.DrainReply{}, drained)

	// The queue of a message group is chosen by a list of queues: another one than the broker's is refused.
	m = message(0, 1)
	m.Type, m.GroupHash = brokerapi.FIFO, 7
	_, err = await(s.t, func(done func(*brokerapi.SendReply, error)) {
		s.Send(&brokerapi.SendRequest{Head: s.head(), Topic: s.Topic, Layout: 1 << 40, Messages: []brokerapi.Message{m}}, done)
	})
	require.True(s.t, mqerr.Is(err, mqerr.Exhausted), "%v", err)
}
