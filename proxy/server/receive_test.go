package server

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/route"
)

func res(name string) *rmqv2.Resource { return &rmqv2.Resource{Name: name} }

// receiveRequest is a usual request of group g on topic one.
func receiveRequest(change ...func(*rmqv2.ReceiveMessageRequest)) *rmqv2.ReceiveMessageRequest {
	r := &rmqv2.ReceiveMessageRequest{
		Group:              res("g"),
		MessageQueue:       &rmqv2.MessageQueue{Topic: res("one"), Id: -1, Broker: &rmqv2.Broker{Name: "a"}},
		FilterExpression:   &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"},
		BatchSize:          32,
		InvisibleDuration:  durationpb.New(30 * time.Second),
		LongPollingTimeout: durationpb.New(5 * time.Second),
	}
	for _, f := range change {
		f(r)
	}
	return r
}

// stream is a call that is not made yet.
func (s *site) stream(info fakeInfo, req *rmqv2.ReceiveMessageRequest) *fakeStream {
	return &fakeStream{fakeInfo: info, req: mustMarshal(req), done: make(chan struct{}), start: time.Now()}
}

// poll starts a receive.
func (s *site) poll(info fakeInfo, req *rmqv2.ReceiveMessageRequest, accept func(int) error) *fakeStream {
	st := s.stream(info, req)
	st.accept = accept
	s.ReceiveMessage(st)
	return st
}

// take is a receive that is over.
func (s *site) take(t *testing.T, req *rmqv2.ReceiveMessageRequest) *fakeStream {
	t.Helper()
	st := s.poll(newInfo(t.Context(), "c"), req, nil)
	<-st.done
	return st
}

// settled waits until nothing is leased by nobody, all replies are released and nothing is unsent.
func (s *site) settled(t *testing.T, leased int) {
	t.Helper()
	synctest.Wait()
	sum := 0
	for _, b := range s.brokers {
		sum += b.count(memLeased)
		b.mu.Lock()
		require.Zero(t, b.unfreed, "replies not released")
		b.mu.Unlock()
	}
	require.Equal(t, leased, sum, "leased messages")
	require.Zero(t, s.receives.unsent.Load())
	require.Zero(t, s.o.Polls.Stats().Waiting)
}

func TestReceiveDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		s.brokers[1].store("x", "y")
		st := s.take(t, receiveRequest())
		require.Equal(t, []string{"status", "message", "message", "time"}, st.order())
		require.Equal(t, rmqv2.Code_OK, st.status())
		require.Zero(t, st.took)
		require.True(t, st.sent[3].GetDeliveryTimestamp().AsTime().Equal(time.Now()))
		m := st.messages()[0]
		p := m.GetSystemProperties()
		require.Equal(t, "one", m.GetTopic().GetName())
		require.Equal(t, "x", string(m.GetBody()))
		require.Equal(t, "id-x", p.GetMessageId())
		require.Equal(t, int32(3), p.GetQueueId())
		require.Equal(t, int64(0), p.GetQueueOffset())
		require.Equal(t, int32(1), p.GetDeliveryAttempt())
		require.Equal(t, "10.0.0.1:10911", p.GetStoreHost())
		require.Equal(t, int64(1_700_000_000_123), p.GetStoreTimestamp().AsTime().UnixMilli())
		require.NotEqual(t, p.GetReceiptHandle(), st.messages()[1].GetSystemProperties().GetReceiptHandle())

		pop := s.brokers[1].pops[0]
		require.Equal(t, s.o.Limits.ReceiveBytes, pop.MaxBytes)
		require.Equal(t, 30*time.Second, pop.Invisible)
		require.False(t, pop.Session)
		require.Equal(t, "c", pop.Client)
		require.Equal(t, brokerapi.Epoch(9), pop.Epoch)
		s.settled(t, 2)
	})
}

// TestReceiveRefuses: the code and what is on the stream, and that an error takes a while.
func TestReceiveRefuses(t *testing.T) {
	type edit = func(*rmqv2.ReceiveMessageRequest)
	topic := func(name string) edit {
		return func(r *rmqv2.ReceiveMessageRequest) { r.MessageQueue.Topic = res(name) }
	}
	group := func(name string) edit { return func(r *rmqv2.ReceiveMessageRequest) { r.Group = res(name) } }
	invisible := func(d time.Duration) edit {
		return func(r *rmqv2.ReceiveMessageRequest) { r.InvisibleDuration = durationpb.New(d) }
	}
	filter := func(kind rmqv2.FilterType, text string) edit {
		return func(r *rmqv2.ReceiveMessageRequest) {
			r.FilterExpression = &rmqv2.FilterExpression{Type: kind, Expression: text}
		}
	}
	for name, c := range map[string]struct {
		edit edit
		want rmqv2.Code
	}{
		"illegal topic":        {topic("conf normal"), rmqv2.Code_ILLEGAL_TOPIC},
		"system topic":         {topic("TBW102"), rmqv2.Code_ILLEGAL_TOPIC},
		"no queue":             {func(r *rmqv2.ReceiveMessageRequest) { r.MessageQueue = nil }, rmqv2.Code_ILLEGAL_TOPIC},
		"missing topic":        {topic("nowhere"), rmqv2.Code_TOPIC_NOT_FOUND},
		"retry topic":          {topic("%RETRY%g"), rmqv2.Code_TOPIC_NOT_FOUND},
		"topic without queues": {topic("empty"), rmqv2.Code_FORBIDDEN},
		"no group":             {func(r *rmqv2.ReceiveMessageRequest) { r.Group = nil }, rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		"illegal group":        {group("conf g1"), rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		"missing group":        {group("nobody"), rmqv2.Code_CONSUMER_GROUP_NOT_FOUND},
		"invisible 0":          {invisible(0), rmqv2.Code_ILLEGAL_INVISIBLE_TIME},
		"invisible just below": {invisible(10*time.Second - 1), rmqv2.Code_ILLEGAL_INVISIBLE_TIME},
		"invisible just above": {invisible(12*time.Hour + 1), rmqv2.Code_ILLEGAL_INVISIBLE_TIME},
		"invisible negative":   {invisible(-time.Second), rmqv2.Code_ILLEGAL_INVISIBLE_TIME},
		"invisible for ever": {func(r *rmqv2.ReceiveMessageRequest) {
			r.InvisibleDuration = &durationpb.Duration{Seconds: 1 << 62}
		}, rmqv2.Code_ILLEGAL_INVISIBLE_TIME},
		"no invisible time":  {func(r *rmqv2.ReceiveMessageRequest) { r.InvisibleDuration = nil }, rmqv2.Code_ILLEGAL_INVISIBLE_TIME},
		"separators":         {filter(rmqv2.FilterType_TAG, "||"), rmqv2.Code_ILLEGAL_FILTER_EXPRESSION},
		"many separators":    {filter(99, "||||||"), rmqv2.Code_ILLEGAL_FILTER_EXPRESSION},
		"empty SQL":          {filter(rmqv2.FilterType_SQL, ""), rmqv2.Code_ILLEGAL_FILTER_EXPRESSION},
		"SQL syntax":         {filter(rmqv2.FilterType_SQL, "a >"), rmqv2.Code_ILLEGAL_FILTER_EXPRESSION},
		"SQL and more":       {filter(rmqv2.FilterType_SQL, "a > 1 b"), rmqv2.Code_ILLEGAL_FILTER_EXPRESSION},
		"endless expression": {filter(rmqv2.FilterType_TAG, strings.Repeat("a", 64<<10+1)), rmqv2.Code_ILLEGAL_FILTER_EXPRESSION},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite()
				s.brokers[1].store("x")
				st := s.take(t, receiveRequest(c.edit))
				require.Equal(t, c.want, st.status())
				require.Equal(t, []string{"status", "time"}, st.order())
				require.GreaterOrEqual(t, st.took, 100*time.Millisecond)
				require.Less(t, st.took, 700*time.Millisecond)
				require.Empty(t, s.brokers[1].pops)
				s.settled(t, 0)
			})
		})
	}
}

func TestReceiveWithoutClientID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newSite().poll(newInfo(t.Context(), ""), receiveRequest(), nil)
		<-st.done
		require.Equal(t, rmqv2.Code_CLIENT_ID_REQUIRED, st.status())
		require.Equal(t, []string{"status"}, st.order())
		require.Equal(t, errorDelay, st.took)
	})
}

func TestReceiveOfGarbage(t *testing.T) {
	st := &fakeStream{fakeInfo: newInfo(t.Context(), "c"), req: []byte("garbage"), done: make(chan struct{})}
	newSite().ReceiveMessage(st)
	<-st.done
	require.Equal(t, call.InvalidArgument, st.code)
}

// TestReceiveWaits: how long an empty receive takes, by polling time, deadline and settings.
func TestReceiveWaits(t *testing.T) {
	const s, unset, never = time.Second, time.Duration(-1 << 40), time.Duration(0)
	for name, c := range map[string]struct {
		poll, deadline time.Duration
		settings       clients.Settings
		version        string
		code           rmqv2.Code
		took           time.Duration
	}{
		"as asked":             {poll: 7 * s, deadline: 10 * s, took: 7 * s},
		"0":                    {poll: 0, deadline: 30 * s, took: 5 * s},
		"negative":             {poll: -s, deadline: 30 * s, took: 5 * s},
		"too long":             {poll: 40 * s, deadline: 43 * s, took: 20 * s},
		"deadline the same":    {poll: 8 * s, deadline: 8 * s, took: 7500 * time.Millisecond},
		"deadline before":      {poll: 10 * s, deadline: 6 * s, took: 5500 * time.Millisecond},
		"deadline too near":    {poll: s, deadline: 4 * s, code: rmqv2.Code_ILLEGAL_POLLING_TIME, took: errorDelay},
		"near, old client":     {poll: s, deadline: 4 * s, version: "5.0.0", code: rmqv2.Code_BAD_REQUEST, took: errorDelay},
		"near, Node":           {poll: s, deadline: 4 * s, version: "1.0.7", code: rmqv2.Code_BAD_REQUEST, took: errorDelay},
		"no deadline":          {poll: 5 * s, deadline: never, took: 5 * s},
		"nothing said":         {poll: unset, deadline: never, took: 20 * s},
		"unset":                {poll: unset, deadline: 10 * s, took: 8500 * time.Millisecond},
		"unset, long timeout":  {poll: unset, deadline: 16 * s, settings: clients.Settings{RequestTimeout: 6 * s}, took: 13 * s},
		"unset, from settings": {poll: unset, deadline: 15 * s, settings: clients.Settings{PollTimeout: 6 * s}, took: 6 * s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite()
				if c.settings.RequestTimeout+c.settings.PollTimeout > 0 {
					site.o.Clients.Put("c", c.settings, nil, time.Now())
				}
				info := newInfo(t.Context(), "c")
				if c.deadline != never {
					ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
					defer cancel()
					info.ctx = ctx
				}
				if c.version != "" {
					info.headers[headerVersion] = c.version
				}
				st := site.poll(info, receiveRequest(func(r *rmqv2.ReceiveMessageRequest) {
					r.LongPollingTimeout = durationpb.New(c.poll)
					if c.poll == unset {
						r.LongPollingTimeout = nil
					}
				}), nil)
				<-st.done
				if c.code == 0 {
					c.code = rmqv2.Code_MESSAGE_NOT_FOUND
				}
				require.Equal(t, c.code, st.status())
				require.Equal(t, []string{"status", "time"}, st.order())
				require.Equal(t, c.took, st.took)
				site.settled(t, 0)
			})
		})
	}
}

func TestReceiveIsWokenByASend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		st := s.poll(newInfo(t.Context(), "c"), receiveRequest(), nil)
		time.Sleep(2 * time.Second)
		s.brokers[1].store("x")
		<-st.done
		require.Equal(t, 2*time.Second, st.took)
		require.Len(t, st.messages(), 1)
	})
}

func TestReceiveBatchSize(t *testing.T) {
	for asked, want := range map[int32]int{-1: 1, 0: 1, 1: 1, 32: 32, 33: 32, 1000: 32} {
		s := newSite()
		s.brokers[1].store(strings.Split(strings.Repeat("x ", 40), " ")[:40]...)
		st := s.take(t, receiveRequest(func(r *rmqv2.ReceiveMessageRequest) { r.BatchSize = asked }))
		require.Len(t, st.messages(), want, "batch size %d", asked)
	}
}

func TestReceiveFilter(t *testing.T) {
	for expression, want := range map[string]brokerapi.Filter{
		"":             {},
		"*":            {},
		" * ":          {Kind: brokerapi.FilterTags, Tags: []string{"*"}},
		" ":            {Kind: brokerapi.FilterTags},
		"|| ||":        {Kind: brokerapi.FilterTags},
		"a":            {Kind: brokerapi.FilterTags, Tags: []string{"a"}},
		" a ||  b ":    {Kind: brokerapi.FilterTags, Tags: []string{"a", "b"}},
		"||a||||c||||": {Kind: brokerapi.FilterTags, Tags: []string{"a", "c"}},
		"a||*":         {Kind: brokerapi.FilterTags, Tags: []string{"a", "*"}},
		"a|b":          {Kind: brokerapi.FilterTags, Tags: []string{"a|b"}},
	} {
		s := newSite()
		s.brokers[1].store("x")
		s.take(t, receiveRequest(func(r *rmqv2.ReceiveMessageRequest) {
			r.FilterExpression = &rmqv2.FilterExpression{Type: rmqv2.FilterType(len(expression) % 2), Expression: expression}
		}))
		require.Equal(t, want, s.brokers[1].pops[0].Filter, "%q", expression)
	}
	s := newSite()
	s.brokers[1].store("x")
	s.take(t, receiveRequest(func(r *rmqv2.ReceiveMessageRequest) { r.FilterExpression = nil }))
	require.Equal(t, brokerapi.Filter{}, s.brokers[1].pops[0].Filter)
}

// TestAutoRenewIsASessionLease, whatever invisible time the client asks for.
func TestAutoRenewIsASessionLease(t *testing.T) {
	s := newSite()
	s.brokers[1].store("x")
	st := s.take(t, receiveRequest(func(r *rmqv2.ReceiveMessageRequest) {
		r.AutoRenew, r.InvisibleDuration = true, durationpb.New(time.Second)
	}))
	require.Equal(t, rmqv2.Code_OK, st.status())
	require.True(t, s.brokers[1].pops[0].Session)
	require.Equal(t, []string{"c"}, s.o.Clients.Alive(time.Now().Add(-time.Minute)))
}

// TestWhichBrokerAnswers: any, but with an attempt id the one that is named.
func TestWhichBrokerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := func(attempt *string, broker string) []brokerapi.ShardID {
			s := newSite()
			s.take(t, receiveRequest(func(r *rmqv2.ReceiveMessageRequest) {
				r.MessageQueue.Topic, r.MessageQueue.Broker.Name, r.AttemptId = res("two"), broker, attempt
			}))
			var asked []brokerapi.ShardID
			for id, b := range s.brokers {
				for _, p := range b.pops {
					asked = append(asked, id)
					if attempt != nil {
						require.Equal(t, *attempt, p.AttemptID)
					}
				}
			}
			slices.Sort(asked)
			return asked
		}
		both := []brokerapi.ShardID{1, 2}
		require.Equal(t, both, ask(nil, "b"))
		require.Equal(t, both, ask(new(""), "b"))
		require.Equal(t, both, ask(new("x"), ""))
		require.Equal(t, both, ask(new("x"), "virtual-broker"))
		require.Equal(t, []brokerapi.ShardID{2}, ask(new("x"), "b"))
		require.Equal(t, []brokerapi.ShardID{1}, ask(new("x"), "a"))
	})
}

// TestWhatIsNotTakenIsGivenBack fails the stream at each message.
func TestWhatIsNotTakenIsGivenBack(t *testing.T) {
	for fail := range 7 { // status, 5 messages, time
		synctest.Test(t, func(t *testing.T) {
			s := newSite()
			s.brokers[1].store("a", "b", "c", "d", "e")
			st := s.poll(newInfo(t.Context(), "c"), receiveRequest(), func(n int) error {
				if n == fail {
					return errors.New("stream is gone")
				}
				return nil
			})
			<-st.done
			taken := min(max(fail-1, 0), 5)
			s.settled(t, taken)
			require.Len(t, st.messages(), taken)
			require.Equal(t, 5-taken, s.brokers[1].count(memReady))
			again := s.take(t, receiveRequest())
			if taken == 5 {
				return
			}
			for _, m := range again.messages() {
				require.Equal(t, int32(1), m.GetSystemProperties().GetDeliveryAttempt(), "a give-back counts no attempt")
			}
			require.Len(t, again.messages(), 5-taken)
		})
	}
}

// TestReaderThatNeverReads is cut off after a while; nobody else waits for it.
func TestReaderThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		s.brokers[1].store("a", "b", "c")
		rude := s.stream(newInfo(t.Context(), "rude"), receiveRequest(func(r *rmqv2.ReceiveMessageRequest) { r.BatchSize = 2 }))
		rude.accept = func(n int) error {
			if n < 2 {
				return nil
			}
			<-rude.done
			return errors.New("stream is gone")
		}
		s.ReceiveMessage(rude)
		synctest.Wait()
		require.Positive(t, s.receives.unsent.Load())
		require.Len(t, s.take(t, receiveRequest()).messages(), 1)
		<-rude.done
		require.Equal(t, sendTimeout, rude.took)
		require.Equal(t, call.Cancelled, rude.code)
		s.settled(t, 2)
		require.Equal(t, 1, s.brokers[1].count(memReady))
	})
}

func TestReceivesAreRefusedWhileTooMuchIsUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		s.brokers[1].store("a")
		s.receives.unsent.Store(s.o.Limits.UnsentBytes + 1)
		require.Equal(t, rmqv2.Code_TOO_MANY_REQUESTS, s.take(t, receiveRequest()).status())
		s.receives.unsent.Store(0)
		require.Equal(t, rmqv2.Code_OK, s.take(t, receiveRequest()).status())
	})
}

func TestCancelledReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		ctx, cancel := context.WithCancel(t.Context())
		st := s.poll(newInfo(ctx, "c"), receiveRequest(), nil)
		time.Sleep(time.Second)
		cancel()
		<-st.done
		require.Equal(t, call.Cancelled, st.code)
		require.Empty(t, st.order())
		s.brokers[1].store("x")
		s.settled(t, 0)
		require.Equal(t, 1, s.brokers[1].count(memReady))
	})
}

// TestNoLeaseLeaks cancels receives at every stage: before, during and after the pop, while waiting
// and while messages are written. What clients did not get is ready again in the end.
func TestNoLeaseLeaks(t *testing.T) {
	const receives, messages = 400, 600
	s := newSite()
	s.brokers[1].slow = func() {
		for range rand.IntN(20) {
			_ = rand.Uint64()
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range messages {
			s.brokers[1].store("x")
		}
	})
	var got sync.Map
	for range receives {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			st := s.poll(newInfo(ctx, "c"), receiveRequest(func(r *rmqv2.ReceiveMessageRequest) { r.BatchSize = 4 }), func(n int) error {
				if n == 2 && rand.IntN(3) == 0 {
					cancel()
					return context.Canceled
				}
				return nil
			})
			switch rand.IntN(3) {
			case 0:
				cancel()
			case 1:
				time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, cancel)
			default:
				time.AfterFunc(200*time.Millisecond, cancel)
			}
			<-st.done
			for _, m := range st.messages() {
				got.Store(m.GetSystemProperties().GetReceiptHandle(), true)
			}
		})
	}
	wg.Wait()
	taken := 0
	got.Range(func(any, any) bool { taken++; return true })
	require.Eventually(t, func() bool {
		return s.brokers[1].count(memLeased) == taken && s.brokers[1].count(memReady) == messages-taken
	}, 5*time.Second, time.Millisecond, "leases leaked")
	require.Zero(t, s.receives.unsent.Load())
	require.Zero(t, s.o.Polls.Stats().Waiting)
	require.Zero(t, s.brokers[1].unfreed)
}

func TestReceiveFromUnreachableBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		s.brokers[1].err = mqerr.New(mqerr.Unavailable, "no master")
		st := s.take(t, receiveRequest())
		require.Equal(t, rmqv2.Code_HA_NOT_AVAILABLE, st.status())
		require.Equal(t, errorDelay, st.took)
	})
}

func TestReceiveWithoutKeysIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(func(o *Options) {
			old := o.Routes.Load()
			o.Routes = &route.Table{}
			o.Routes.Apply(route.Update{Topics: []route.Topic{*old.Topic([]byte("one"))}, Groups: []route.Group{*old.Group([]byte("g"))}})
		})
		require.Equal(t, rmqv2.Code_HA_NOT_AVAILABLE, s.take(t, receiveRequest()).status())
	})
}

// maker makes topics and groups on first use.
type maker struct{ routes *route.Table }

func (m maker) EnsureTopic(_ context.Context, name string) error {
	m.routes.Apply(route.Update{Topics: []route.Topic{{ID: 1, Name: name, Placements: []route.Placement{{Shard: 1, Queues: 1}}}}})
	return nil
}

func (m maker) EnsureGroup(_ context.Context, name string) error {
	if name == "refused" {
		return mqerr.New(mqerr.Invalid, "no")
	}
	m.routes.Apply(route.Update{Groups: []route.Group{{ID: 2, Name: name}}})
	return nil
}

// TestReceiveMakesWhatIsMissing, and tells once that a group made so is not ordered.
func TestReceiveMakesWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		s := newSite(func(o *Options) {
			o.Creator = maker{o.Routes}
			o.Log = slog.New(slog.NewTextHandler(&logged, nil))
		})
		s.brokers[1].store("x", "y")
		s.brokers[1].messages[0].Type, s.brokers[1].messages[1].Type = brokerapi.FIFO, brokerapi.FIFO
		for range 2 {
			time.Sleep(time.Second)
			st := s.take(t, receiveRequest(func(r *rmqv2.ReceiveMessageRequest) {
				r.MessageQueue.Topic, r.Group, r.BatchSize = res("new-topic"), res("new-group"), 1
			}))
			require.Len(t, st.messages(), 1)
		}
		require.Equal(t, 1, strings.Count(logged.String(), "unordered group"))
		require.Contains(t, logged.String(), "new-group")
		st := s.take(t, receiveRequest(func(r *rmqv2.ReceiveMessageRequest) { r.Group = res("refused") }))
		require.Equal(t, rmqv2.Code_BAD_REQUEST, st.status())
	})
}
