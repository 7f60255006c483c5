package server

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/route"
)

func id(n int) edit {
	return sys(func(p *rmqv2.SystemProperties) { p.MessageId = fmt.Sprint("id-", n) })
}

// TestSendStores looks at what the broker gets and what the client gets back.
func TestSendStores(t *testing.T) {
	w := newWorld(t, nil)
	u := newUnary(t, &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{
		plain(id(1), property("colour", "blue"), keys("k1", "k2"), sys(func(p *rmqv2.SystemProperties) {
			p.BornTimestamp = timestamppb.New(testNow.Add(-time.Second))
			p.QueueId, p.QueueOffset, p.StoreHost, p.ReceiptHandle = 3, proto.Int64(7), "elsewhere", new("h")
			p.BodyDigest = &rmqv2.Digest{Type: rmqv2.DigestType_MD5, Checksum: "wrong"}
			p.DeliveryAttempt, p.TraceContext, p.BodyEncoding = proto.Int32(9), new("trace"), rmqv2.Encoding_GZIP
		})),
		plain(id(2), func(m *rmqv2.Message) { m.Body = []byte{0, 255} }, sys(func(p *rmqv2.SystemProperties) {
			p.Tag, p.BornHost, p.BodyEncoding, p.MessageType = nil, "", 9, rmqv2.MessageType_FIFO
		})),
	}})
	u.deadline = testNow.Add(3 * time.Second)
	w.SendMessage(u)
	r := &rmqv2.SendMessageResponse{}
	u.into(t, r)
	want := &rmqv2.SendMessageResponse{Status: &rmqv2.Status{Code: rmqv2.Code_OK, Message: "OK"}}
	for i := range 2 {
		name := fmt.Sprint("id-", i+1)
		want.Entries = append(want.Entries, &rmqv2.SendResultEntry{
			Status: &rmqv2.Status{Code: rmqv2.Code_OK, Message: "OK"}, MessageId: name, TransactionId: name, Offset: int64(i),
		})
	}
	if !proto.Equal(r, want) {
		t.Errorf("reply is %v", r)
	}

	got := w.brokers[1].sent[0]
	if got.Topic != 1 || got.Epoch != 10 || !got.Deadline.Equal(u.deadline) || len(got.Messages) != 2 {
		t.Fatalf("request to the broker is %+v", got)
	}
	first, second := got.Messages[0], got.Messages[1]
	if first.Queue != brokerapi.AnyQueue || first.Type != brokerapi.Normal || first.TagHash != brokerapi.HashTag([]byte("tag")) ||
		first.GroupHash != 0 || first.Digest != md5.Sum([]byte("body")) || string(first.ID) != "id-1" || string(first.Body) != "body" {
		t.Errorf("first message is %+v", first)
	}
	if second.TagHash != 0 || second.Digest != md5.Sum([]byte{0, 255}) || !bytes.Equal(second.Body, []byte{0, 255}) {
		t.Errorf("second message is %+v", second)
	}
	compareStored(t, first.Sys, &rmqv2.SystemProperties{
		Tag: new("tag"), Keys: []string{"k1", "k2"}, MessageId: "id-1", BodyEncoding: rmqv2.Encoding_GZIP,
		MessageType: rmqv2.MessageType_NORMAL, BornTimestamp: timestamppb.New(testNow.Add(-time.Second)), BornHost: "sender",
		TraceContext: new("trace"),
	})
	compareStored(t, second.Sys, &rmqv2.SystemProperties{
		MessageId: "id-2", BodyEncoding: rmqv2.Encoding_IDENTITY, MessageType: rmqv2.MessageType_NORMAL,
		BornTimestamp: timestamppb.New(testNow), BornHost: "192.0.2.7:4711",
	})
	user := &rmqv2.Message{}
	if err := proto.Unmarshal(first.User, user); err != nil || user.GetUserProperties()["colour"] != "blue" || len(second.User) != 0 {
		t.Errorf("user properties are %v and %q: %v", user.GetUserProperties(), second.User, err)
	}
}

func compareStored(t *testing.T, stored []byte, want *rmqv2.SystemProperties) {
	t.Helper()
	got := &rmqv2.SystemProperties{}
	if err := proto.Unmarshal(stored, got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("stored system properties\n got %v\nwant %v", got, want)
	}
}

func TestSendNeedsAClientID(t *testing.T) {
	for _, name := range []string{"", "   "} {
		w, u := newWorld(t, nil), newUnary(t, &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{plain()}})
		u.headers[headerClientID] = name
		w.SendMessage(u)
		r := &rmqv2.SendMessageResponse{}
		if u.into(t, r); r.GetStatus().GetCode() != rmqv2.Code_CLIENT_ID_REQUIRED {
			t.Errorf("client id %q: %v", name, r)
		}
	}
}

func TestSendOfGarbageIsAGRPCError(t *testing.T) {
	w := newWorld(t, nil)
	for _, b := range []string{"\xff\xff\xff\xff", "\x0a\x05abc", "\x0a\x04\x0a\x02\x12\x09"} {
		u := newUnary(t, &rmqv2.SendMessageRequest{})
		u.request = []byte(b)
		w.SendMessage(u)
		if <-u.done; u.code != call.InvalidArgument || u.text == "" {
			t.Errorf("%q: code %d", b, u.code)
		}
	}
}

// TestSpread sends plain messages to a topic with 3 queues on one shard and 1 on the other.
func TestSpread(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 1000 {
		w.send(t, join(to("spread"), id(i)))
	}
	if a, b := len(w.brokers[1].sent), len(w.brokers[2].sent); a < 700 || a > 800 || a+b != 1000 {
		t.Errorf("shards got %d and %d of 1000", a, b)
	}
}

// TestShardsThatCannot are skipped as long as nothing was written.
func TestShardsThatCannot(t *testing.T) {
	for _, tc := range []struct {
		name   string
		break1 func(*world)
		want   rmqv2.Code
	}{
		{"no master", func(w *world) { w.table.Apply(route.Update{Shards: []route.Shard{{ID: 1, Name: "alpha"}}}) }, rmqv2.Code_OK},
		{"not heard of", func(w *world) {
			w.table.Apply(route.Update{Shards: []route.Shard{{ID: 1, Name: "alpha", HasMaster: true}}})
		}, rmqv2.Code_OK},
		{"no connection", func(w *world) { delete(w.brokers, 1) }, rmqv2.Code_OK},
		{"draining", func(w *world) { w.brokers[1].fail = mqerr.New(mqerr.Draining, "leaving") }, rmqv2.Code_OK},
		{"disk full", func(w *world) { w.brokers[1].fail = mqerr.New(mqerr.DiskFull, "90 %%") }, rmqv2.Code_OK},
		{"unknown outcome", func(w *world) { w.brokers[1].fail = mqerr.New(mqerr.UnknownOutcome, "cut off") }, rmqv2.Code_PROXY_TIMEOUT},
		{"internal", func(w *world) { w.brokers[1].fail = mqerr.New(mqerr.Internal, "secret") }, rmqv2.Code_INTERNAL_SERVER_ERROR},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil)
			tc.break1(w)
			topic := w.table.Load().Topic([]byte("spread"))
			for i := range 8 {
				want := tc.want
				if topic.Placements[ranked(topic, fmt.Append(nil, "id-", i), 0)].Shard != 1 {
					want = rmqv2.Code_OK
				}
				if r := w.send(t, join(to("spread"), id(i))); r.GetStatus().GetCode() != want {
					t.Errorf("message %d: %v, want %v", i, r, want)
				}
			}
		})
	}
	silent := newWorld(t, nil)
	silent.table.Apply(route.Update{Shards: []route.Shard{{ID: 1, Name: "alpha", HasMaster: true}, {ID: 2, Name: "beta", HasMaster: true}}})
	for range 4 {
		if r := silent.send(t, to("spread")); r.GetStatus().GetCode() != rmqv2.Code_OK {
			t.Errorf("no shard was heard of, but both serve: %v", r)
		}
	}
	w := newWorld(t, nil)
	for _, b := range w.brokers {
		b.fail = mqerr.New(mqerr.DiskFull, "disk is 90 %% full")
	}
	r := w.send(t, to("spread"))
	if r.GetStatus().GetCode() != rmqv2.Code_TOO_MANY_REQUESTS || r.GetStatus().GetMessage() != "disk is 90 % full (retry after 5000 ms)" {
		t.Errorf("no shard can: %v", r)
	}
	if a, b := len(w.brokers[1].sent), len(w.brokers[2].sent); a != 1 || b != 1 {
		t.Errorf("shards were asked %d and %d times", a, b)
	}
}

// TestHomeOfMessageID: the first choice of an id never changes; while it is away for a moment the send waits
// for it, and goes elsewhere only then.
func TestHomeOfMessageID(t *testing.T) {
	w := newWorld(t, nil)
	topic := w.table.Load().Topic([]byte("spread"))
	for i := range 200 {
		name := fmt.Append(nil, "id-", i)
		if a, b := ranked(topic, name, 0), ranked(topic, name, 1); a == b || a != ranked(topic, name, 0) {
			t.Fatalf("choices of %s: %d, %d", name, a, b)
		}
	}
	n := 0
	for topic.Placements[ranked(topic, fmt.Append(nil, "id-", n), 0)].Shard != 1 {
		n++
	}
	w.brokers[1].fail = mqerr.New(mqerr.NotLeader, "a moment")
	if r := w.send(t, join(to("spread"), id(n))); r.GetStatus().GetCode() != rmqv2.Code_OK {
		t.Errorf("no second choice: %v", r)
	}
	if a, b := len(w.brokers[1].sent), len(w.brokers[2].sent); a != homeTries+1 || b != 1 {
		t.Errorf("shards were asked %d and %d times", a, b)
	}
}

func TestInternalErrorsKeepTheirTextToThemselves(t *testing.T) {
	w := newWorld(t, nil)
	w.brokers[1].fail = fmt.Errorf("secret")
	r := w.send(t, none)
	if r.GetStatus().GetCode() != rmqv2.Code_INTERNAL_SERVER_ERROR || r.GetStatus().GetMessage() != internalText || !w.log.has("secret") {
		t.Errorf("answer is %v", r)
	}
}

// TestMessageGroupHasOneHome sends messages of many groups twice: a group's queue never changes, and
// all queues are used.
func TestMessageGroupHasOneHome(t *testing.T) {
	w := newWorld(t, nil)
	type queue struct {
		shard brokerapi.ShardID
		id    brokerapi.QueueID
	}
	homes, used := map[string]queue{}, map[queue]int{}
	for range 2 {
		for i := range 100 {
			name := fmt.Sprint("group-", i)
			before := map[brokerapi.ShardID]int{1: len(w.brokers[1].sent), 2: len(w.brokers[2].sent)}
			w.send(t, join(group(name), to("spread")))
			var home queue
			for shard, n := range before {
				if sent := w.brokers[shard].sent; len(sent) > n {
					home = queue{shard, sent[n].Messages[0].Queue}
				}
			}
			if old, ok := homes[name]; ok && old != home {
				t.Fatalf("%s moved from %v to %v", name, old, home)
			}
			homes[name] = home
			used[home]++
		}
	}
	if len(used) != 4 {
		t.Errorf("queues used: %v", used)
	}
	// The home is down: refused, not stored elsewhere.
	delete(w.brokers, 2)
	for name, home := range homes {
		want := rmqv2.Code_OK
		if home.shard == 2 {
			want = rmqv2.Code_HA_NOT_AVAILABLE
		}
		if r := w.send(t, join(group(name), to("spread"))); r.GetStatus().GetCode() != want {
			t.Fatalf("%s with home %v: %v", name, home, r)
		}
	}
}

func TestBatchWithGroupsOfDifferentShards(t *testing.T) {
	w := newWorld(t, nil)
	topic := w.table.Load().Topic([]byte("spread"))
	at := map[brokerapi.ShardID][]string{}
	for i := range 50 {
		name := fmt.Sprint("g", i)
		shard, _ := topic.HomeOf(brokerapi.HashGroup([]byte(name)))
		at[shard] = append(at[shard], name)
	}
	g := func(name string) edit { return join(group(name), to("spread")) }
	if r := w.send(t, g(at[1][0]), g(at[1][1]), to("spread")); r.GetStatus().GetCode() != rmqv2.Code_OK || len(r.GetEntries()) != 3 {
		t.Errorf("groups of one shard: %v", r)
	}
	if r := w.send(t, g(at[1][0]), g(at[2][0])); r.GetStatus().GetCode() != rmqv2.Code_BAD_REQUEST {
		t.Errorf("groups of two shards: %v", r)
	}
}

// testCreator makes topics.
type testCreator struct {
	table  *route.Table
	fail   error
	asked  []string
	limits route.Limits
}

func (c *testCreator) EnsureTopic(_ context.Context, name string) error {
	c.asked = append(c.asked, name)
	if c.fail == nil {
		c.table.Apply(route.Update{Topics: []route.Topic{{ID: 100, Name: name, Type: route.Mixed, Placements: []route.Placement{{Shard: 1, Queues: 8}}, Limits: c.limits}}})
	}
	return c.fail
}

func (c *testCreator) EnsureGroup(context.Context, string) error { return nil }

func TestTopicsAreMadeOnFirstUse(t *testing.T) {
	creator := &testCreator{}
	w := newWorld(t, func(o *Options) { o.Creator = creator; creator.table = o.Routes })
	if r := w.send(t, to("fresh")); r.GetStatus().GetCode() != rmqv2.Code_OK || w.brokers[1].sent[0].Topic != 100 {
		t.Errorf("send to a new topic: %v", r)
	}
	if r := w.send(t, to("%RETRY%g")); r.GetStatus().GetCode() != rmqv2.Code_TOPIC_NOT_FOUND {
		t.Errorf("retry topics are not made: %v", r)
	}
	creator.fail = mqerr.New(mqerr.Unavailable, "no controller")
	if r := w.send(t, to("another")); r.GetStatus().GetCode() != rmqv2.Code_HA_NOT_AVAILABLE {
		t.Errorf("no controller: %v", r)
	}
	if len(creator.asked) != 2 {
		t.Errorf("asked for %q", creator.asked)
	}
}

// TestAnswersInAnyOrder has many sends wait at the broker, which answers the last one first: pooled
// memory must not mix them up.
func TestAnswersInAnyOrder(t *testing.T) {
	w := newWorld(t, nil)
	w.brokers[1].later = make(chan func(), 100)
	for round := range 3 {
		var calls []*testUnary
		for i := range 50 {
			u := newUnary(t, &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{plain(id(100*round + i))}})
			calls = append(calls, u)
			w.SendMessage(u)
		}
		var answers []func()
		for range calls {
			answers = append([]func(){<-w.brokers[1].later}, answers...)
		}
		for _, answer := range answers {
			answer()
		}
		for i, u := range calls {
			r := &rmqv2.SendMessageResponse{}
			u.into(t, r)
			if got := r.GetEntries()[0].GetMessageId(); got != fmt.Sprint("id-", 100*round+i) {
				t.Fatalf("call %d of round %d got the answer of %s", i, round, got)
			}
		}
	}
}

// quietBroker answers at once and keeps nothing.
type quietBroker struct {
	brokerapi.Broker
	reply brokerapi.SendReply
}

func (b *quietBroker) Send(req *brokerapi.SendRequest, done func(*brokerapi.SendReply, error)) {
	done(&b.reply, nil)
}

type quietBrokers struct{ b *quietBroker }

func (b quietBrokers) Broker(brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	return b.b, 1, nil
}

// benchCall is a call.Unary that can be made again.
type benchCall struct {
	testUnary
	replies int
}

func (u *benchCall) Reply([]byte)           { u.replies++ }
func (u *benchCall) Fail(call.Code, string) {}

func newBench(t testing.TB) (*world, *benchCall) {
	w := newWorld(t, func(o *Options) {
		o.Brokers = quietBrokers{&quietBroker{reply: brokerapi.SendReply{Results: make([]brokerapi.SendResult, 1)}}}
	})
	u := newUnary(t, &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{plain(body(1024), property("colour", "blue"),
		sys(func(p *rmqv2.SystemProperties) { p.BornTimestamp = timestamppb.New(testNow) }))}})
	return w, &benchCall{testUnary: testUnary{ctx: u.ctx, headers: u.headers, request: u.request}}
}

// TestSendAllocates counts what a send of one message allocates in the handler: the reply.
func TestSendAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools")
	}
	w, u := newBench(t)
	n := testing.AllocsPerRun(200, func() { w.SendMessage(u) })
	if n > 1 || u.replies == 0 {
		t.Errorf("%v allocations, want 1", n)
	}
}

func BenchmarkSend(b *testing.B) {
	w, u := newBench(b)
	b.ReportAllocs()
	for b.Loop() {
		w.SendMessage(u)
	}
}
