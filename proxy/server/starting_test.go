package server

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/route"
)

// TestRefusesUntilRouted: without routes nothing is known to be missing or wrong.
//
//fault:kill a client comes back with its handles before the proxy has its routes => it is told to come again, not that topic or handle do not exist
func TestRefusesUntilRouted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routed := make(chan struct{})
		s := New(Options{Routes: new(route.Table), Routed: routed})
		calls := 0
		unary := s.Unary(RPCAckMessage, func(c call.Unary) { calls++; reject(c, refuse(rmqv2.Code_OK, okText)) })
		stream := s.Stream(RPCReceiveMessage, func(c call.Stream) { calls++; c.End() })
		duplex := s.Duplex(func(call.Duplex) error { calls++; return nil })
		all := func() (*rmqv2.AckMessageResponse, *fakeStream, error) {
			st := &fakeStream{fakeInfo: newInfo(t.Context(), "c"), done: make(chan struct{})}
			return ask(t, unary, &rmqv2.AckMessageRequest{}, &rmqv2.AckMessageResponse{}), ended(st, stream), duplex(nil)
		}
		r, st, err := all()
		require.Equal(t, rmqv2.Code_HA_NOT_AVAILABLE, r.GetStatus().GetCode())
		require.Equal(t, rmqv2.Code_HA_NOT_AVAILABLE, st.sent[0].GetStatus().GetCode())
		var f *call.Failure
		require.ErrorAs(t, err, &f)
		require.Equal(t, call.Unavailable, f.Code)
		require.Zero(t, calls)

		close(routed)
		r, _, err = all()
		require.Equal(t, rmqv2.Code_OK, r.GetStatus().GetCode())
		require.NoError(t, err)
		require.Equal(t, 3, calls)
	})
}

// ended makes a call with many replies and waits for its end.
func ended(st *fakeStream, handler func(call.Stream)) *fakeStream {
	handler(st)
	<-st.done
	return st
}
