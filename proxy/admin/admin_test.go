package admin

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/proxy/route"
)

// controller is a controller that answers as a test says.
type controller struct {
	controllerv1.ControllerServiceClient // calls that a test does not expect panic

	fail     error // of every call
	updates  []*controllerv1.WatchUpdate
	putTopic func(*controllerv1.PutTopicRequest) *controllerv1.PutTopicResponse
	deleted  []string
}

func (c *controller) Status(context.Context, *controllerv1.StatusRequest, ...grpc.CallOption) (*controllerv1.StatusResponse, error) {
	return &controllerv1.StatusResponse{ClusterId: "c-1"}, c.fail
}

func (c *controller) PutTopic(_ context.Context, r *controllerv1.PutTopicRequest, _ ...grpc.CallOption) (*controllerv1.PutTopicResponse, error) {
	if c.fail != nil {
		return nil, c.fail
	}
	return c.putTopic(r), nil
}

func (c *controller) DeleteTopic(_ context.Context, r *controllerv1.DeleteTopicRequest, _ ...grpc.CallOption) (*controllerv1.DeleteTopicResponse, error) {
	c.deleted = append(c.deleted, r.GetName())
	return &controllerv1.DeleteTopicResponse{}, c.fail
}

func (c *controller) Watch(context.Context, *controllerv1.WatchRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[controllerv1.WatchUpdate], error) {
	return &watch{updates: c.updates}, c.fail
}

type watch struct {
	grpc.ClientStream
	updates []*controllerv1.WatchUpdate
}

func (w *watch) Recv() (*controllerv1.WatchUpdate, error) {
	if len(w.updates) == 0 {
		return nil, io.EOF
	}
	up := w.updates[0]
	w.updates = w.updates[1:]
	return up, nil
}

// broker is a broker with fixed figures. One that hangs answers when the caller gives up.
type broker struct {
	brokerapi.Broker
	topic []brokerapi.TopicQueue
	group []brokerapi.GroupQueue
	fail  error
	hangs bool
	asked int
}

func (b *broker) answer(ctx context.Context) error {
	b.asked++
	if b.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return b.fail
}

func (b *broker) DescribeTopic(ctx context.Context, _ brokerapi.TopicID) ([]brokerapi.TopicQueue, error) {
	return b.topic, b.answer(ctx)
}

func (b *broker) DescribeGroup(ctx context.Context, _ brokerapi.TopicID, _ brokerapi.GroupID) ([]brokerapi.GroupQueue, error) {
	return b.group, b.answer(ctx)
}

type brokers map[brokerapi.ShardID]*broker

func (m brokers) Broker(shard brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	if b := m[shard]; b != nil {
		return b, 1, nil
	}
	return nil, 0, mqerr.New(mqerr.Unavailable, "broker group has no master")
}

func definitions() []*controllerv1.WatchUpdate {
	place := func(shards ...uint32) (out []*controllerv1.Placement) {
		for _, s := range shards {
			out = append(out, &controllerv1.Placement{Shard: s, Queues: 1})
		}
		return out
	}
	return []*controllerv1.WatchUpdate{{Definitions: &controllerv1.Definitions{
		Topics: []*controllerv1.Topic{
			{Id: 2, Name: "orders", Placements: place(1, 2)}, {Id: 1, Name: "audit", Placements: place(2)}, {Id: 3, Name: "mail", Placements: place(1)},
		},
		Groups: []*controllerv1.Group{{Id: 9, Name: "ship"}, {Id: 8, Name: "billing"}},
	}}}
}

// newServer returns a server whose routes know the shards a and b.
func newServer(c *controller, b brokers) (*Server, *route.Table) {
	routes := new(route.Table)
	routes.Apply(route.Update{Shards: []route.Shard{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}})
	return New(Options{Controller: c, Routes: routes, Brokers: b, Release: "r1"}), routes
}

func TestListsAreSorted(t *testing.T) {
	s, _ := newServer(&controller{updates: definitions()}, nil)
	topics, err := s.ListTopics(t.Context(), nil)
	require.NoError(t, err)
	var names []string
	for _, d := range topics.GetTopics() {
		names = append(names, d.GetName())
	}
	require.Equal(t, []string{"audit", "mail", "orders"}, names)
	groups, err := s.ListGroups(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "billing", groups.GetGroups()[0].GetName())
	require.Equal(t, "ship", groups.GetGroups()[1].GetName())
}

func TestVersion(t *testing.T) {
	s, _ := newServer(&controller{}, nil)
	v, err := s.Version(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "r1", v.GetRelease())
	require.Equal(t, "c-1", v.GetClusterId())
}

// TestUnknownBrokersAreNamed: the figures of a broker that does not answer are unknown, not 0.
func TestUnknownBrokersAreNamed(t *testing.T) {
	good := &broker{topic: []brokerapi.TopicQueue{{Queue: 0, Min: 1, Max: 5, LastMS: 77}}, group: []brokerapi.GroupQueue{{Queue: 0, Max: 5, Ready: 3, OldestMS: 50, Used: true}}}
	bad := &broker{fail: mqerr.New(mqerr.Unavailable, "connection lost")}
	s, _ := newServer(&controller{updates: definitions()}, brokers{1: good, 2: bad})

	topic, err := s.DescribeTopic(t.Context(), &adminv1.DescribeTopicRequest{Name: "orders"})
	require.NoError(t, err)
	require.Len(t, topic.GetQueues(), 1)
	require.Equal(t, "a", topic.GetQueues()[0].GetBroker())
	require.EqualValues(t, 77, topic.GetQueues()[0].GetLastMs())
	require.Equal(t, []string{"broker b: connection lost"}, topic.GetUnknown())

	bad.asked = 0
	group, err := s.DescribeGroup(t.Context(), &adminv1.DescribeGroupRequest{Name: "billing"})
	require.NoError(t, err)
	require.Equal(t, []string{"topic audit, broker b: connection lost", "topic orders, broker b: connection lost"}, group.GetUnknown())
	require.Len(t, group.GetTopics(), 2, "what is known is told")
	require.Equal(t, "mail", group.GetTopics()[0].GetTopic())
	require.Len(t, group.GetTopics()[1].GetQueues(), 1)
	require.Equal(t, 1, bad.asked, "a broker that failed is not asked again")
}

func TestBrokerWithoutMasterIsNamed(t *testing.T) {
	s, _ := newServer(&controller{updates: definitions()}, brokers{})
	topic, err := s.DescribeTopic(t.Context(), &adminv1.DescribeTopicRequest{Name: "audit"})
	require.NoError(t, err)
	require.Empty(t, topic.GetQueues())
	require.Equal(t, []string{"broker b: broker group has no master"}, topic.GetUnknown())
}

// TestBrokerThatHangs: one silent broker costs its own figures and some seconds, not the answer.
func TestBrokerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := &broker{group: []brokerapi.GroupQueue{{Queue: 0, Ready: 3, Used: true}}}
		s, _ := newServer(&controller{updates: definitions()}, brokers{1: good, 2: {hangs: true}})
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		start := time.Now()
		group, err := s.DescribeGroup(ctx, &adminv1.DescribeGroupRequest{Name: "billing"})
		require.NoError(t, err)
		require.Equal(t, brokerPatience, time.Since(start))
		require.Equal(t, []string{"topic audit, broker b: no answer within 3s", "topic orders, broker b: no answer within 3s"}, group.GetUnknown())
		require.Len(t, group.GetTopics(), 2)
		require.EqualValues(t, 3, group.GetTopics()[1].GetReady())
	})
}

func TestGroupSums(t *testing.T) {
	a := &broker{group: []brokerapi.GroupQueue{
		{Queue: 0, Ready: 3, InFlight: 1, Waiting: 2, OldestMS: 90, OverMax: 1, Used: true}, {Queue: 1, Ready: 1, OldestMS: 40, Used: true},
	}}
	b := &broker{group: []brokerapi.GroupQueue{{Queue: 0, InFlight: 4, Used: true}}}
	s, _ := newServer(&controller{updates: definitions()}, brokers{1: a, 2: b})
	resp, err := s.DescribeGroup(t.Context(), &adminv1.DescribeGroupRequest{Name: "billing", Topic: "orders"})
	require.NoError(t, err)
	require.Len(t, resp.GetTopics(), 1)
	sum := resp.GetTopics()[0]
	require.EqualValues(t, 4, sum.GetReady())
	require.EqualValues(t, 5, sum.GetInFlight())
	require.EqualValues(t, 2, sum.GetWaiting())
	require.EqualValues(t, 1, sum.GetOverMaxAttempts())
	require.EqualValues(t, 40, sum.GetOldestMs())
	require.Len(t, sum.GetQueues(), 3)
}

// TestTopicsNeverRead are shown only to who asks for them.
func TestTopicsNeverRead(t *testing.T) {
	idle := &broker{group: []brokerapi.GroupQueue{{Queue: 0, Ready: 7}}}
	c := &controller{updates: definitions()}
	s, _ := newServer(c, brokers{1: idle, 2: idle})
	all, err := s.DescribeGroup(t.Context(), &adminv1.DescribeGroupRequest{Name: "billing"})
	require.NoError(t, err)
	require.Empty(t, all.GetTopics())
	one, err := s.DescribeGroup(t.Context(), &adminv1.DescribeGroupRequest{Name: "billing", Topic: "mail"})
	require.NoError(t, err)
	require.EqualValues(t, 7, one.GetTopics()[0].GetReady())
	require.Nil(t, one.GetTopics()[0].OldestMs)
}

// TestErrors: each is a status with a kind, and a text for a person.
func TestErrors(t *testing.T) {
	said := rpc.ToStatus(mqerr.New(mqerr.Exists, "topic orders has another type"))
	for _, c := range []struct {
		name string
		call func(*Server) error
		fail error
		code codes.Code
		text string
	}{
		{"no topic", func(s *Server) error {
			_, err := s.DescribeTopic(t.Context(), &adminv1.DescribeTopicRequest{Name: "x"})
			return err
		}, nil, codes.NotFound, "there is no topic x: see perigee topic list"},
		{"no group", func(s *Server) error {
			_, err := s.DescribeGroup(t.Context(), &adminv1.DescribeGroupRequest{Name: "x"})
			return err
		}, nil, codes.NotFound, "there is no group x: see perigee group list"},
		{"no topic of a group", func(s *Server) error {
			_, err := s.DescribeGroup(t.Context(), &adminv1.DescribeGroupRequest{Name: "billing", Topic: "x"})
			return err
		}, nil, codes.NotFound, "there is no topic x: see perigee topic list"},
		{"refused", put, said, codes.AlreadyExists, "topic orders has another type"},
		{"controller away", put, status.Error(codes.Unavailable, "connection refused"), codes.Unavailable, "the controller cannot be reached: connection refused"},
		{"controller silent", put, status.Error(codes.DeadlineExceeded, "context deadline exceeded"), codes.DeadlineExceeded, "the controller did not answer in time; what was asked for may still happen"},
		{"old controller", put, status.Error(codes.Unimplemented, "unknown method"), codes.Unimplemented, "the controller does not know this call: run the same release on both (unknown method)"},
		{"too large", put, status.Error(codes.ResourceExhausted, "message too large"), codes.ResourceExhausted, "the controller: message too large"},
		{"list, controller away", func(s *Server) error { _, err := s.ListTopics(t.Context(), nil); return err }, status.Error(codes.Unavailable, "x"), codes.Unavailable, "the controller cannot be reached: x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := newServer(&controller{updates: definitions(), fail: c.fail}, nil)
			err := c.call(s)
			require.Error(t, err)
			st, ok := status.FromError(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.code, st.Code())
			require.Equal(t, c.text, st.Message())
			require.NotEmpty(t, st.Details(), "the kind goes along")
		})
	}
	s, _ := newServer(&controller{}, nil)
	_, err := s.ListGroups(t.Context(), nil)
	require.Equal(t, codes.Unavailable, status.Code(err), "a watch without definitions is no empty list")
}

func put(s *Server) error {
	_, err := s.PutTopic(context.Background(), &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: "orders"}})
	return err
}

// TestPutWaitsForTheRoutes: who is told "created" may send at once through this proxy.
func TestPutWaitsForTheRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &controller{putTopic: func(r *controllerv1.PutTopicRequest) *controllerv1.PutTopicResponse {
			return &controllerv1.PutTopicResponse{Topic: &controllerv1.Topic{Id: 5, Name: r.GetName()}, Created: true}
		}}
		s, routes := newServer(c, nil)
		done := make(chan error, 1)
		go func() { done <- put(s) }()
		synctest.Wait()
		require.Empty(t, done, "the routes do not know it yet")
		routes.Apply(route.Update{Topics: []route.Topic{{ID: 5, Name: "orders"}}})
		require.NoError(t, <-done)

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		_, err := s.DeleteTopic(ctx, &adminv1.DeleteTopicRequest{Name: "orders"})
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.Contains(t, status.Convert(err).Message(), "done, but this proxy has not heard of it yet")
		require.Less(t, time.Since(start), 2*time.Second, "the answer comes before the caller gives up")
		require.Equal(t, []string{"orders"}, c.deleted)
	})
}
