package admin

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/route"
)

// grower is a controller with one topic that may grow.
type grower struct {
	controller
	topic *controllerv1.Topic
	steps []controllerv1.GrowStep
	shown func(*controllerv1.Topic) // puts the topic into the routes
}

func (c *grower) GrowTopic(_ context.Context, r *controllerv1.GrowTopicRequest, _ ...grpc.CallOption) (*controllerv1.GrowTopicResponse, error) {
	c.steps = append(c.steps, r.GetStep())
	switch r.GetStep() {
	case controllerv1.GrowStep_GROW_STEP_FINISH:
		if r.GetBeganVersion() != c.topic.GetGrowing().GetBeganVersion() {
			return nil, mqerr.New(mqerr.NotFound, "given up")
		}
		c.topic = &controllerv1.Topic{Id: 2, Name: "orders", LayoutVersion: 9}
		c.shown(c.topic)
	case controllerv1.GrowStep_GROW_STEP_ABORT:
		c.topic = &controllerv1.Topic{Id: 2, Name: "orders"}
	}
	return &controllerv1.GrowTopicResponse{Topic: c.topic}, nil
}

// drainer is a broker with something left to do for groups, some of which have read from it.
type drainer struct {
	broker
	reply   brokerapi.DrainReply
	readers []brokerapi.GroupID
	undone  map[brokerapi.GroupID]int64
}

func (b *drainer) Drain(_ context.Context, r *brokerapi.DrainRequest) (*brokerapi.DrainReply, error) {
	if b.fail != nil {
		return nil, b.fail
	}
	out := b.reply
	for g, n := range b.undone {
		if slices.Contains(b.readers, g) || slices.Contains(r.Groups, g) {
			out.Groups = append(out.Groups, brokerapi.DrainGroup{Group: g, Undone: n})
		}
	}
	return &out, nil
}

type drainers map[brokerapi.ShardID]*drainer

func (m drainers) Broker(shard brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	return m[shard], 1, nil
}

// TestTopicGrowsWhenEveryBrokerIsDrained: a group that reads from one broker has to do what is on the other,
// and a broker that does not answer, or has not heard of it, holds it up.
func TestTopicGrowsWhenEveryBrokerIsDrained(t *testing.T) {
	a := &drainer{reply: brokerapi.DrainReply{Growing: true, Delayed: 2}, readers: []brokerapi.GroupID{8}, undone: map[brokerapi.GroupID]int64{8: 0, 9: 7}}
	b := &drainer{undone: map[brokerapi.GroupID]int64{8: 3, 9: 7}}
	c := &grower{controller: controller{updates: definitions()}, topic: &controllerv1.Topic{
		Id: 2, Name: "orders", Growing: &controllerv1.Growing{Queues: 4, BeganVersion: 5},
		Placements: []*controllerv1.Placement{{Shard: 1, Queues: 1}, {Shard: 2, Queues: 1}},
	}}
	routes := new(route.Table)
	routes.Apply(route.Update{Shards: []route.Shard{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}, Topics: []route.Topic{{ID: 2, Name: "orders"}}})
	c.shown = func(d *controllerv1.Topic) {
		routes.Apply(route.Update{Topics: []route.Topic{{ID: 2, Name: "orders", Layout: d.GetLayoutVersion()}}})
	}
	s := New(Options{Controller: c, Routes: routes, Brokers: drainers{1: a, 2: b}})
	step := func() (left []string, unknown []string, done bool) {
		c.updates = definitions()
		r, err := s.GrowTopic(t.Context(), &adminv1.GrowTopicRequest{Name: "orders", Queues: 4, ForMs: 1000})
		require.NoError(t, err)
		for _, l := range r.GetLeft() {
			left = append(left, l.GetBroker()+" "+l.GetWhat()+" "+l.GetGroup())
		}
		return left, r.GetUnknown(), r.GetDone()
	}
	left, unknown, done := step()
	require.False(t, done)
	require.Equal(t, []string{"a delayed "}, left)
	require.Equal(t, []string{"broker b: it has not heard of it yet"}, unknown)

	b.reply.Growing = true
	b.fail = mqerr.New(mqerr.Unavailable, "connection lost")
	a.reply.Delayed = 0
	_, unknown, done = step()
	require.False(t, done)
	require.Equal(t, []string{"broker b: connection lost"}, unknown)

	b.fail = nil
	left, unknown, done = step()
	require.False(t, done)
	require.Empty(t, unknown)
	require.Equal(t, []string{"b group billing"}, left, "group 9 reads nowhere")

	b.undone[8] = 0
	c.steps = nil
	_, _, done = step()
	require.True(t, done)
	require.Equal(t, []controllerv1.GrowStep{controllerv1.GrowStep_GROW_STEP_UNSPECIFIED, controllerv1.GrowStep_GROW_STEP_FINISH}, c.steps)
	require.EqualValues(t, 9, routes.Load().TopicByID(2).Layout)
	_, _, done = step()
	require.True(t, done, "and again")

	r, err := s.GrowTopic(t.Context(), &adminv1.GrowTopicRequest{Name: "orders", Abort: true})
	require.NoError(t, err)
	require.True(t, r.GetDone())
}
