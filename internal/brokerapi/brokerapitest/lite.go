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
