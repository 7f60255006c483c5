package server

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/receipt"
)

// held receives n messages of topic one.
func (s *site) held(t *testing.T, n int) []*rmqv2.Message {
	t.Helper()
	for range n {
		s.brokers[1].store("x")
	}
	st := s.take(t, receiveRequest())
	require.Len(t, st.messages(), n)
	return st.messages()
}

func handleText(m *rmqv2.Message) string { return m.GetSystemProperties().GetReceiptHandle() }

// handleAt is a handle of topic two that one of the brokers gave out.
func (s *site) handleAt(shard brokerapi.ShardID, offset brokerapi.QueueOffset) string {
	key := s.o.Routes.Load().HandleKeys()[0]
	h := receipt.Handle{Topic: 5, Group: 2, Shard: shard, Handle: brokerapi.Handle{Queue: 3, Offset: offset, Lease: 100}}
	return string(h.Append(nil, receipt.KeyID(key.ID), receipt.NewKey(key.Key)))
}

func ackRequest(topic, group string, handles ...string) *rmqv2.AckMessageRequest {
	req := &rmqv2.AckMessageRequest{Topic: res(topic), Group: res(group)}
	for i, h := range handles {
		req.Entries = append(req.Entries, &rmqv2.AckMessageEntry{MessageId: strings.Repeat("m", i), ReceiptHandle: h})
	}
	return req
}

func (s *site) ack(t *testing.T, req *rmqv2.AckMessageRequest) *rmqv2.AckMessageResponse {
	t.Helper()
	return ask(t, s.AckMessage, req, &rmqv2.AckMessageResponse{})
}

// entryCodes checks that the entries are those of the request and returns their codes.
func entryCodes(t *testing.T, req *rmqv2.AckMessageRequest, resp *rmqv2.AckMessageResponse) (codes []rmqv2.Code) {
	t.Helper()
	require.Len(t, resp.GetEntries(), len(req.GetEntries()))
	for i, e := range resp.GetEntries() {
		require.Equal(t, req.Entries[i].MessageId, e.GetMessageId())
		require.Equal(t, req.Entries[i].ReceiptHandle, e.GetReceiptHandle())
		codes = append(codes, e.GetStatus().GetCode())
	}
	return codes
}

func TestAckEndsMessages(t *testing.T) {
	s := newSite()
	m := s.held(t, 3)
	req := ackRequest("one", "g", handleText(m[0]), handleText(m[1]), handleText(m[2]))
	for range 2 { // a repeated ack is an ack
		resp := s.ack(t, req)
		require.Equal(t, rmqv2.Code_OK, resp.GetStatus().GetCode())
		require.Equal(t, []rmqv2.Code{rmqv2.Code_OK, rmqv2.Code_OK, rmqv2.Code_OK}, entryCodes(t, req, resp))
		require.Equal(t, 3, s.brokers[1].count(memDone))
	}
	require.Len(t, s.brokers[1].acks[0].Handles, 3, "one request for all")
}

// TestAckThroughAnotherProxy: nothing about a message lives in the proxy that delivered it.
func TestAckThroughAnotherProxy(t *testing.T) {
	s, other := newSite(), newSite()
	other.brokers = s.brokers
	m := s.held(t, 1)
	resp := other.ack(t, ackRequest("one", "g", handleText(m[0])))
	require.Equal(t, rmqv2.Code_OK, resp.GetStatus().GetCode())
	require.Equal(t, 1, s.brokers[1].count(memDone))
}

// TestBadHandlesAreInvalid, whatever is wrong with them, and end no message.
func TestBadHandlesAreInvalid(t *testing.T) {
	s := newSite()
	h := handleText(s.held(t, 1)[0])
	flipped := []byte(h)
	flipped[len(h)/2] ^= 1
	for name, req := range map[string]*rmqv2.AckMessageRequest{
		"garbage":       ackRequest("one", "g", "not-a-handle"),
		"empty":         ackRequest("one", "g", ""),
		"half":          ackRequest("one", "g", h[:len(h)/2]),
		"shorter":       ackRequest("one", "g", h[:len(h)-1]),
		"space before":  ackRequest("one", "g", " "+h),
		"space after":   ackRequest("one", "g", h+" "),
		"flipped":       ackRequest("one", "g", string(flipped)),
		"other group":   ackRequest("one", "other", h),
		"missing group": ackRequest("one", "nobody", h),
		"other topic":   ackRequest("quiet", "g", h),
		"missing topic": ackRequest("nowhere", "g", h),
	} {
		resp := s.ack(t, req)
		require.Equal(t, rmqv2.Code_INVALID_RECEIPT_HANDLE, resp.GetStatus().GetCode(), name)
		require.Equal(t, []rmqv2.Code{rmqv2.Code_INVALID_RECEIPT_HANDLE}, entryCodes(t, req, resp), name)

		change := ask(t, s.ChangeInvisibleDuration, &rmqv2.ChangeInvisibleDurationRequest{
			Topic: req.Topic, Group: req.Group, ReceiptHandle: req.Entries[0].ReceiptHandle, InvisibleDuration: durationpb.New(time.Second),
		}, &rmqv2.ChangeInvisibleDurationResponse{})
		require.Equal(t, rmqv2.Code_INVALID_RECEIPT_HANDLE, change.GetStatus().GetCode(), name)
		require.Equal(t, req.Entries[0].ReceiptHandle, change.GetReceiptHandle(), name)
	}
	require.Equal(t, 1, s.brokers[1].count(memLeased))
	require.Empty(t, s.brokers[1].acks)
	require.Empty(t, s.brokers[1].changes)
}

func TestAckMixedResults(t *testing.T) {
	s := newSite()
	m := s.held(t, 2)
	req := ackRequest("one", "g", handleText(m[0]), "not-a-handle", handleText(m[1]))
	resp := s.ack(t, req)
	require.Equal(t, rmqv2.Code_MULTIPLE_RESULTS, resp.GetStatus().GetCode())
	require.Equal(t, []rmqv2.Code{rmqv2.Code_OK, rmqv2.Code_INVALID_RECEIPT_HANDLE, rmqv2.Code_OK}, entryCodes(t, req, resp))
}

// TestAckOfOldLeaseIsInvalid: the broker says so.
func TestAckOfOldLeaseIsInvalid(t *testing.T) {
	s := newSite()
	first := s.held(t, 1)[0]
	change := s.change1(t, handleText(first), 0, false)
	require.Equal(t, rmqv2.Code_OK, change.GetStatus().GetCode())
	again := s.take(t, receiveRequest()).messages()[0]
	require.Equal(t, int32(2), again.GetSystemProperties().GetDeliveryAttempt())
	require.Equal(t, rmqv2.Code_INVALID_RECEIPT_HANDLE, s.ack(t, ackRequest("one", "g", handleText(first))).GetStatus().GetCode())
	require.Equal(t, rmqv2.Code_OK, s.ack(t, ackRequest("one", "g", handleText(again))).GetStatus().GetCode())
}

// TestAckGoesToEachShard, and one that is away spoils only its own entries.
func TestAckGoesToEachShard(t *testing.T) {
	s := newSite()
	for _, b := range s.brokers {
		b.store("x", "y")
		_, _ = b.pop(&brokerapi.PopRequest{Max: 2})
	}
	req := ackRequest("two", "g", s.handleAt(1, 0), s.handleAt(2, 0), s.handleAt(77, 0), s.handleAt(2, 1), s.handleAt(1, 1))
	resp := s.ack(t, req)
	require.Equal(t, rmqv2.Code_MULTIPLE_RESULTS, resp.GetStatus().GetCode())
	ok, away := rmqv2.Code_OK, rmqv2.Code_HA_NOT_AVAILABLE
	require.Equal(t, []rmqv2.Code{ok, ok, away, ok, ok}, entryCodes(t, req, resp))
	for _, b := range s.brokers {
		require.Equal(t, 2, b.count(memDone))
		require.Len(t, b.acks, 1)
		require.Equal(t, brokerapi.Epoch(9), b.acks[0].Epoch)
	}
	s.brokers[2].err = mqerr.New(mqerr.UnknownOutcome, "link broke")
	resp = s.ack(t, req)
	require.Equal(t, []rmqv2.Code{ok, rmqv2.Code_PROXY_TIMEOUT, away, rmqv2.Code_PROXY_TIMEOUT, ok}, entryCodes(t, req, resp))
}

func TestAckRefuses(t *testing.T) {
	s := newSite()
	resp := func(req *rmqv2.AckMessageRequest, change ...func(*fakeInfo)) rmqv2.Code {
		r := ask(t, s.AckMessage, req, &rmqv2.AckMessageResponse{}, change...)
		require.Empty(t, r.GetEntries())
		return r.GetStatus().GetCode()
	}
	require.Equal(t, rmqv2.Code_ILLEGAL_TOPIC, resp(&rmqv2.AckMessageRequest{}))
	require.Equal(t, rmqv2.Code_ILLEGAL_CONSUMER_GROUP, resp(&rmqv2.AckMessageRequest{Topic: res("one"), Entries: []*rmqv2.AckMessageEntry{{}}}))
	require.Equal(t, rmqv2.Code_BAD_REQUEST, resp(ackRequest("one", "g")))
	require.Equal(t, rmqv2.Code_CLIENT_ID_REQUIRED, resp(ackRequest("one", "g", "h"), noClient))
}

func TestGarbageRequestsFail(t *testing.T) {
	s := newSite()
	for name, handler := range map[string]func(call.Unary){
		"ack": s.AckMessage, "change": s.ChangeInvisibleDuration, "heartbeat": s.Heartbeat, "terminate": s.NotifyClientTermination,
	} {
		u := &fakeUnary{fakeInfo: newInfo(t.Context(), "c"), req: []byte("garbage"), done: make(chan struct{})}
		handler(u)
		<-u.done
		require.Equal(t, call.InvalidArgument, u.code, name)
	}
}

// change1 changes the invisible time of one message of topic one.
func (s *site) change1(t *testing.T, handle string, d time.Duration, suspend bool) *rmqv2.ChangeInvisibleDurationResponse {
	t.Helper()
	return ask(t, s.ChangeInvisibleDuration, &rmqv2.ChangeInvisibleDurationRequest{
		Topic: res("one"), Group: res("g"), ReceiptHandle: handle, InvisibleDuration: durationpb.New(d), Suspend: &suspend,
	}, &rmqv2.ChangeInvisibleDurationResponse{})
}

func TestChangeInvisibleDuration(t *testing.T) {
	s := newSite()
	h := handleText(s.held(t, 1)[0])
	for _, d := range []time.Duration{40 * time.Second, time.Millisecond, 12 * time.Hour} {
		resp := s.change1(t, h, d, false)
		require.Equal(t, rmqv2.Code_OK, resp.GetStatus().GetCode())
		last := s.brokers[1].changes[len(s.brokers[1].changes)-1]
		require.Equal(t, d, last.Invisible)
		require.Equal(t, brokerapi.ChangeLease, last.Mode)
		require.Equal(t, rmqv2.Code_OK, s.change1(t, resp.GetReceiptHandle(), d, false).GetStatus().GetCode())
	}
	s.change1(t, h, time.Second, true)
	require.Equal(t, brokerapi.ChangeKeep, s.brokers[1].changes[len(s.brokers[1].changes)-1].Mode)
	require.Equal(t, rmqv2.Code_OK, s.ack(t, ackRequest("one", "g", h)).GetStatus().GetCode())
}

// TestRefusedChangeEchoesTheHandle: clients overwrite theirs with what they get.
func TestRefusedChangeEchoesTheHandle(t *testing.T) {
	s := newSite()
	h := handleText(s.held(t, 1)[0])
	for name, c := range map[string]struct {
		edit func(*rmqv2.ChangeInvisibleDurationRequest)
		want rmqv2.Code
	}{
		"too long":      {func(r *rmqv2.ChangeInvisibleDurationRequest) { r.InvisibleDuration = durationpb.New(12*time.Hour + 1) }, rmqv2.Code_ILLEGAL_INVISIBLE_TIME},
		"negative":      {func(r *rmqv2.ChangeInvisibleDurationRequest) { r.InvisibleDuration = durationpb.New(-1) }, rmqv2.Code_ILLEGAL_INVISIBLE_TIME},
		"illegal group": {func(r *rmqv2.ChangeInvisibleDurationRequest) { r.Group = res("conf g1") }, rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		"no group":      {func(r *rmqv2.ChangeInvisibleDurationRequest) { r.Group = nil }, rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		"no topic":      {func(r *rmqv2.ChangeInvisibleDurationRequest) { r.Topic = nil }, rmqv2.Code_ILLEGAL_TOPIC},
	} {
		req := &rmqv2.ChangeInvisibleDurationRequest{Topic: res("one"), Group: res("g"), ReceiptHandle: h, InvisibleDuration: durationpb.New(time.Second)}
		c.edit(req)
		resp := ask(t, s.ChangeInvisibleDuration, req, &rmqv2.ChangeInvisibleDurationResponse{})
		require.Equal(t, c.want, resp.GetStatus().GetCode(), name)
		require.Equal(t, h, resp.GetReceiptHandle(), name)
	}
	resp := ask(t, s.ChangeInvisibleDuration, &rmqv2.ChangeInvisibleDurationRequest{ReceiptHandle: h}, &rmqv2.ChangeInvisibleDurationResponse{}, noClient)
	require.Equal(t, rmqv2.Code_CLIENT_ID_REQUIRED, resp.GetStatus().GetCode())
	require.Equal(t, h, resp.GetReceiptHandle())
	s.brokers[1].err = mqerr.New(mqerr.Unavailable, "away")
	resp = s.change1(t, h, time.Second, false)
	require.Equal(t, rmqv2.Code_HA_NOT_AVAILABLE, resp.GetStatus().GetCode())
	require.Equal(t, h, resp.GetReceiptHandle())
	require.Equal(t, 1, s.brokers[1].count(memLeased))
}

// TestChangeWithoutTimeIsNow: Node gives a message back so.
func TestChangeWithoutTimeIsNow(t *testing.T) {
	s := newSite()
	h := handleText(s.held(t, 1)[0])
	resp := ask(t, s.ChangeInvisibleDuration, &rmqv2.ChangeInvisibleDurationRequest{Topic: res("one"), Group: res("g"), ReceiptHandle: h}, &rmqv2.ChangeInvisibleDurationResponse{})
	require.Equal(t, rmqv2.Code_OK, resp.GetStatus().GetCode())
	require.Equal(t, 1, s.brokers[1].count(memReady))
}
