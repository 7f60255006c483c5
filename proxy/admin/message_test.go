package admin

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/route"
)

// finding is a broker that finds what a test says.
type finding struct {
	brokerapi.Broker
	found brokerapi.FindReply
	trace brokerapi.TraceReply
	fail  error
	asked brokerapi.FindRequest
}

func (f *finding) Find(_ context.Context, req *brokerapi.FindRequest) (*brokerapi.FindReply, error) {
	f.asked = *req
	if f.fail != nil {
		return nil, f.fail
	}
	return &f.found, nil
}

func (f *finding) Trace(context.Context, *brokerapi.TraceRequest) (*brokerapi.TraceReply, error) {
	return &f.trace, f.fail
}

type findings map[brokerapi.ShardID]*finding

func (m findings) Broker(shard brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	if b := m[shard]; b != nil {
		return b, 1, nil
	}
	return nil, 0, mqerr.New(mqerr.Unavailable, "broker group has no master")
}

func findingServer(m findings) *Server {
	routes := new(route.Table)
	routes.Apply(route.Update{
		Shards: []route.Shard{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}},
		Topics: []route.Topic{{ID: 7, Name: "orders", Type: route.Normal, Placements: []route.Placement{{Shard: 1, Queues: 1}, {Shard: 2, Queues: 1}}}},
		Groups: []route.Group{{ID: 3, Name: "billing"}},
	})
	return New(Options{Routes: routes, Brokers: m})
}

// TestFindMessages: what all brokers found, the newest first, as many as were asked for; who does not answer is
// named.
func TestFindMessages(t *testing.T) {
	sys, err := proto.Marshal(&rmqv2.SystemProperties{Keys: []string{"k"}, Tag: new("t")})
	require.NoError(t, err)
	user, err := proto.Marshal(&rmqv2.Message{UserProperties: map[string]string{"color": "red"}})
	require.NoError(t, err)
	a := &finding{found: brokerapi.FindReply{Messages: []brokerapi.Found{{StoreTime: 30, ID: "new"}, {StoreTime: 10, ID: "old"}}}}
	b := &finding{found: brokerapi.FindReply{Messages: []brokerapi.Found{{StoreTime: 20, ID: "between", Type: brokerapi.FIFO, Sys: sys, User: user, Body: []byte("x")}}, Unknown: []string{"some"}}}
	s := findingServer(findings{1: a, 2: b})
	r, err := s.FindMessages(t.Context(), &adminv1.FindMessagesRequest{Topic: "orders", Key: "k", Max: 2})
	require.NoError(t, err)
	require.Len(t, r.GetMessages(), 2)
	require.Equal(t, "new", r.GetMessages()[0].GetId())
	m := r.GetMessages()[1]
	require.Equal(t, []any{"between", "b", "FIFO", "t", "red"}, []any{m.GetId(), m.GetBroker(), m.GetType(), m.GetTag(), m.GetProperties()["color"]})
	require.Equal(t, []string{"k"}, m.GetKeys())
	require.True(t, r.GetMore())
	require.Equal(t, []string{"broker b: some"}, r.GetUnknown())
	require.EqualValues(t, 7, a.asked.Topic)

	b.fail = mqerr.New(mqerr.Unavailable, "gone")
	r, err = s.FindMessages(t.Context(), &adminv1.FindMessagesRequest{Topic: "orders", Id: "x", Broker: "b"})
	require.NoError(t, err)
	require.Equal(t, []string{"broker b: gone"}, r.GetUnknown())

	b.fail = mqerr.New(mqerr.NotFound, "queue 0 ends at offset 1")
	place := &adminv1.MessagePlace{}
	r, err = s.FindMessages(t.Context(), &adminv1.FindMessagesRequest{Topic: "orders", Place: place})
	require.NoError(t, err)
	require.Empty(t, r.GetUnknown(), "a broker has it")
	a.fail = b.fail
	_, err = s.FindMessages(t.Context(), &adminv1.FindMessagesRequest{Topic: "orders", Place: place})
	require.Equal(t, codes.NotFound, status.Code(err))

	for _, bad := range []*adminv1.FindMessagesRequest{{Topic: "orders"}, {Topic: "orders", Key: "k", Id: "x"}, {Topic: "orders", Id: "x", Place: place}} {
		_, err = s.FindMessages(t.Context(), bad)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	}
	_, err = s.FindMessages(t.Context(), &adminv1.FindMessagesRequest{Topic: "nosuch", Key: "k"})
	require.Equal(t, codes.NotFound, status.Code(err))
	_, err = s.FindMessages(t.Context(), &adminv1.FindMessagesRequest{Topic: "orders", Key: "k", Broker: "c"})
	require.ErrorContains(t, err, "those are on a, b")
}

func TestTraceMessage(t *testing.T) {
	a := &finding{trace: brokerapi.TraceReply{
		Message: brokerapi.Found{ID: "id"}, More: true, State: []byte("s"), Next: 9, End: 10,
		Events: []brokerapi.TraceEvent{{What: "stored"}, {What: "leased", Group: 3, Client: "c"}, {What: "acked", Group: 4}},
	}}
	s := findingServer(findings{1: a})
	r, err := s.TraceMessage(t.Context(), &adminv1.TraceMessageRequest{Topic: "orders", Broker: "a", Position: 8})
	require.NoError(t, err)
	require.Equal(t, "id", r.GetMessage().GetId())
	require.Equal(t, []string{"", "billing", "group #4"}, []string{r.GetEvents()[0].GetGroup(), r.GetEvents()[1].GetGroup(), r.GetEvents()[2].GetGroup()})
	require.True(t, r.GetMore())
	require.Equal(t, "s", string(r.GetState()))
	_, err = s.TraceMessage(t.Context(), &adminv1.TraceMessageRequest{Topic: "orders"})
	require.Equal(t, codes.InvalidArgument, status.Code(err), "two brokers")
	_, err = s.TraceMessage(t.Context(), &adminv1.TraceMessageRequest{Topic: "orders", Broker: "b"})
	require.Equal(t, codes.Unavailable, status.Code(err))
}
