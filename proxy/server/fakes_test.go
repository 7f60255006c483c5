package server

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/route"
)

// testUnary is a call.Unary whose completion a test can look at.
type testUnary struct {
	ctx      context.Context
	headers  map[string]string
	deadline time.Time
	request  []byte

	once  sync.Once
	done  chan struct{}
	reply []byte
	code  call.Code
	text  string
	pause time.Duration // asked for
}

func newUnary(t testing.TB, req proto.Message) *testUnary {
	t.Helper()
	b, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	return &testUnary{ctx: t.Context(), request: b, headers: map[string]string{headerClientID: "client@1"}, done: make(chan struct{})}
}

func (u *testUnary) Context() context.Context     { return u.ctx }
func (u *testUnary) Deadline() (time.Time, bool)  { return u.deadline, !u.deadline.IsZero() }
func (u *testUnary) Header(name string) string    { return u.headers[name] }
func (u *testUnary) Peer() string                 { return "192.0.2.7:4711" }
func (u *testUnary) RetryAfter(d time.Duration)   { u.pause = d }
func (u *testUnary) Local() string                { return "192.0.2.1:8081" }
func (u *testUnary) Request() []byte              { return u.request }
func (u *testUnary) Reply(msg []byte)             { u.end(func() { u.reply = msg }) }
func (u *testUnary) Fail(c call.Code, why string) { u.end(func() { u.code, u.text = c, why }) }

func (u *testUnary) end(f func()) {
	u.once.Do(func() {
		f()
		close(u.done)
		clear(u.request) // the transport uses the bytes again
	})
}

// into waits for the reply and reads it.
func (u *testUnary) into(t testing.TB, m proto.Message) {
	t.Helper()
	select {
	case <-u.done:
	case <-time.After(10 * time.Second):
		t.Fatal("the call is not completed")
	}
	if u.code != call.OK {
		t.Fatalf("gRPC code %d: %s", u.code, u.text)
	}
	if err := proto.Unmarshal(u.reply, m); err != nil {
		t.Fatal(err)
	}
}

// testBroker takes sends and answers them as fail says.
type testBroker struct {
	brokerapi.Broker // nil: a test that uses more has to say so
	mu               sync.Mutex
	sent             []brokerapi.SendRequest // deep copies
	offset           int64
	fail             error
	later            chan func() // if not nil, answers wait there to be run
}

func (b *testBroker) Send(req *brokerapi.SendRequest, done func(*brokerapi.SendReply, error)) {
	b.mu.Lock()
	kept := *req
	kept.Messages = nil
	reply := &brokerapi.SendReply{}
	for _, m := range req.Messages {
		m.ID, m.User, m.Sys, m.Body = clone(m.ID), clone(m.User), clone(m.Sys), clone(m.Body)
		kept.Messages = append(kept.Messages, m)
		reply.Results = append(reply.Results, brokerapi.SendResult{Offset: brokerapi.QueueOffset(b.offset)})
		b.offset++
	}
	b.sent = append(b.sent, kept)
	fail, later := b.fail, b.later
	b.mu.Unlock()
	answer := func() { done(reply, nil) }
	if fail != nil {
		answer = func() { done(nil, fail) }
	}
	if later != nil {
		later <- answer
		return
	}
	answer()
}

// last is what was sent last.
func (b *testBroker) last() brokerapi.SendRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent[len(b.sent)-1]
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }

// testBrokers finds brokers by shard.
type testBrokers map[brokerapi.ShardID]*testBroker

func (m testBrokers) Broker(id brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	if b := m[id]; b != nil {
		return b, brokerapi.Epoch(10 * id), nil
	}
	return nil, 0, mqerr.New(mqerr.Unavailable, "no connection to shard %d", id)
}

// world is a server with two shards, brokers that store nothing, and one topic of each type.
type world struct {
	*Server
	table   *route.Table
	brokers testBrokers
	log     logRecorder
}

var testNow = time.UnixMilli(1_700_000_000_000)

func newWorld(t testing.TB, change func(*Options)) *world {
	t.Helper()
	w := &world{table: &route.Table{}, brokers: testBrokers{1: {}, 2: {}}}
	both := []route.Placement{{Shard: 1, Queues: 3}, {Shard: 2, Queues: 1}}
	one := []route.Placement{{Shard: 1, Queues: 4}}
	w.table.Apply(route.Update{
		Full: true,
		Topics: []route.Topic{
			{ID: 1, Name: "normal", Type: route.Normal, Placements: one},
			{ID: 2, Name: "fifo", Type: route.FIFO, Placements: one},
			{ID: 3, Name: "delay", Type: route.Delay, Placements: one},
			{ID: 4, Name: "tx", Type: route.Transaction, Placements: one},
			{ID: 5, Name: "lite", Type: route.Lite, Placements: one},
			{ID: 6, Name: "prio", Type: route.Priority, Placements: one},
			{ID: 7, Name: "mixed", Type: route.Mixed, Placements: one},
			{ID: 8, Name: "spread", Type: route.Mixed, Placements: both},
			{ID: 9, Name: "%DLQ%g", Type: route.Normal, Placements: one},
			{ID: 10, Name: "nowhere", Type: route.Normal},
			{ID: 11, Name: "soon", Type: route.Delay, Placements: one, Limits: route.Limits{MaxDelay: time.Hour}},
			{ID: 12, Name: "late", Type: route.Mixed, Placements: one, Limits: route.Limits{MaxDelay: 90 * 24 * time.Hour}},
		},
		Groups: []route.Group{{ID: 1, Name: "plain"}, {ID: 2, Name: "ordered", Ordered: true}},
		Shards: []route.Shard{{ID: 1, Name: "alpha", HasMaster: true, Live: true, Epoch: 1}, {ID: 2, Name: "beta", HasMaster: true, Live: true, Epoch: 1}},
	})
	o := Options{
		Routes: w.table, Brokers: w.brokers, Advertise: "203.0.113.5:8081", Log: w.log.logger(),
		Now: func() time.Time { return testNow }, Clients: clients.New(clients.Options{}, testNow),
		Limits: Limits{HomeWait: 10 * time.Millisecond},
	}
	if change != nil {
		change(&o)
	}
	w.Server = New(o)
	return w
}

// send makes a SendMessage call with one edited plain message per edit.
func (w *world) send(t testing.TB, edits ...func(*rmqv2.Message)) *rmqv2.SendMessageResponse {
	t.Helper()
	req := &rmqv2.SendMessageRequest{}
	for _, edit := range edits {
		req.Messages = append(req.Messages, plain(edit))
	}
	u := newUnary(t, req)
	w.SendMessage(u)
	r := &rmqv2.SendMessageResponse{}
	u.into(t, r)
	return r
}

func plain(edits ...func(*rmqv2.Message)) *rmqv2.Message {
	m := &rmqv2.Message{
		Topic: &rmqv2.Resource{Name: "normal"},
		Body:  []byte("body"),
		SystemProperties: &rmqv2.SystemProperties{
			Tag: new("tag"), MessageId: "id-1", BodyEncoding: rmqv2.Encoding_IDENTITY, MessageType: rmqv2.MessageType_NORMAL,
			BornHost: "sender",
		},
	}
	for _, edit := range edits {
		edit(m)
	}
	return m
}
