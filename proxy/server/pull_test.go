package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/clients"
)

// pullBroker answers pulls and calls about offsets as a test says, and keeps what it was asked.
type pullBroker struct {
	brokerapi.Broker

	mu     sync.Mutex
	pulls  []brokerapi.PullRequest
	sets   []brokerapi.SetOffset
	asks   []brokerapi.OffsetRequest
	offset brokerapi.QueueOffset
	err    error
	answer func(done func(*brokerapi.PullReply, error)) // of pulls
}

func (b *pullBroker) Pull(req *brokerapi.PullRequest, done func(*brokerapi.PullReply, error)) {
	b.mu.Lock()
	b.pulls = append(b.pulls, *req)
	b.mu.Unlock()
	b.answer(done)
}

func (b *pullBroker) SetOffsets(_ context.Context, req *brokerapi.SetOffsetsRequest) (*brokerapi.SetOffsetsReply, error) {
	b.sets = append(b.sets, req.Offsets...)
	return &brokerapi.SetOffsetsReply{}, b.err
}

func (b *pullBroker) Offset(_ context.Context, req *brokerapi.OffsetRequest) (*brokerapi.OffsetReply, error) {
	b.asks = append(b.asks, *req)
	return &brokerapi.OffsetReply{Offset: b.offset}, b.err
}

type pullBrokers map[brokerapi.ShardID]*pullBroker

func (m pullBrokers) Broker(id brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	if b := m[id]; b != nil {
		return b, brokerapi.Epoch(10 * id), nil
	}
	return nil, 0, mqerr.New(mqerr.Unavailable, "no connection to shard %d", id)
}

// pullStream is a PullMessage call.
type pullStream struct {
	fakeInfo
	req      []byte
	deadline time.Time
	done     chan struct{}

	mu    sync.Mutex
	sent  []*rmqv2.PullMessageResponse
	ended bool
	code  call.Code
}

func (s *pullStream) Request() []byte             { return s.req }
func (s *pullStream) Deadline() (time.Time, bool) { return s.deadline, !s.deadline.IsZero() }

func (s *pullStream) Send(msg []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errors.New("the call is over")
	}
	r := &rmqv2.PullMessageResponse{}
	s.sent = append(s.sent, r)
	return proto.Unmarshal(msg, r)
}

func (s *pullStream) End() { s.Fail(call.OK, "") }

func (s *pullStream) Fail(code call.Code, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended, s.code = true, code
		clear(s.req) // the transport uses the bytes again
		close(s.done)
	}
}

// pullWorld is world with brokers that can be pulled from.
func pullWorld(t *testing.T) (*world, pullBrokers) {
	brokers := pullBrokers{1: {}, 2: {}}
	return newWorld(t, func(o *Options) { o.Brokers = brokers }), brokers
}

func queueAt(topic, broker string, id int32) *rmqv2.MessageQueue {
	return &rmqv2.MessageQueue{Topic: &rmqv2.Resource{Name: topic}, Id: id, Broker: &rmqv2.Broker{Name: broker}}
}

func pullRequest() *rmqv2.PullMessageRequest {
	return &rmqv2.PullMessageRequest{
		Group: &rmqv2.Resource{Name: "plain"}, MessageQueue: queueAt("spread", "beta", 0), Offset: 5, BatchSize: 2,
		LongPollingTimeout: durationpb.New(3 * time.Second),
	}
}

func (w *world) startPull(t *testing.T, ctx context.Context, req *rmqv2.PullMessageRequest, change ...func(*fakeInfo)) *pullStream {
	t.Helper()
	s := &pullStream{fakeInfo: newInfo(ctx, "c"), req: mustMarshal(req), done: make(chan struct{})}
	for _, f := range change {
		f(&s.fakeInfo)
	}
	w.PullMessage(s)
	return s
}

func (s *pullStream) wait(t *testing.T) []*rmqv2.PullMessageResponse {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		t.Fatal("the call is not completed")
	}
	return s.sent
}

func (w *world) pullCode(t *testing.T, req *rmqv2.PullMessageRequest, change ...func(*fakeInfo)) rmqv2.Code {
	t.Helper()
	sent := w.startPull(t, t.Context(), req, change...).wait(t)
	require.NotEmpty(t, sent)
	return sent[0].GetStatus().GetCode()
}

// TestPullMessage: status, messages in order, the offset to go on with; and what the broker is asked.
func TestPullMessage(t *testing.T) {
	w, brokers := pullWorld(t)
	released := make(chan struct{})
	brokers[2].answer = func(done func(*brokerapi.PullReply, error)) {
		done(brokerapi.NewPullReply([]brokerapi.Delivery{
			{Queue: 0, Offset: 5, Attempt: 1, Type: brokerapi.Normal, StoreTime: 1_700_000_000_123, Body: []byte("one")},
			{Queue: 0, Offset: 7, Attempt: 1, Type: brokerapi.Normal, StoreTime: 1_700_000_000_124, Body: []byte("two")},
		}, 9, func() { close(released) }), nil)
	}
	sent := w.startPull(t, t.Context(), pullRequest()).wait(t)
	require.Len(t, sent, 4)
	require.Equal(t, rmqv2.Code_OK, sent[0].GetStatus().GetCode())
	require.Equal(t, "one", string(sent[1].GetMessage().GetBody()))
	require.Equal(t, "spread", sent[1].GetMessage().GetTopic().GetName())
	require.Equal(t, int64(7), sent[2].GetMessage().GetSystemProperties().GetQueueOffset())
	require.Empty(t, sent[2].GetMessage().GetSystemProperties().GetReceiptHandle())
	require.Equal(t, int64(9), sent[3].GetNextOffset())
	<-released
	asked := brokers[2].pulls[0]
	require.Equal(t, []any{brokerapi.TopicID(8), brokerapi.GroupID(1), brokerapi.QueueID(0), brokerapi.QueueOffset(5), 2, 3 * time.Second, brokerapi.Epoch(20)},
		[]any{asked.Topic, asked.Group, asked.Queue, asked.Offset, asked.Max, asked.Wait, asked.Epoch})
	require.Equal(t, brokerapi.Filter{}, asked.Filter)
	require.Empty(t, w.pulls.waiting)
}

// TestPullIsEmpty: no message is an answer with an offset, which may be 0.
func TestPullIsEmpty(t *testing.T) {
	w, brokers := pullWorld(t)
	brokers[2].answer = func(done func(*brokerapi.PullReply, error)) { done(&brokerapi.PullReply{}, nil) }
	req := pullRequest()
	req.Offset, req.BatchSize, req.LongPollingTimeout = 0, 1000, nil
	req.FilterExpression = &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "a || b"}
	sent := w.startPull(t, t.Context(), req).wait(t)
	require.Len(t, sent, 2)
	require.Equal(t, rmqv2.Code_OK, sent[0].GetStatus().GetCode())
	require.IsType(t, &rmqv2.PullMessageResponse_NextOffset{}, sent[1].GetContent())
	asked := brokers[2].pulls[0]
	require.Equal(t, brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: []string{"a", "b"}}, asked.Filter)
	require.Equal(t, 32, asked.Max)
	require.Zero(t, asked.Wait)
}

// TestPullWaitsNoLongerThanItsCaller, and not longer than the limit.
func TestPullWaitsNoLongerThanItsCaller(t *testing.T) {
	for _, c := range []struct{ asked, deadline, want time.Duration }{
		{time.Hour, 0, 20 * time.Second},
		{time.Second, 0, time.Second},
		{-time.Second, 0, 0},
		{10 * time.Second, 4 * time.Second, 3500 * time.Millisecond},
		{10 * time.Second, 100 * time.Millisecond, 0},
	} {
		w, brokers := pullWorld(t)
		brokers[2].answer = func(done func(*brokerapi.PullReply, error)) { done(&brokerapi.PullReply{}, nil) }
		req := pullRequest()
		req.LongPollingTimeout = durationpb.New(c.asked)
		s := &pullStream{fakeInfo: newInfo(t.Context(), "c"), req: mustMarshal(req), done: make(chan struct{})}
		if c.deadline > 0 {
			s.deadline = testNow.Add(c.deadline)
		}
		w.PullMessage(s)
		s.wait(t)
		asked := brokers[2].pulls[0]
		require.Equal(t, c.want, asked.Wait, "%+v", c)
		if c.deadline > 0 {
			require.True(t, asked.Deadline.Before(testNow.Add(c.deadline)), "the answer has to arrive")
		}
	}
}

func TestPullRefusals(t *testing.T) {
	w, brokers := pullWorld(t)
	type req = *rmqv2.PullMessageRequest
	for name, c := range map[string]struct {
		change func(req)
		want   rmqv2.Code
	}{
		"no queue":        {func(r req) { r.MessageQueue = nil }, rmqv2.Code_ILLEGAL_TOPIC},
		"no group":        {func(r req) { r.Group = nil }, rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		"bad topic":       {func(r req) { r.MessageQueue.Topic.Name = "a b" }, rmqv2.Code_ILLEGAL_TOPIC},
		"negative":        {func(r req) { r.Offset = -1 }, rmqv2.Code_ILLEGAL_OFFSET},
		"bad filter":      {func(r req) { r.FilterExpression = &rmqv2.FilterExpression{Expression: "||"} }, rmqv2.Code_ILLEGAL_FILTER_EXPRESSION},
		"missing topic":   {func(r req) { r.MessageQueue.Topic.Name = "missing" }, rmqv2.Code_TOPIC_NOT_FOUND},
		"missing group":   {func(r req) { r.Group.Name = "missing" }, rmqv2.Code_CONSUMER_GROUP_NOT_FOUND},
		"queue 1 of beta": {func(r req) { r.MessageQueue.Id = 1 }, rmqv2.Code_NOT_FOUND},
		"queue -1":        {func(r req) { r.MessageQueue.Id = -1 }, rmqv2.Code_NOT_FOUND},
		"unknown broker":  {func(r req) { r.MessageQueue.Broker.Name = "nowhere" }, rmqv2.Code_NOT_FOUND},
		"no broker":       {func(r req) { r.MessageQueue.Broker = nil }, rmqv2.Code_BAD_REQUEST},
		"topic nowhere":   {func(r req) { r.MessageQueue.Topic.Name = "nowhere" }, rmqv2.Code_FORBIDDEN},
	} {
		r := pullRequest()
		c.change(r)
		require.Equal(t, c.want, w.pullCode(t, r), name)
	}
	require.Equal(t, rmqv2.Code_CLIENT_ID_REQUIRED, w.pullCode(t, pullRequest(), noClient))
	require.Empty(t, brokers[2].pulls)

	for kind, want := range map[mqerr.Kind]rmqv2.Code{
		mqerr.Invalid: rmqv2.Code_ILLEGAL_OFFSET, mqerr.Exhausted: rmqv2.Code_TOO_MANY_REQUESTS, mqerr.Unavailable: rmqv2.Code_HA_NOT_AVAILABLE,
	} {
		brokers[2].answer = func(done func(*brokerapi.PullReply, error)) { done(nil, mqerr.New(kind, "no")) }
		require.Equal(t, want, w.pullCode(t, pullRequest()))
	}
	delete(brokers, 2)
	require.Equal(t, rmqv2.Code_HA_NOT_AVAILABLE, w.pullCode(t, pullRequest()))
}

// TestPullEnds by its caller or a drain before the broker answers: the late answer is released.
func TestPullEnds(t *testing.T) {
	w, brokers := pullWorld(t)
	later := make(chan func(*brokerapi.PullReply, error), 2)
	brokers[2].answer = func(done func(*brokerapi.PullReply, error)) { later <- done }
	ctx, cancel := context.WithCancel(t.Context())
	gone, drained := w.startPull(t, ctx, pullRequest()), w.startPull(t, t.Context(), pullRequest())
	cancel()
	gone.wait(t)
	require.Equal(t, call.Cancelled, gone.code)
	w.Drain()
	sent := drained.wait(t)
	require.Len(t, sent, 2)
	require.Equal(t, rmqv2.Code_OK, sent[0].GetStatus().GetCode())
	require.Equal(t, int64(5), sent[1].GetNextOffset())
	for range 2 {
		released := make(chan struct{})
		(<-later)(brokerapi.NewPullReply(nil, 5, func() { close(released) }), nil)
		<-released
	}
	brokers[2].answer = func(done func(*brokerapi.PullReply, error)) { done(brokerapi.NewPullReply(nil, 5, nil), nil) }
	require.Equal(t, rmqv2.Code_OK, w.pullCode(t, pullRequest()), "who comes late has not heard yet that it should go elsewhere")
	require.Zero(t, brokers[2].pulls[len(brokers[2].pulls)-1].Wait)
}

func TestUpdateOffset(t *testing.T) {
	w, brokers := pullWorld(t)
	update := func(change ...func(*rmqv2.UpdateOffsetRequest)) rmqv2.Code {
		req := &rmqv2.UpdateOffsetRequest{Group: &rmqv2.Resource{Name: "plain"}, MessageQueue: queueAt("spread", "alpha", 2), Offset: 7}
		for _, f := range change {
			f(req)
		}
		return ask(t, w.UpdateOffset, req, &rmqv2.UpdateOffsetResponse{}).GetStatus().GetCode()
	}
	type req = *rmqv2.UpdateOffsetRequest
	require.Equal(t, rmqv2.Code_OK, update())
	require.Equal(t, []brokerapi.SetOffset{{Topic: 8, Group: 1, Queue: 2, Offset: 7}}, brokers[1].sets)
	require.Equal(t, rmqv2.Code_OK, update(func(r req) { r.MessageQueue = queueAt("normal", "", 0) }), "the only broker need not be named")
	require.Equal(t, rmqv2.Code_ILLEGAL_OFFSET, update(func(r req) { r.Offset = -1 }))
	require.Equal(t, rmqv2.Code_ILLEGAL_CONSUMER_GROUP, update(func(r req) { r.Group = nil }))
	require.Equal(t, rmqv2.Code_CONSUMER_GROUP_NOT_FOUND, update(func(r req) { r.Group.Name = "missing" }))
	require.Equal(t, rmqv2.Code_ILLEGAL_TOPIC, update(func(r req) { r.MessageQueue = nil }))
	require.Equal(t, rmqv2.Code_TOPIC_NOT_FOUND, update(func(r req) { r.MessageQueue.Topic.Name = "missing" }))
	require.Equal(t, rmqv2.Code_NOT_FOUND, update(func(r req) { r.MessageQueue.Id = 3 }))
	brokers[1].err = mqerr.New(mqerr.Invalid, "offset 7 is beyond the end")
	require.Equal(t, rmqv2.Code_ILLEGAL_OFFSET, update())
	require.Equal(t, rmqv2.Code_CLIENT_ID_REQUIRED, ask(t, w.UpdateOffset, &rmqv2.UpdateOffsetRequest{}, &rmqv2.UpdateOffsetResponse{}, noClient).GetStatus().GetCode())
}

func TestGetOffset(t *testing.T) {
	w, brokers := pullWorld(t)
	get := func(group string, q *rmqv2.MessageQueue) (rmqv2.Code, int64) {
		r := ask(t, w.GetOffset, &rmqv2.GetOffsetRequest{Group: &rmqv2.Resource{Name: group}, MessageQueue: q}, &rmqv2.GetOffsetResponse{})
		return r.GetStatus().GetCode(), r.GetOffset()
	}
	brokers[1].offset = 9
	code, off := get("plain", queueAt("spread", "alpha", 1))
	require.Equal(t, rmqv2.Code_OK, code)
	require.Equal(t, int64(9), off)
	require.Equal(t, brokerapi.OffsetRequest{Of: brokerapi.OffsetOfGroup, Topic: 8, Group: 1, Queue: 1}, brokers[1].asks[0])
	brokers[1].err = mqerr.New(mqerr.NotFound, "none")
	for _, c := range []struct {
		group string
		queue *rmqv2.MessageQueue
		want  rmqv2.Code
	}{
		{"plain", queueAt("spread", "alpha", 1), rmqv2.Code_OFFSET_NOT_FOUND},
		{"missing", queueAt("spread", "alpha", 1), rmqv2.Code_CONSUMER_GROUP_NOT_FOUND},
		{"", queueAt("spread", "alpha", 1), rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		{"plain", queueAt("missing", "alpha", 1), rmqv2.Code_TOPIC_NOT_FOUND},
		{"plain", nil, rmqv2.Code_ILLEGAL_TOPIC},
		{"plain", queueAt("spread", "alpha", 99), rmqv2.Code_NOT_FOUND},
	} {
		code, _ := get(c.group, c.queue)
		require.Equal(t, c.want, code, "%v", c)
	}
}

func TestQueryOffset(t *testing.T) {
	w, brokers := pullWorld(t)
	brokers[1].offset = 3
	query := func(policy rmqv2.QueryOffsetPolicy, at *timestamppb.Timestamp) rmqv2.Code {
		r := ask(t, w.QueryOffset, &rmqv2.QueryOffsetRequest{MessageQueue: queueAt("normal", "alpha", 0), QueryOffsetPolicy: policy, Timestamp: at}, &rmqv2.QueryOffsetResponse{})
		if r.GetStatus().GetCode() == rmqv2.Code_OK {
			require.Equal(t, int64(3), r.GetOffset())
		}
		return r.GetStatus().GetCode()
	}
	const timestamp = rmqv2.QueryOffsetPolicy_TIMESTAMP
	require.Equal(t, rmqv2.Code_OK, query(rmqv2.QueryOffsetPolicy_BEGINNING, nil))
	require.Equal(t, rmqv2.Code_OK, query(rmqv2.QueryOffsetPolicy_END, nil))
	require.Equal(t, rmqv2.Code_OK, query(timestamp, timestamppb.New(time.UnixMilli(77))))
	require.Equal(t, rmqv2.Code_OK, query(timestamp, timestamppb.New(time.UnixMilli(77).Add(1))))
	require.Equal(t, []brokerapi.OffsetRequest{
		{Of: brokerapi.OffsetBegin, Topic: 1}, {Of: brokerapi.OffsetEnd, Topic: 1}, {Of: brokerapi.OffsetAtTime, Topic: 1, TimeMS: 77}, {Of: brokerapi.OffsetAtTime, Topic: 1, TimeMS: 78},
	}, brokers[1].asks)
	require.Equal(t, rmqv2.Code_BAD_REQUEST, query(9, nil))
	require.Equal(t, rmqv2.Code_BAD_REQUEST, query(timestamp, nil))
	require.Equal(t, rmqv2.Code_BAD_REQUEST, query(timestamp, &timestamppb.Timestamp{Nanos: -1}))
	require.Equal(t, rmqv2.Code_ILLEGAL_TOPIC, ask(t, w.QueryOffset, &rmqv2.QueryOffsetRequest{}, &rmqv2.QueryOffsetResponse{}).GetStatus().GetCode())
}

// TestPullConsumer: its settings are taken, and its assignment names every queue.
func TestPullConsumer(t *testing.T) {
	w, _ := pullWorld(t)
	w.o.Clients.Put("client@1", clients.Settings{Type: clients.PullConsumer, Group: "plain"}, nil, testNow)
	r := w.assign(t, "spread", "plain", endpointsAt(rmqv2.AddressScheme_IPv4, "127.0.0.1"))
	var ids []int32
	for _, a := range r.GetAssignments() {
		ids = append(ids, a.GetMessageQueue().GetId())
	}
	require.Equal(t, []int32{0, 1, 2, 0}, ids)
	_, err := w.checkSettings(t.Context(), consumer(rmqv2.ClientType_PULL_CONSUMER, "plain", "normal"))
	require.NoError(t, err)
}
