// Package load is a load of everything that clients of the public protocol can do, for tests in which processes
// die and networks fail meanwhile. What it saw is in a history.
package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/crashtest/history"
)

// Service is what the load is for.
type Service struct {
	// Proxies are the addresses for clients.
	Proxies []string
	// Names are the broker groups by the addresses that deliveries name; nil: there is one, "dev".
	Names map[string]string
	// Groups are the names of the broker groups.
	Groups []string
	// Short says that old messages are kept for a short time only.
	Short bool
	// Replicated says that broker groups have several replicas, so that topics have no flush policy of their own.
	Replicated bool
	// Stale is how old a list of topics and groups may be, since each controller answers it.
	Stale time.Duration
	// Dial connects to proxies. Default: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Pause is how long at most a client waits after a call that has succeeded, before it makes the next; after one that has not,
	// it waits for a tenth of that, or 20 ms. Default 12 ms.
	Pause time.Duration
}

// Load makes calls of every kind while processes come and go, and takes them down.
type Load struct {
	rec   *history.Recorder
	at    Service
	seed  uint64
	conns []*grpc.ClientConn
	seq   atomic.Int64 // message ids
	verbs sync.Map     // of half messages: whether they are to be committed
}

// New returns a load whose clients take their random numbers from seed.
func New(at Service, seed uint64) (*Load, error) {
	if at.Pause <= 0 {
		at.Pause = 12 * time.Millisecond
	}
	l := &Load{rec: history.NewRecorder(), at: at, seed: seed}
	for range 2 {
		for _, addr := range at.Proxies {
			conn, err := at.Connect(addr)
			if err != nil {
				l.Close()
				return nil, err
			}
			l.conns = append(l.conns, conn)
		}
	}
	return l, nil
}

// Close closes the connections.
func (l *Load) Close() {
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// Recorder holds the history.
func (l *Load) Recorder() *history.Recorder { return l.rec }

// client returns a client of its own name and random numbers.
func (l *Load) client(name string) *client {
	h := uint64(0)
	for _, b := range []byte(name) {
		h = h*31 + uint64(b)
	}
	return &client{l: l, name: "crash@" + name, rng: rand.New(rand.NewPCG(l.seed, h))}
}

// Topics and groups of the load. A group has the name of what it reads, or reads several.
const (
	topicNormal, topicAsync, topicPriority, topicFIFO = "normal", "async", "priority", "fifo"
	topicDelay, topicTxn, topicLite                   = "delay", "txn", "lite"
	topicFragile, topicResets, topicPulled            = "fragile", "resets", "pulled"

	groupMain, groupFIFO, groupLite, groupDying, groupResets, groupPull = "main", "ordered", "lites", "dying", "resetting", "pulling"
	groupAudit, groupAuditLite                                          = "audit", "audit-lite"

	lettersTopic = "%DLQ%" + groupDying
	attemptsMax  = 3
)

// reads are the groups and what they read. Where old messages go, somebody must read every topic, or they
// stay.
func (l *Load) reads() []history.Sub {
	if !l.at.Short {
		return append(always, history.Sub{Group: groupDying, Topic: topicFragile})
	}
	return append(always, history.Sub{Group: groupMain, Topic: topicPulled})
}

var always = []history.Sub{
	{Group: groupMain, Topic: topicNormal},
	{Group: groupMain, Topic: topicAsync},
	{Group: groupMain, Topic: topicPriority},
	{Group: groupMain, Topic: topicDelay},
	{Group: groupMain, Topic: topicTxn},
	{Group: groupFIFO, Topic: topicFIFO},
	{Group: groupLite, Topic: topicLite},
	{Group: groupResets, Topic: topicResets},
}

// Rules are those by which the history is judged: drained after Drain, when all has been read.
func (l *Load) Rules(drained bool) history.Rules {
	return history.Rules{
		OneHome: l.at.Names == nil, Slack: history.Time(5 * time.Millisecond), Letters: map[string]string{topicFragile: lettersTopic},
		Drained: drained, Reads: l.reads(), Retention: l.at.Short, Stale: history.Time(l.at.Stale),
	}
}

// Define makes the topics and groups.
func (l *Load) Define(ctx context.Context) error {
	c := l.client("define")
	async, one := controllerv1.FlushPolicy_FLUSH_POLICY_ASYNC, int32(4)
	if l.at.Replicated {
		async = controllerv1.FlushPolicy_FLUSH_POLICY_UNSPECIFIED
	}
	for _, t := range []*controllerv1.PutTopicRequest{
		{Name: topicNormal, Type: controllerv1.TopicType_TOPIC_TYPE_NORMAL},
		{Name: topicAsync, Type: controllerv1.TopicType_TOPIC_TYPE_NORMAL, Flush: async},
		{Name: topicPriority, Type: controllerv1.TopicType_TOPIC_TYPE_PRIORITY},
		{Name: topicFIFO, Type: controllerv1.TopicType_TOPIC_TYPE_FIFO},
		{Name: topicDelay, Type: controllerv1.TopicType_TOPIC_TYPE_DELAY},
		{Name: topicTxn, Type: controllerv1.TopicType_TOPIC_TYPE_TRANSACTION},
		{Name: topicLite, Type: controllerv1.TopicType_TOPIC_TYPE_LITE},
		{Name: topicFragile, Type: controllerv1.TopicType_TOPIC_TYPE_NORMAL},
		{Name: topicResets, Type: controllerv1.TopicType_TOPIC_TYPE_NORMAL},
		{Name: topicPulled, Type: controllerv1.TopicType_TOPIC_TYPE_NORMAL},
	} {
		t.Queues = one
		if err := c.insist(ctx, "topic "+t.GetName(), func(ctx context.Context) error {
			_, err := c.admin().PutTopic(ctx, &adminv1.PutTopicRequest{Topic: t})
			return err
		}); err != nil {
			return err
		}
	}
	many, few, ordered, lite := int32(1000), int32(attemptsMax), true, topicLite
	for _, g := range []*controllerv1.PutGroupRequest{
		{Name: groupMain, MaxAttempts: &many},
		{Name: groupFIFO, MaxAttempts: &many, Ordered: &ordered},
		{Name: groupLite, MaxAttempts: &many, LiteTopic: &lite},
		{Name: groupDying, MaxAttempts: &few},
		{Name: groupResets, MaxAttempts: &many},
		{Name: groupPull, MaxAttempts: &many},
		{Name: groupAudit, MaxAttempts: &many},
		{Name: groupAuditLite, MaxAttempts: &many, LiteTopic: &lite},
	} {
		if err := c.insist(ctx, "group "+g.GetName(), func(ctx context.Context) error {
			_, err := c.admin().PutGroup(ctx, &adminv1.PutGroupRequest{Group: g})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// insist repeats a call until it succeeds.
func (c *client) insist(ctx context.Context, what string, do func(context.Context) error) (err error) {
	for end := time.Now().Add(20 * time.Second); ; c.wait(ctx, 50*time.Millisecond) {
		call, cancel := c.call(ctx, 5*time.Second)
		err = do(call)
		cancel()
		if err == nil || time.Now().After(end) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Run keeps all clients busy until ctx ends and their calls are over.
func (l *Load) Run(ctx context.Context) {
	var wg sync.WaitGroup
	start := func(name string, do func(c *client)) {
		c := l.client(name)
		wg.Go(func() { do(c) })
	}
	topics := []string{topicNormal, topicNormal, topicAsync, topicPriority, topicPulled, topicResets}
	if !l.at.Short {
		topics = append(topics, topicFragile)
	}
	for i, topic := range topics {
		start(fmt.Sprintf("send-%s-%d", topic, i), func(c *client) { c.plain(ctx, topic) })
	}
	for i := range 3 {
		start(fmt.Sprint("send-fifo-", i), func(c *client) { c.fifo(ctx, i) })
	}
	start("send-lite", func(c *client) { c.lite(ctx) })
	start("send-delay", func(c *client) { c.delay(ctx) })
	start("send-txn", func(c *client) { c.transactions(ctx) })
	start("check-txn", func(c *client) { c.checks(ctx) })
	reads := l.reads()
	for i, r := range append(reads, reads[0], reads[5]) {
		start(fmt.Sprintf("receive-%s-%d", r.Topic, i), func(c *client) {
			var before func(context.Context)
			if r.Group == groupLite {
				before = func(ctx context.Context) { c.subscribe(ctx, groupLite) }
			}
			c.consume(ctx, r.Group, r.Topic, 12, before)
		})
	}
	start("push", func(c *client) { c.attend(ctx, groupMain, topicNormal) })
	start("push-txn", func(c *client) { c.attend(ctx, groupMain, topicTxn) })
	start("pull", func(c *client) { c.pull(ctx) })
	start("admin", func(c *client) { c.operate(ctx) })
	wg.Wait()
}

// typeOf is the type of the messages of a topic.
func typeOf(topic string) rmqv2.MessageType {
	switch topic {
	case topicPriority:
		return rmqv2.MessageType_PRIORITY
	case topicFIFO:
		return rmqv2.MessageType_FIFO
	case topicDelay:
		return rmqv2.MessageType_DELAY
	case topicTxn:
		return rmqv2.MessageType_TRANSACTION
	case topicLite:
		return rmqv2.MessageType_LITE
	}
	return rmqv2.MessageType_NORMAL
}
