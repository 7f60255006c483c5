package server

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/longpoll"
	"github.com/perigee-mq/perigee/proxy/route"
)

// memBroker is a broker in memory for one group on one topic: messages are ready, leased or done.
type memBroker struct {
	brokerapi.Broker // calls that no test makes panic

	shard brokerapi.ShardID
	polls *longpoll.Polls

	mu       sync.Mutex
	messages []*memMessage
	leases   brokerapi.LogPos
	armed    bool
	err      error // of every call
	pops     []brokerapi.PopRequest
	acks     []brokerapi.AckRequest
	changes  []brokerapi.ChangeRequest
	forwards int // that were asked for
	ended    []string
	unfreed  int    // replies that were not released
	slow     func() // runs before a pop is answered, on a goroutine of its own
}

type memMessage struct {
	brokerapi.Delivery
	state memState
}

type memState uint8

const (
	memReady memState = iota
	memLeased
	memDone
)

func (b *memBroker) store(bodies ...string) {
	b.mu.Lock()
	for _, body := range bodies {
		b.messages = append(b.messages, &memMessage{Delivery: brokerapi.Delivery{
			Queue: 3, Offset: brokerapi.QueueOffset(len(b.messages)), Type: brokerapi.Normal, Epoch: 4,
			StoreTime: 1_700_000_000_123, Body: []byte(body),
			Sys: mustMarshal(&rmqv2.SystemProperties{MessageId: "id-" + body, MessageType: rmqv2.MessageType_NORMAL}),
		}})
	}
	b.unlockAndTell()
}

// unlockAndTell tells the long polls what is ready, if they want to know.
func (b *memBroker) unlockAndTell() {
	count := 0
	for _, m := range b.messages {
		if m.state == memReady {
			count++
		}
	}
	tell := b.armed && count > 0
	if tell {
		b.armed = false
	}
	b.mu.Unlock()
	if tell {
		b.polls.Ready(b.shard, []brokerapi.Ready{{Topic: 1, Group: 2, Count: count}})
	}
}

func (b *memBroker) Pop(req *brokerapi.PopRequest, done func(*brokerapi.PopReply, error)) {
	b.mu.Lock()
	slow := b.slow
	b.mu.Unlock()
	if slow == nil {
		done(b.pop(req))
		return
	}
	go func() {
		slow()
		done(b.pop(req))
	}()
}

func (b *memBroker) pop(req *brokerapi.PopRequest) (*brokerapi.PopReply, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pops = append(b.pops, *req)
	if b.err != nil {
		return nil, b.err
	}
	var out []brokerapi.Delivery
	more := false
	b.leases += 100
	for _, m := range b.messages {
		if m.state != memReady {
			continue
		}
		if len(out) == req.Max {
			more = true
			break
		}
		m.state, m.Lease, m.Attempt = memLeased, b.leases, m.Attempt+1
		out = append(out, m.Delivery)
	}
	b.armed = req.Arm && !more
	b.unfreed++
	reply := brokerapi.NewPopReply(out, func() {
		b.mu.Lock()
		b.unfreed--
		b.mu.Unlock()
	})
	reply.More = more
	return reply, nil
}

func (b *memBroker) each(handles []brokerapi.Handle, f func(*memMessage)) []error {
	errs := make([]error, len(handles))
	for i, h := range handles {
		m := b.messages[h.Offset]
		if m.Lease != h.Lease || h.Queue != m.Queue {
			errs[i] = mqerr.New(mqerr.HandleInvalid, "not the latest lease")
			continue
		}
		f(m)
	}
	return errs
}

func (b *memBroker) Ack(req *brokerapi.AckRequest, done func(*brokerapi.AckReply, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acks = append(b.acks, *req)
	if b.err != nil {
		done(nil, b.err)
		return
	}
	done(&brokerapi.AckReply{Errors: b.each(req.Handles, func(m *memMessage) { m.state = memDone })}, nil)
}

func (b *memBroker) Change(req *brokerapi.ChangeRequest, done func(*brokerapi.ChangeReply, error)) {
	b.mu.Lock()
	b.changes = append(b.changes, *req)
	if b.err != nil {
		defer b.mu.Unlock()
		done(nil, b.err)
		return
	}
	errs := b.each(req.Handles, func(m *memMessage) {
		if req.Invisible == 0 {
			m.state = memReady
		}
		if req.Mode == brokerapi.ChangeKeep {
			m.Attempt--
		}
	})
	b.unlockAndTell()
	done(&brokerapi.ChangeReply{Errors: errs}, nil)
}

func (b *memBroker) EndSession(_ context.Context, client string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = append(b.ended, client)
	return nil
}

func (b *memBroker) Alive(context.Context, []string) error { return nil }

func (b *memBroker) count(s memState) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, m := range b.messages {
		if m.state == s {
			n++
		}
	}
	return n
}

// site is a proxy with two brokers in memory. Topic t has queues at both, topic one at the first.
type site struct {
	*Server
	brokers map[brokerapi.ShardID]*memBroker
}

func (s *site) Broker(shard brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	if b, ok := s.brokers[shard]; ok {
		return b, 9, nil
	}
	return nil, 0, mqerr.New(mqerr.Unavailable, "no such shard")
}

func newSite(change ...func(*Options)) *site {
	s := &site{brokers: map[brokerapi.ShardID]*memBroker{1: {shard: 1}, 2: {shard: 2}}}
	o := Options{Routes: &route.Table{}, Brokers: s, Clients: clients.New(clients.Options{}, time.Now())}
	o.Polls = longpoll.New(longpoll.Options{Brokers: s})
	for _, b := range s.brokers {
		b.polls = o.Polls
	}
	at := func(shard brokerapi.ShardID) route.Placement { return route.Placement{Shard: shard, Queues: 4} }
	o.Routes.Apply(route.Update{
		Full: true,
		Topics: []route.Topic{
			{ID: 1, Name: "one", Type: route.Normal, Placements: []route.Placement{at(1)}},
			{ID: 5, Name: "two", Type: route.Normal, Placements: []route.Placement{at(1), at(2)}},
			{ID: 6, Name: "quiet", Type: route.Normal, Placements: []route.Placement{at(2)}},
			{ID: 7, Name: "empty", Type: route.Normal},
		},
		Groups: []route.Group{
			{ID: 2, Name: "g"},
			{ID: 3, Name: "other"},
			{ID: 4, Name: "ordered", Ordered: true},
			{ID: 8, Name: "few", MaxAttempts: 2, Backoff: []time.Duration{1500 * time.Millisecond, time.Minute}},
			{ID: 9, Name: "lite", LiteTopic: "one"},
		},
		Shards: []route.Shard{{ID: 1, Name: "a", Address: "10.0.0.1:10911", HasMaster: true}, {ID: 2, Name: "b", HasMaster: true}},
		Keys:   []route.HandleKey{{ID: 1, Key: [16]byte{1, 2, 3}}},
	})
	for _, f := range change {
		f(&o)
	}
	s.Server = New(o)
	return s
}

func mustMarshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// fakeInfo is what a transport knows about a call.
type fakeInfo struct {
	ctx     context.Context
	headers map[string]string
}

func newInfo(ctx context.Context, client string) fakeInfo {
	return fakeInfo{ctx, map[string]string{headerClientID: client, headerVersion: "5.1.3", headerLanguage: "GO"}}
}

func (i fakeInfo) Context() context.Context    { return i.ctx }
func (i fakeInfo) Deadline() (time.Time, bool) { return i.ctx.Deadline() }
func (i fakeInfo) Header(name string) string   { return i.headers[name] }
func (i fakeInfo) Peer() string                { return "127.0.0.1:5" }
func (i fakeInfo) RetryAfter(time.Duration)    {}
func (i fakeInfo) Local() string               { return "127.0.0.1:8081" }

// fakeUnary is a unary call that waits for its completion.
type fakeUnary struct {
	fakeInfo
	req  []byte
	once sync.Once
	done chan struct{}
	msg  []byte
	code call.Code
}

func (u *fakeUnary) Request() []byte { return u.req }
func (u *fakeUnary) Reply(msg []byte) {
	u.once.Do(func() { u.msg = msg; close(u.done) })
}

func (u *fakeUnary) Fail(code call.Code, _ string) {
	u.once.Do(func() { u.code = code; close(u.done) })
}

// ask makes a unary call with the client id "c" and decodes the reply.
func ask[R proto.Message](t *testing.T, handler func(call.Unary), req proto.Message, reply R, change ...func(*fakeInfo)) R {
	t.Helper()
	info := newInfo(t.Context(), "c")
	for _, f := range change {
		f(&info)
	}
	u := &fakeUnary{fakeInfo: info, req: mustMarshal(req), done: make(chan struct{})}
	handler(u)
	<-u.done
	require.Equal(t, call.OK, u.code)
	require.NoError(t, proto.Unmarshal(u.msg, reply))
	return reply
}

func noClient(i *fakeInfo) { i.headers[headerClientID] = " " }

// fakeStream is a ReceiveMessage call.
type fakeStream struct {
	fakeInfo
	req    []byte
	accept func(n int) error // decides about the nth message sent, from 0
	done   chan struct{}

	mu    sync.Mutex
	sent  []*rmqv2.ReceiveMessageResponse
	ended bool
	code  call.Code
	start time.Time
	took  time.Duration
}

func (s *fakeStream) Request() []byte { return s.req }

func (s *fakeStream) Send(msg []byte) error {
	s.mu.Lock()
	n, ended := len(s.sent), s.ended
	s.mu.Unlock()
	if ended {
		return io.ErrClosedPipe
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if s.accept != nil {
		if err := s.accept(n); err != nil {
			return err
		}
	}
	var r rmqv2.ReceiveMessageResponse
	if err := proto.Unmarshal(msg, &r); err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, &r)
	return nil
}

func (s *fakeStream) End() { s.Fail(call.OK, "") }

func (s *fakeStream) Fail(code call.Code, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended, s.code, s.took = true, code, time.Since(s.start)
		close(s.done)
	}
}

// order tells the kinds of what was sent.
func (s *fakeStream) order() (kinds []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.sent {
		switch r.GetContent().(type) {
		case *rmqv2.ReceiveMessageResponse_Status:
			kinds = append(kinds, "status")
		case *rmqv2.ReceiveMessageResponse_Message:
			kinds = append(kinds, "message")
		case *rmqv2.ReceiveMessageResponse_DeliveryTimestamp:
			kinds = append(kinds, "time")
		}
	}
	return kinds
}

func (s *fakeStream) status() rmqv2.Code {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sent) == 0 {
		return -1
	}
	return s.sent[0].GetStatus().GetCode()
}

func (s *fakeStream) messages() (all []*rmqv2.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.sent {
		if m := r.GetMessage(); m != nil {
			all = append(all, m)
		}
	}
	return all
}
