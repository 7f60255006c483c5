package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/route"
)

// fakeDuplex is a Telemetry call.
type fakeDuplex struct {
	fakeInfo
	in      chan []byte // closed: the client has closed its side
	out     chan *rmqv2.TelemetryCommand
	headers chan struct{}
	once    sync.Once
	result  chan error
}

func (d *fakeDuplex) SendHeaders() error {
	d.once.Do(func() { close(d.headers) })
	return nil
}

func (d *fakeDuplex) Recv() ([]byte, error) {
	select {
	case msg, ok := <-d.in:
		if !ok {
			return nil, io.EOF
		}
		return msg, nil
	case <-d.ctx.Done():
		return nil, d.ctx.Err()
	}
}

func (d *fakeDuplex) Send(msg []byte) error {
	cmd := &rmqv2.TelemetryCommand{}
	if err := proto.Unmarshal(msg, cmd); err != nil {
		panic(err)
	}
	d.out <- cmd
	return nil
}

// telemetry opens a stream.
func (s *site) telemetry(t *testing.T, change ...func(*fakeInfo)) *fakeDuplex {
	info := newInfo(t.Context(), "c")
	for _, f := range change {
		f(&info)
	}
	d := &fakeDuplex{fakeInfo: info, in: make(chan []byte), out: make(chan *rmqv2.TelemetryCommand, 4), headers: make(chan struct{}), result: make(chan error, 1)}
	go func() { d.result <- s.Telemetry(d) }()
	<-d.headers
	return d
}

// settle sends settings and returns the answer, or how the stream ended.
func (d *fakeDuplex) settle(settings *rmqv2.Settings) (*rmqv2.TelemetryCommand, error) {
	d.in <- mustMarshal(&rmqv2.TelemetryCommand{Command: &rmqv2.TelemetryCommand_Settings{Settings: settings}})
	select {
	case cmd := <-d.out:
		return cmd, nil
	case err := <-d.result:
		return nil, err
	}
}

func consumer(kind rmqv2.ClientType, group string, topics ...string) *rmqv2.Settings {
	sub := &rmqv2.Subscription{Group: res(group)}
	for _, name := range topics {
		sub.Subscriptions = append(sub.Subscriptions, &rmqv2.SubscriptionEntry{
			Topic: res(name), Expression: &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"},
		})
	}
	s := settingsOf(kind)
	s.PubSub = &rmqv2.Settings_Subscription{Subscription: sub}
	return s
}

func producer(topics ...string) *rmqv2.Settings {
	pub := &rmqv2.Publishing{}
	for _, name := range topics {
		pub.Topics = append(pub.Topics, res(name))
	}
	s := settingsOf(rmqv2.ClientType_PRODUCER)
	s.PubSub = &rmqv2.Settings_Publishing{Publishing: pub}
	return s
}

func settingsOf(kind rmqv2.ClientType) *rmqv2.Settings {
	return &rmqv2.Settings{
		ClientType: &kind,
		AccessPoint: &rmqv2.Endpoints{
			Scheme: rmqv2.AddressScheme_IPv4, Addresses: []*rmqv2.Address{{Host: "127.0.0.1", Port: 8081}},
		},
		RequestTimeout: durationpb.New(3 * time.Second),
		UserAgent:      &rmqv2.UA{Language: rmqv2.Language_GOLANG, Version: "5.1.3", Platform: "p", Hostname: "h"},
	}
}

func seconds(ds []*durationpb.Duration) (s []int) {
	for _, d := range ds {
		s = append(s, int(d.GetSeconds()))
	}
	return s
}

func TestProducerSettings(t *testing.T) {
	for _, topics := range [][]string{{"one"}, {"need-not-exist"}, {}} {
		sent := producer(topics...)
		cmd, err := newSite().telemetry(t).settle(sent)
		require.NoError(t, err)
		require.Equal(t, rmqv2.Code_OK, cmd.GetStatus().GetCode())
		want := proto.CloneOf(sent)
		want.Metric = &rmqv2.Metric{}
		want.GetPublishing().MaxBodySize, want.GetPublishing().ValidateMessageType = 4<<20, true
		want.BackoffPolicy = &rmqv2.RetryPolicy{MaxAttempts: 3, Strategy: &rmqv2.RetryPolicy_ExponentialBackoff{
			ExponentialBackoff: &rmqv2.ExponentialBackoff{
				Initial: durationpb.New(10 * time.Millisecond), Max: durationpb.New(time.Second), Multiplier: 2,
			},
		}}
		require.True(t, proto.Equal(want, cmd.GetSettings()), "%v", cmd.GetSettings())
	}
}

func TestConsumerSettings(t *testing.T) {
	for _, c := range []struct {
		kind     rmqv2.ClientType
		group    string
		fifo     bool
		attempts int32
		delays   []int
	}{
		{rmqv2.ClientType_SIMPLE_CONSUMER, "g", false, 17, []int{1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200}},
		{rmqv2.ClientType_PUSH_CONSUMER, "ordered", true, 17, nil},
		{rmqv2.ClientType_PUSH_CONSUMER, "few", false, 2, []int{2, 60}}, // whole seconds, rounded up
		{rmqv2.ClientType_LITE_PUSH_CONSUMER, "lite", false, 17, nil},
	} {
		sent := consumer(c.kind, c.group, "one")
		sent.GetSubscription().Group.ResourceNamespace = "ns"
		sent.GetSubscription().LongPollingTimeout = durationpb.New(time.Minute)
		sent.ClientProperties = map[string]string{"app": "x"}
		cmd, err := newSite().telemetry(t).settle(sent)
		require.NoError(t, err)
		got := cmd.GetSettings()
		require.Equal(t, rmqv2.Code_OK, cmd.GetStatus().GetCode())
		require.Equal(t, c.attempts, got.GetBackoffPolicy().GetMaxAttempts())
		if c.delays != nil {
			require.Equal(t, c.delays, seconds(got.GetBackoffPolicy().GetCustomizedBackoff().GetNext()))
		}
		require.NotEmpty(t, got.GetBackoffPolicy().GetCustomizedBackoff().GetNext())
		require.NotNil(t, got.Metric)
		want := proto.CloneOf(sent)
		want.Metric, want.BackoffPolicy = got.Metric, got.BackoffPolicy
		sub := want.GetSubscription()
		sub.Fifo, sub.ReceiveBatchSize, sub.LongPollingTimeout = &c.fifo, proto.Int32(32), durationpb.New(20*time.Second)
		sub.LiteSubscriptionQuota, sub.MaxLiteTopicSize = proto.Int32(2000), proto.Int32(64)
		require.True(t, proto.Equal(want, got), "%v", got)
	}
}

func TestNodeConsumersGetAnExponentialPolicy(t *testing.T) {
	for _, c := range []struct {
		agent  rmqv2.Language
		header string
		node   bool
	}{
		{rmqv2.Language_NODE_JS, "HTTP", true},
		{rmqv2.Language_LANGUAGE_UNSPECIFIED, "HTTP", true},
		{rmqv2.Language_PYTHON, "PYTHON", false},
		{rmqv2.Language_LANGUAGE_UNSPECIFIED, "KLINGON", false},
		{rmqv2.Language_LANGUAGE_UNSPECIFIED, "", false},
	} {
		settings := consumer(rmqv2.ClientType_PUSH_CONSUMER, "few", "one")
		settings.UserAgent.Language = c.agent
		cmd, err := newSite().telemetry(t, func(i *fakeInfo) { i.headers[headerLanguage] = c.header }).settle(settings)
		require.NoError(t, err)
		p := cmd.GetSettings().GetBackoffPolicy()
		require.Equal(t, int32(2), p.GetMaxAttempts())
		require.Equal(t, c.node, p.GetExponentialBackoff() != nil, "%v", c)
		if c.node {
			require.Equal(t, []int{2, 60}, seconds([]*durationpb.Duration{p.GetExponentialBackoff().GetInitial(), p.GetExponentialBackoff().GetMax()}))
		}
	}
}

// TestExponentialPolicy: Node gets it as it is, all others as a list.
func TestExponentialPolicy(t *testing.T) {
	group := &route.Group{MaxAttempts: 4, Growth: route.Growth{Initial: 1500 * time.Millisecond, Max: time.Minute, Multiplier: 3}}
	group.Backoff = group.Growth.Delays(group.MaxAttempts)
	node := groupBackoff(group, true).GetExponentialBackoff()
	require.Equal(t, []int{2, 60}, seconds([]*durationpb.Duration{node.GetInitial(), node.GetMax()}))
	require.Equal(t, float32(3), node.GetMultiplier())
	other := groupBackoff(group, false)
	require.Equal(t, []int{2, 5, 14}, seconds(other.GetCustomizedBackoff().GetNext()))
	require.EqualValues(t, 4, other.GetMaxAttempts())
}

// TestRefusedSettingsEndTheStream, and those sent before stay in force.
func TestRefusedSettingsEndTheStream(t *testing.T) {
	const push, simple = rmqv2.ClientType_PUSH_CONSUMER, rmqv2.ClientType_SIMPLE_CONSUMER
	filtered := func(kind rmqv2.FilterType, text string) *rmqv2.Settings {
		s := consumer(simple, "g", "one")
		s.GetSubscription().Subscriptions[0].Expression = &rmqv2.FilterExpression{Type: kind, Expression: text}
		return s
	}
	for name, settings := range map[string]*rmqv2.Settings{
		"empty":                 {},
		"illegal topic":         producer("one", "conf normal"),
		"empty group":           consumer(push, "", "one"),
		"illegal group":         consumer(push, "conf g1", "one"),
		"system group":          consumer(push, "CID_RMQ_SYS_X", "one"),
		"missing group":         consumer(simple, "nobody", "one"),
		"type 99":               consumer(99, "g", "one"),
		"type 0":                consumer(0, "g", "one"),
		"only separators":       filtered(rmqv2.FilterType_TAG, "||"),
		"empty SQL":             filtered(rmqv2.FilterType_SQL, ""),
		"wrong SQL":             filtered(rmqv2.FilterType_SQL, "a >"),
		"simple in lite group":  consumer(simple, "lite", "one"),
		"lite in plain group":   consumer(rmqv2.ClientType_LITE_PUSH_CONSUMER, "g", "one"),
		"lite, other topic":     consumer(rmqv2.ClientType_LITE_PUSH_CONSUMER, "lite", "two"),
		"lite, no subscription": consumer(rmqv2.ClientType_LITE_PUSH_CONSUMER, "lite"),
	} {
		s := newSite()
		d := s.telemetry(t)
		_, err := d.settle(consumer(simple, "g", "one"))
		require.NoError(t, err)
		cmd, err := d.settle(settings)
		require.Nil(t, cmd, name)
		var failure *call.Failure
		require.True(t, errors.As(err, &failure), "%s: %v", name, err)
		require.Equal(t, call.InvalidArgument, failure.Code, name)
		require.NotEmpty(t, failure.Text)
		kept, ok := s.o.Clients.Settings("c")
		require.True(t, ok, name)
		require.Equal(t, "g", kept.Group, name)
		require.Empty(t, s.o.Clients.Streams("c"), "an ended stream is no stream")
	}
}

func TestSettingsAreAcceptedThough(t *testing.T) {
	const simple = rmqv2.ClientType_SIMPLE_CONSUMER
	bare := consumer(simple, "g", "one")
	bare.AccessPoint, bare.UserAgent, bare.RequestTimeout = nil, nil, nil
	noFilter := consumer(simple, "g", "one")
	noFilter.GetSubscription().Subscriptions[0].Expression = nil
	for name, settings := range map[string]*rmqv2.Settings{
		"no subscriptions": consumer(simple, "g"),
		"missing topic":    consumer(simple, "g", "nowhere"),
		"bare":             bare,
		"no filter":        noFilter,
	} {
		cmd, err := newSite().telemetry(t).settle(settings)
		require.NoError(t, err, name)
		require.Equal(t, rmqv2.Code_OK, cmd.GetStatus().GetCode(), name)
	}
}

func TestTelemetryStream(t *testing.T) {
	s := newSite()
	d := s.telemetry(t)
	for _, cmd := range []*rmqv2.TelemetryCommand{
		{},
		{Command: &rmqv2.TelemetryCommand_VerifyMessageResult{VerifyMessageResult: &rmqv2.VerifyMessageResult{Nonce: "7"}}},
		{Command: &rmqv2.TelemetryCommand_ReconnectEndpointsCommand{ReconnectEndpointsCommand: &rmqv2.ReconnectEndpointsCommand{Nonce: "7"}}},
		{Status: &rmqv2.Status{Code: rmqv2.Code_INTERNAL_ERROR}},
	} {
		d.in <- mustMarshal(cmd) // passed over: the next one is taken
	}
	_, err := d.settle(producer())
	require.NoError(t, err)
	cmd, err := d.settle(consumer(rmqv2.ClientType_PUSH_CONSUMER, "g", "one")) // another kind now
	require.NoError(t, err)
	require.NotNil(t, cmd.GetSettings().GetSubscription())
	require.Len(t, s.o.Clients.Streams("c"), 1)

	second := s.telemetry(t)
	_, err = second.settle(consumer(rmqv2.ClientType_PUSH_CONSUMER, "g", "one"))
	require.NoError(t, err)
	require.Equal(t, []clients.Stream{second, d}, s.o.Clients.Streams("c"))
	close(second.in)
	require.NoError(t, <-second.result)
	require.Equal(t, []clients.Stream{d}, s.o.Clients.Streams("c"))
	close(d.in)
	require.NoError(t, <-d.result)
	_, known := s.o.Clients.Settings("c")
	require.True(t, known, "the end of a stream is not the end of its client")
}

func TestTelemetryWithoutClientID(t *testing.T) {
	d := newSite().telemetry(t, noClient)
	require.Equal(t, rmqv2.Code_CLIENT_ID_REQUIRED, (<-d.out).GetStatus().GetCode())
	require.NoError(t, <-d.result)
}

func TestTelemetryGarbage(t *testing.T) {
	d := newSite().telemetry(t)
	d.in <- []byte("garbage")
	var failure *call.Failure
	require.True(t, errors.As(<-d.result, &failure))
	require.Equal(t, call.InvalidArgument, failure.Code)
}

func TestTelemetryEndsWithItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := newSite().telemetry(t, func(i *fakeInfo) { i.ctx = ctx })
	cancel()
	require.ErrorIs(t, <-d.result, context.Canceled)
}

func TestSettingsMakeMissingGroups(t *testing.T) {
	s := newSite(func(o *Options) { o.Creator = maker{o.Routes} })
	cmd, err := s.telemetry(t).settle(consumer(rmqv2.ClientType_PUSH_CONSUMER, "new-group", "one"))
	require.NoError(t, err)
	require.Equal(t, "new-group", cmd.GetSettings().GetSubscription().GetGroup().GetName())
}

// TestPollTimeOfSettings: the Go client's simple consumer says nowhere else how long it waits.
func TestPollTimeOfSettings(t *testing.T) {
	s := newSite()
	settings := consumer(rmqv2.ClientType_SIMPLE_CONSUMER, "g", "one")
	settings.GetSubscription().LongPollingTimeout = durationpb.New(7 * time.Second)
	_, err := s.telemetry(t).settle(settings)
	require.NoError(t, err)
	kept, _ := s.o.Clients.Settings("c")
	require.Equal(t, 7*time.Second, kept.PollTimeout, "as stated, not as answered")
	require.Equal(t, 3*time.Second, kept.RequestTimeout)
}

// FuzzTelemetry gives any two commands to a telemetry stream: it answers or ends, and does not panic.
func FuzzTelemetry(f *testing.F) {
	for _, s := range []*rmqv2.Settings{
		{},
		{ClientType: rmqv2.ClientType_PRODUCER.Enum(), PubSub: &rmqv2.Settings_Publishing{Publishing: &rmqv2.Publishing{Topics: []*rmqv2.Resource{{Name: "normal"}, nil}}}},
		{ClientType: rmqv2.ClientType_PUSH_CONSUMER.Enum(), PubSub: &rmqv2.Settings_Subscription{Subscription: &rmqv2.Subscription{Group: &rmqv2.Resource{Name: "plain"}}}},
	} {
		b, err := proto.Marshal(&rmqv2.TelemetryCommand{Command: &rmqv2.TelemetryCommand_Settings{Settings: s}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, []byte{})
		f.Add([]byte{}, b)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		w := newWorld(t, nil)
		d := &fakeDuplex{fakeInfo: newInfo(t.Context(), "c"), in: make(chan []byte, 2), out: make(chan *rmqv2.TelemetryCommand, 2), headers: make(chan struct{})}
		d.in <- first
		d.in <- second
		close(d.in)
		if err := w.Telemetry(d); err != nil {
			if _, ok := errors.AsType[*call.Failure](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
		}
		if w.o.Clients.Len() > 1 {
			t.Fatal("one client is two")
		}
	})
}
