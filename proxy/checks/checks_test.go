package checks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker has checks to give and notes what it is told.
type broker struct {
	brokerapi.Broker

	mu       sync.Mutex
	fail     error
	told     [][]brokerapi.TopicID
	checks   []brokerapi.Check
	released int
}

func (b *broker) EndTxn(*brokerapi.EndTxnRequest, func(*brokerapi.EndTxnReply, error)) {
	panic("not asked for")
}

func (b *broker) Producers(_ context.Context, req *brokerapi.ProducersRequest) (*brokerapi.ProducersReply, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return nil, b.fail
	}
	b.told = append(b.told, req.Topics)
	return &brokerapi.ProducersReply{}, nil
}

func (b *broker) Checks(req *brokerapi.ChecksRequest, done func(*brokerapi.ChecksReply, error)) {
	b.mu.Lock()
	n := min(req.Max, len(b.checks), 2)
	reply := brokerapi.NewChecksReply(b.checks[:n:n], func() { b.mu.Lock(); b.released++; b.mu.Unlock() })
	b.checks = b.checks[n:]
	reply.More = len(b.checks) > 0
	b.mu.Unlock()
	done(reply, nil)
}

func (b *broker) news() [][]brokerapi.TopicID {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.told
	b.told = nil
	return told
}

func (b *broker) set(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

// half is a check of a message of a topic.
func half(topic brokerapi.TopicID, id string) brokerapi.Check {
	sys := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), id)
	return brokerapi.Check{Topic: topic, Half: 8, Checks: 1, Message: brokerapi.Delivery{Attempt: 1, Sys: sys, Body: []byte("body of " + id), StoreTime: 5}}
}

// stream takes commands, or fails, or stands still.
type stream struct {
	mu    sync.Mutex
	got   []*rmqv2.RecoverOrphanedTransactionCommand
	fail  error
	stuck chan struct{}
}

func (s *stream) Send(msg []byte) error {
	if s.stuck != nil {
		<-s.stuck
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	var cmd rmqv2.TelemetryCommand
	if err := proto.Unmarshal(msg, &cmd); err != nil {
		return err
	}
	s.got = append(s.got, cmd.GetRecoverOrphanedTransactionCommand())
	return nil
}

func (s *stream) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, c := range s.got {
		ids = append(ids, c.GetTransactionId())
	}
	return ids
}

// world is a Checker with two shards; topic 1 is on both, topic 2 on the second.
type world struct {
	*Checker
	brokers map[brokerapi.ShardID]*broker
	clients *clients.Table
	routes  *route.Table
}

func (w *world) Broker(id brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	return w.brokers[id], 1, nil
}

// run calls f with a Checker that runs, in a bubble of time.
func run(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{brokers: map[brokerapi.ShardID]*broker{1: {}, 2: {}}, clients: clients.New(clients.Options{}, time.Now()), routes: &route.Table{}}
		w.routes.Apply(route.Update{
			Full:   true,
			Shards: []route.Shard{{ID: 1, Name: "a", HasMaster: true}, {ID: 2, Name: "b", HasMaster: true}},
			Topics: []route.Topic{
				{ID: 1, Name: "both", Placements: []route.Placement{{Shard: 1, Queues: 1}, {Shard: 2, Queues: 1}}},
				{ID: 2, Name: "second", Placements: []route.Placement{{Shard: 2, Queues: 1}}},
			},
		})
		w.Checker = New(Options{Clients: w.clients, Routes: w.routes, Brokers: w, StoreHost: func(brokerapi.ShardID) string { return "192.0.2.1:10911" }})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = w.Run(ctx) })
		synctest.Wait()
		f(w)
		stop()
		wg.Wait()
	})
}

func (w *world) producer(id string, s clients.Stream, topics ...string) {
	w.clients.Put(id, clients.Settings{Type: clients.Producer, Topics: topics}, s, time.Now())
}

// give puts checks into a broker and sends its notice.
func (w *world) give(id brokerapi.ShardID, checks ...brokerapi.Check) {
	b := w.brokers[id]
	b.mu.Lock()
	b.checks = append(b.checks, checks...)
	b.mu.Unlock()
	w.Notice(id)
	synctest.Wait()
}

func TestBrokersAreTold(t *testing.T) {
	run(t, func(w *world) {
		s := &stream{}
		w.producer("p", s, "both", "unknown")
		synctest.Wait()
		require.Equal(t, [][]brokerapi.TopicID{{1}}, w.brokers[1].news())
		require.Equal(t, [][]brokerapi.TopicID{{1}}, w.brokers[2].news())
		w.clients.Produced("p", "second", time.Now())
		synctest.Wait()
		require.Empty(t, w.brokers[1].news())
		require.Equal(t, [][]brokerapi.TopicID{{1, 2}}, w.brokers[2].news())
		w.Up(2) // another connection
		synctest.Wait()
		require.Equal(t, [][]brokerapi.TopicID{{1, 2}}, w.brokers[2].news())

		w.brokers[1].set(errors.New("down"))
		w.clients.Leave("p", s)
		synctest.Wait()
		require.Empty(t, w.brokers[1].news())
		require.Len(t, w.brokers[2].news(), 1)
		w.brokers[1].set(nil)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		told := w.brokers[1].news()
		require.Len(t, told, 1)
		require.Empty(t, told[0], "there is no producer any more")
	})
}

func TestChecksGoToProducers(t *testing.T) {
	run(t, func(w *world) {
		one, two, other := &stream{}, &stream{}, &stream{}
		w.producer("one", one, "both")
		w.producer("two", two, "both")
		w.producer("other", other, "second")
		synctest.Wait()
		w.give(1, half(1, "a"), half(1, "b"), half(1, "c"), half(1, "d"))
		w.give(2, half(2, "e"))
		require.Len(t, one.ids(), 2)
		require.Len(t, two.ids(), 2)
		require.ElementsMatch(t, []string{"a", "b", "c", "d"}, append(one.ids(), two.ids()...))
		require.Equal(t, []string{"e"}, other.ids())
		m := other.got[0].GetMessage()
		require.Equal(t, "second", m.GetTopic().GetName())
		require.Equal(t, "body of e", string(m.GetBody()))
		require.Equal(t, "e", m.GetSystemProperties().GetMessageId())
		require.Equal(t, "192.0.2.1:10911", m.GetSystemProperties().GetStoreHost())
		require.EqualValues(t, 1, m.GetSystemProperties().GetDeliveryAttempt())
		require.Equal(t, rmqv2.DigestType_MD5, m.GetSystemProperties().GetBodyDigest().GetType())
		require.Empty(t, m.GetSystemProperties().GetReceiptHandle())
		require.Equal(t, Stats{Sent: 5}, w.Stats())
		require.Equal(t, 2, w.brokers[1].released)
	})
}

// TestBrokenStreams: what a stream does not take goes to another producer; what nobody takes is counted.
func TestBrokenStreams(t *testing.T) {
	run(t, func(w *world) {
		broken, good := &stream{fail: errors.New("gone")}, &stream{}
		w.producer("broken", broken, "both")
		w.producer("good", good, "both")
		synctest.Wait()
		w.give(1, half(1, "a"), half(1, "b"), half(1, "c"))
		require.ElementsMatch(t, []string{"a", "b", "c"}, good.ids())
		w.clients.Leave("good", good)
		w.give(1, half(1, "d"), half(9, "of no topic"))
		require.Equal(t, Stats{Sent: 3, Unsent: 2}, w.Stats())
	})
}

// TestStuckStream: a client that does not read holds up nobody else, and its share is bounded.
func TestStuckStream(t *testing.T) {
	run(t, func(w *world) {
		stuck, good := &stream{stuck: make(chan struct{})}, &stream{}
		w.producer("stuck", stuck, "both")
		w.producer("good", good, "both")
		synctest.Wait()
		const n = 4 * outboxMessages
		for i := range n {
			w.give(1, half(1, fmt.Sprint(i)))
		}
		require.GreaterOrEqual(t, len(good.ids()), n-outboxMessages-1)
		close(stuck.stuck)
		synctest.Wait()
		require.Equal(t, n, len(good.ids())+len(stuck.ids()))
	})
}
