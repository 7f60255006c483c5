package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/receipt"
	"github.com/perigee-mq/perigee/proxy/route"
)

// liteBroker takes subscriptions and has notices.
type liteBroker struct {
	brokerapi.Broker
	synced []brokerapi.SyncLiteRequest
	fail   error
	gone   [][]brokerapi.LiteGone
	deaf   int // calls of LiteGone that fail, first
}

func (b *liteBroker) SyncLite(_ context.Context, req *brokerapi.SyncLiteRequest) (*brokerapi.SyncLiteReply, error) {
	if b.fail != nil {
		return nil, b.fail
	}
	b.synced = append(b.synced, *req)
	return &brokerapi.SyncLiteReply{}, nil
}

func (b *liteBroker) LiteGone(context.Context, *brokerapi.LiteGoneRequest) (*brokerapi.LiteGoneReply, error) {
	r := &brokerapi.LiteGoneReply{}
	if b.deaf > 0 {
		b.deaf--
		return nil, mqerr.New(mqerr.Timeout, "busy")
	}
	if len(b.gone) > 0 {
		r.Gone, b.gone = b.gone[0], b.gone[1:]
	}
	return r, nil
}

type liteBrokers map[brokerapi.ShardID]*liteBroker

func (m liteBrokers) Broker(id brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	if b := m[id]; b != nil {
		return b, 1, nil
	}
	return nil, 0, mqerr.New(mqerr.Unavailable, "no connection to shard %d", id)
}

func newLiteWorld(t *testing.T) (*world, liteBrokers) {
	t.Helper()
	brokers := liteBrokers{1: {}, 2: {}}
	w := newWorld(t, func(o *Options) { o.Brokers = brokers })
	w.table.Apply(route.Update{
		Topics: []route.Topic{{ID: 20, Name: "parent", Type: route.Lite, Placements: []route.Placement{{Shard: 1, Queues: 1}, {Shard: 2, Queues: 1}}}},
		Groups: []route.Group{{ID: 20, Name: "bound", LiteTopic: "parent"}},
	})
	return w, brokers
}

func (w *world) syncLite(t *testing.T, req *rmqv2.SyncLiteSubscriptionRequest) *rmqv2.Status {
	t.Helper()
	u := newUnary(t, req)
	w.SyncLiteSubscription(u)
	r := &rmqv2.SyncLiteSubscriptionResponse{}
	u.into(t, r)
	return r.GetStatus()
}

func liteRequestOf(a rmqv2.LiteSubscriptionAction, names ...string) *rmqv2.SyncLiteSubscriptionRequest {
	return &rmqv2.SyncLiteSubscriptionRequest{
		Action: a, Topic: &rmqv2.Resource{Name: "parent"}, Group: &rmqv2.Resource{Name: "bound"}, LiteTopicSet: names,
	}
}

func TestSyncLiteRefusals(t *testing.T) {
	many := make([]string, 2301)
	for i := range many {
		many[i] = fmt.Sprint("n", i)
	}
	for name, c := range map[string]struct {
		change func(*rmqv2.SyncLiteSubscriptionRequest)
		want   rmqv2.Code
	}{
		"no topic":        {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.Topic = nil }, rmqv2.Code_ILLEGAL_TOPIC},
		"another topic":   {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.Topic.Name = "lite" }, rmqv2.Code_ILLEGAL_TOPIC},
		"no group":        {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.Group = nil }, rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		"missing group":   {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.Group.Name = "missing" }, rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		"not bound":       {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.Group.Name = "plain" }, rmqv2.Code_ILLEGAL_TOPIC},
		"blank name":      {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.LiteTopicSet = []string{" "} }, rmqv2.Code_ILLEGAL_LITE_TOPIC},
		"illegal name":    {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.LiteTopicSet = []string{"a.b"} }, rmqv2.Code_ILLEGAL_LITE_TOPIC},
		"long name":       {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.LiteTopicSet = []string{strings.Repeat("x", 65)} }, rmqv2.Code_ILLEGAL_LITE_TOPIC},
		"longest name":    {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.LiteTopicSet = []string{strings.Repeat("x", 64)} }, rmqv2.Code_OK},
		"unknown action":  {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.Action = 9 }, rmqv2.Code_BAD_REQUEST},
		"negative action": {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.Action = -1 }, rmqv2.Code_BAD_REQUEST},
		"offset below 0": {func(r *rmqv2.SyncLiteSubscriptionRequest) {
			r.Action, r.OffsetOption = 0, &rmqv2.OffsetOption{OffsetType: &rmqv2.OffsetOption_Offset{Offset: -1}}
		}, rmqv2.Code_ILLEGAL_OFFSET},
		"tail below 0": {func(r *rmqv2.SyncLiteSubscriptionRequest) {
			r.Action, r.OffsetOption = 0, &rmqv2.OffsetOption{OffsetType: &rmqv2.OffsetOption_TailN{TailN: -1}}
		}, rmqv2.Code_ILLEGAL_OFFSET},
		"tail 0": {func(r *rmqv2.SyncLiteSubscriptionRequest) {
			r.Action, r.OffsetOption = 0, &rmqv2.OffsetOption{OffsetType: &rmqv2.OffsetOption_TailN{}}
		}, rmqv2.Code_OK},
		"too many": {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.LiteTopicSet = many }, rmqv2.Code_LITE_SUBSCRIPTION_QUOTA_EXCEEDED},
		"many":     {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.LiteTopicSet = many[1:] }, rmqv2.Code_OK},
		"empty":    {func(r *rmqv2.SyncLiteSubscriptionRequest) { r.LiteTopicSet = nil }, rmqv2.Code_OK},
	} {
		w, _ := newLiteWorld(t)
		req := liteRequestOf(rmqv2.LiteSubscriptionAction_COMPLETE_ADD, "a")
		c.change(req)
		require.Equal(t, c.want, w.syncLite(t, req).GetCode(), name)
	}
	w, brokers := newLiteWorld(t)
	brokers[1].fail = mqerr.New(mqerr.QuotaExceeded, "full")
	require.Equal(t, rmqv2.Code_LITE_SUBSCRIPTION_QUOTA_EXCEEDED, w.syncLite(t, liteRequestOf(rmqv2.LiteSubscriptionAction_COMPLETE_ADD, "a")).GetCode())
	delete(brokers, 1)
	require.Equal(t, rmqv2.Code_HA_NOT_AVAILABLE, w.syncLite(t, liteRequestOf(rmqv2.LiteSubscriptionAction_COMPLETE_ADD, "a")).GetCode())
	u := newUnary(t, liteRequestOf(0))
	clear(u.headers)
	w.SyncLiteSubscription(u)
	r := &rmqv2.SyncLiteSubscriptionResponse{}
	u.into(t, r)
	require.Equal(t, rmqv2.Code_CLIENT_ID_REQUIRED, r.GetStatus().GetCode())
}

func TestSyncLiteTellsEachBrokerItsOwn(t *testing.T) {
	w, brokers := newLiteWorld(t)
	topic := w.table.Load().Topic([]byte("parent"))
	home := map[brokerapi.ShardID][]string{}
	for i := range 20 {
		name := fmt.Sprint("n", i)
		at := liteHome(topic, []byte(name))
		home[at] = append(home[at], name)
	}
	require.Len(t, home, 2)
	require.Equal(t, rmqv2.Code_OK, w.syncLite(t, liteRequestOf(rmqv2.LiteSubscriptionAction_COMPLETE_ADD, slices.Concat(home[1], home[2])...)).GetCode())
	for id, b := range brokers {
		require.Len(t, b.synced, 1)
		require.Equal(t, home[id], b.synced[0].Names)
		require.Equal(t, "client@1", b.synced[0].Client)
		require.Equal(t, brokerapi.LiteCompleteAdd, b.synced[0].Action)
	}
	partial := liteRequestOf(rmqv2.LiteSubscriptionAction_PARTIAL_ADD, home[1][0])
	partial.OffsetOption = &rmqv2.OffsetOption{OffsetType: &rmqv2.OffsetOption_TailN{TailN: 7}}
	require.Equal(t, rmqv2.Code_OK, w.syncLite(t, partial).GetCode())
	require.Len(t, brokers[2].synced, 1, "none of its lite topics is concerned")
	require.Equal(t, brokerapi.LiteFromTail, brokers[1].synced[1].From)
	require.EqualValues(t, 7, brokers[1].synced[1].Value)

	w.ShardUp(t.Context(), 2) // it has forgotten
	require.Len(t, brokers[2].synced, 2)
	require.ElementsMatch(t, home[2], brokers[2].synced[1].Names)
	require.Len(t, brokers[1].synced, 2)
	require.Equal(t, rmqv2.Code_OK, w.syncLite(t, liteRequestOf(rmqv2.LiteSubscriptionAction_COMPLETE_REMOVE)).GetCode())
	require.Len(t, brokers[2].synced, 3)
	w.ShardUp(t.Context(), 2)
	require.Len(t, brokers[2].synced, 3, "nothing is left to repeat")
	require.Zero(t, w.lites.names)
}

func TestLiteSetsAreForgotten(t *testing.T) {
	var l liteSets
	add := &brokerapi.SyncLiteRequest{Topic: 1, Group: 2, Client: "c", Action: brokerapi.LitePartialAdd, Names: []string{"a", "b"}, Version: 3}
	l.remember(add, testNow)
	l.remember(&brokerapi.SyncLiteRequest{Topic: 1, Group: 2, Client: "c", Action: brokerapi.LitePartialRemove, Names: []string{"a"}, Version: 2}, testNow)
	require.Equal(t, []string{"a", "b"}, l.all(testNow)[0].Names, "an older change is ignored")
	l.gone(&brokerapi.LiteGone{Topic: 1, Group: 2, Client: "c", Name: "a"})
	require.Equal(t, []string{"b"}, l.all(testNow)[0].Names)
	require.Empty(t, l.all(testNow.Add(4*time.Minute)))
	l.remember(add, testNow)
	l.drop("c")
	require.Empty(t, l.all(testNow))
	require.Zero(t, l.names)
}

// noticeStream keeps what is sent to a client.
type noticeStream struct{ sent [][]byte }

func (s *noticeStream) Send(msg []byte) error {
	s.sent = append(s.sent, msg)
	return nil
}

func TestOnlyLiteClientsHearOfEndedSubscriptions(t *testing.T) {
	w, brokers := newLiteWorld(t)
	lite, plain := &noticeStream{}, &noticeStream{}
	w.o.Clients.Put("lite", clients.Settings{Type: clients.LitePush}, lite, testNow)
	w.o.Clients.Put("plain", clients.Settings{Type: clients.PushConsumer}, plain, testNow)
	brokers[1].gone = [][]brokerapi.LiteGone{{{Client: "lite", Name: "a"}, {Client: "plain", Name: "b"}}, {{Client: "lite", Name: "c"}, {Client: "gone", Name: "d"}}}
	w.LiteGone(t.Context(), 1)
	require.Empty(t, plain.sent)
	var names []string
	for _, b := range lite.sent {
		var cmd rmqv2.TelemetryCommand
		require.NoError(t, proto.Unmarshal(b, &cmd))
		names = append(names, cmd.GetNotifyUnsubscribeLiteCommand().GetLiteTopic())
	}
	require.Equal(t, []string{"a", "c"}, names)
}

// TestLiteGoneAsksAgain: a broker says once that subscriptions have ended, so a failure is not the end of it.
func TestLiteGoneAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, brokers := newLiteWorld(t)
		lite := &noticeStream{}
		w.o.Clients.Put("lite", clients.Settings{Type: clients.LitePush}, lite, testNow)
		brokers[1].deaf, brokers[1].gone = 2, [][]brokerapi.LiteGone{{{Client: "lite", Name: "a"}}}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		w.LiteGone(ctx, 1)
		require.Len(t, lite.sent, 1)
		brokers[1].deaf, brokers[1].gone = 1000, nil
		w.LiteGone(ctx, 1)
		require.Error(t, ctx.Err())
	})
}

func TestLiteMessagesGoToTheirHome(t *testing.T) {
	w := newWorld(t, nil)
	w.table.Apply(route.Update{Topics: []route.Topic{
		{ID: 20, Name: "parent", Type: route.Lite, Placements: []route.Placement{{Shard: 1, Queues: 1}, {Shard: 2, Queues: 1}}},
	}})
	topic := w.table.Load().Topic([]byte("parent"))
	lite := func(name string) edit {
		return join(to("parent"), sys(func(p *rmqv2.SystemProperties) { p.LiteTopic = &name }))
	}
	for i := range 8 {
		name := fmt.Sprint("n", i)
		require.Equal(t, rmqv2.Code_OK, w.send(t, lite(name)).GetStatus().GetCode())
		sent := w.brokers[liteHome(topic, []byte(name))].sent
		m := sent[len(sent)-1].Messages[0]
		require.Equal(t, name, m.Lite)
		require.Equal(t, brokerapi.Lite, m.Type)
		require.Equal(t, brokerapi.AnyQueue, m.Queue)
	}
	require.Equal(t, rmqv2.Code_ILLEGAL_LITE_TOPIC, w.send(t, lite("a b")).GetStatus().GetCode())
	require.Equal(t, rmqv2.Code_ILLEGAL_LITE_TOPIC, w.send(t, lite(strings.Repeat("x", 65))).GetStatus().GetCode())
	home := liteHome(topic, []byte("n0"))
	w.brokers[home].fail = mqerr.New(mqerr.QuotaExceeded, "full")
	require.Equal(t, rmqv2.Code_LITE_TOPIC_QUOTA_EXCEEDED, w.send(t, lite("n0")).GetStatus().GetCode())
	delete(w.brokers, home)
	require.Equal(t, rmqv2.Code_HA_NOT_AVAILABLE, w.send(t, lite("n0")).GetStatus().GetCode(), "it goes nowhere else")
}

func TestLiteHandles(t *testing.T) {
	plain, lite := &receipt.Handle{}, &receipt.Handle{}
	lite.Queue = firstLite
	require.NoError(t, checkLiteHandle(plain, nil))
	require.NoError(t, checkLiteHandle(lite, []byte("a")))
	require.NoError(t, checkLiteHandle(lite, nil), "its lease says all")
	require.True(t, mqerr.Is(checkLiteHandle(plain, []byte("a")), mqerr.HandleInvalid))
}
