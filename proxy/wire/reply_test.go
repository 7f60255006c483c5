package wire

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/testseed"
)

// readBack decodes what we wrote and compares it with what was meant.
func readBack(t *testing.T, what string, b []byte, want proto.Message) {
	t.Helper()
	got := want.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, got); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("%s\n got %v\nwant %v", what, got, want)
	}
}

func status(code rmqv2.Code, text string) *rmqv2.Status {
	return &rmqv2.Status{Code: code, Message: text}
}

func TestReplies(t *testing.T) {
	for _, offset := range []int64{0, 1, 1 << 40, -1} {
		for _, recall := range []string{"", "handle"} {
			b := AppendStatus(nil, 30000, "mixed")
			b = AppendSendEntry(b, SendEntry{
				Code: 20000, Text: "OK", MessageID: []byte("id"), TransactionID: []byte("tx"), Offset: offset, RecallHandle: []byte(recall),
			})
			b = AppendSendEntry(b, SendEntry{Code: 50001})
			readBack(t, "send", b, &rmqv2.SendMessageResponse{
				Status: status(30000, "mixed"),
				Entries: []*rmqv2.SendResultEntry{
					{Status: status(20000, "OK"), MessageId: "id", TransactionId: "tx", Offset: offset, RecallHandle: recall},
					{Status: status(50001, "")},
				},
			})
		}
	}
	b := AppendAckEntry(AppendStatus(nil, 20000, "OK"), []byte("id"), []byte("h"), 40013, "stale")
	readBack(t, "ack", AppendAckEntry(b, nil, nil, 20000, ""), &rmqv2.AckMessageResponse{
		Status: status(20000, "OK"),
		Entries: []*rmqv2.AckMessageResultEntry{
			{MessageId: "id", ReceiptHandle: "h", Status: status(40013, "stale")}, {Status: status(20000, "")},
		},
	})
	readBack(t, "change", AppendHandle(AppendStatus(nil, 20000, "OK"), []byte("h")),
		&rmqv2.ChangeInvisibleDurationResponse{Status: status(20000, "OK"), ReceiptHandle: "h"})
	readBack(t, "receive status", AppendStatus(nil, 40401, "none"), &rmqv2.ReceiveMessageResponse{
		Content: &rmqv2.ReceiveMessageResponse_Status{Status: status(40401, "none")},
	})
	for _, ms := range []int64{0, 1, 999, 1000, 1_700_000_000_123, -1, -1500} {
		readBack(t, "end of a receive", AppendDeliveryTimestamp(nil, ms), &rmqv2.ReceiveMessageResponse{
			Content: &rmqv2.ReceiveMessageResponse_DeliveryTimestamp{DeliveryTimestamp: timestamppb.New(time.UnixMilli(ms))},
		})
	}
}

func TestQueues(t *testing.T) {
	endpoints := AppendEndpoints(nil, SchemeIPv6, "::1", 8081)
	for _, id := range []int32{-1, 0, 7} {
		q := Queue{Topic: appendText(nil, 2, "t"), ID: id, Permission: 4, Broker: "a", Endpoints: endpoints, Accepts: []byte{1, 2}}
		want := &rmqv2.MessageQueue{
			Topic: &rmqv2.Resource{Name: "t"}, Id: id, Permission: rmqv2.Permission_READ_WRITE,
			Broker: &rmqv2.Broker{Name: "a", Endpoints: &rmqv2.Endpoints{
				Scheme: rmqv2.AddressScheme_IPv6, Addresses: []*rmqv2.Address{{Host: "::1", Port: 8081}},
			}},
			AcceptMessageTypes: []rmqv2.MessageType{1, 2},
		}
		readBack(t, "route", AppendRouteQueue(nil, &q), &rmqv2.QueryRouteResponse{MessageQueues: []*rmqv2.MessageQueue{want}})
		q.Accepts, want.AcceptMessageTypes = nil, nil
		readBack(t, "assignment", AppendAssignment(nil, &q), &rmqv2.QueryAssignmentResponse{Assignments: []*rmqv2.Assignment{{MessageQueue: want}}})
	}
}

// TestDelivery sends random messages through storing and delivery: what the sender may set arrives as
// sent, the rest is the server's.
func TestDelivery(t *testing.T) {
	seed := testseed.First(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		sent := &rmqv2.SendMessageRequest{}
		sent.Messages = append(sent.Messages, randomMessage(rng, &rmqv2.Message{}).(*rmqv2.Message))
		b, err := proto.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		var q SendRequest
		if err := q.Decode(b); err != nil {
			t.Fatal(err)
		}
		m := &q.Messages[0]
		d := brokerapi.Delivery{
			Queue: brokerapi.QueueID(rng.IntN(3)), Offset: brokerapi.QueueOffset(rng.Int64N(1 << 40)), Attempt: int32(rng.IntN(20)),
			StoreTime: 1_700_000_000_123, Digest: md5.Sum(m.Body), User: m.User, Body: m.Body,
			Sys: m.AppendSystem(nil, System{Type: 1, Encoding: 1, BornMS: 5000, BornHost: "peer"}),
		}
		if rng.IntN(3) == 0 {
			d.Offset = 0
		}
		head := Delivery{Topic: appendText(nil, 2, "topic"), StoreHost: "broker:1", Handle: []byte("handle")}
		out := AppendDelivery([]byte("before"), &d, &head)
		if got, want := DeliverySize(&d, &head), len(out)-len("before"); got != want {
			t.Fatalf("size is %d, said %d", want, got)
		}
		want := proto.Clone(sent.GetMessages()[0]).(*rmqv2.Message)
		want.Topic = &rmqv2.Resource{Name: "topic"}
		p := want.GetSystemProperties()
		if p == nil {
			p = &rmqv2.SystemProperties{}
			want.SystemProperties = p
		}
		p.InvisibleDuration, p.DeadLetterQueue, p.OrphanedTransactionRecoveryDuration = nil, nil, nil
		p.BodyEncoding, p.MessageType = rmqv2.Encoding_IDENTITY, rmqv2.MessageType_NORMAL
		if p.BornTimestamp == nil {
			p.BornTimestamp = stampOf(5000)
		}
		if p.BornHost == "" {
			p.BornHost = "peer"
		}
		p.BodyDigest = &rmqv2.Digest{Type: rmqv2.DigestType_MD5, Checksum: fmt.Sprintf("%X", md5.Sum(want.GetBody()))}
		p.StoreTimestamp, p.StoreHost, p.ReceiptHandle = stampOf(1_700_000_000_123), "broker:1", new("handle")
		p.QueueId, p.QueueOffset, p.DeliveryAttempt = int32(d.Queue), new(int64(d.Offset)), new(d.Attempt)
		readBack(t, "delivery", out[len("before"):], &rmqv2.ReceiveMessageResponse{Content: &rmqv2.ReceiveMessageResponse_Message{Message: want}})
	}
}

func TestTimes(t *testing.T) {
	for _, tc := range []struct {
		in   Time
		ms   int64
		ok   bool
		wait time.Duration
	}{
		{Time{}, 0, true, 0},
		{Time{Seconds: 1, Nanos: 999_999_999}, 1999, true, 2*time.Second - 1},
		{Time{Seconds: -1, Nanos: 1}, -1000, true, -time.Second + 1},
		{Time{Nanos: -1}, 0, false, -1},
		{Time{Nanos: 1e9}, 0, false, time.Second},
		{Time{Seconds: 253_402_300_800}, 0, false, math.MaxInt64},
		{Time{Seconds: math.MaxInt64, Nanos: math.MaxInt32}, 0, false, math.MaxInt64},
		{Time{Seconds: math.MinInt64, Nanos: math.MinInt32}, 0, false, math.MinInt64},
	} {
		if ms, ok := tc.in.UnixMillis(); ms != tc.ms || ok != tc.ok {
			t.Errorf("%+v is %d, %v", tc.in, ms, ok)
		}
		if got := tc.in.Duration(); got != tc.wait {
			t.Errorf("%+v lasts %v, want %v", tc.in, got, tc.wait)
		}
	}
}

// TestDecodingAllocatesNothing for requests of the usual form, used again.
func TestDecodingAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	b, err := proto.Marshal(&rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{randomMessage(rng, &rmqv2.Message{}).(*rmqv2.Message)}})
	if err != nil {
		t.Fatal(err)
	}
	var q SendRequest
	dst := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() {
		if err := q.Decode(b); err != nil {
			t.Fatal(err)
		}
		dst = q.Messages[0].AppendSystem(dst[:0], System{Type: 1, Encoding: 1})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestEntriesAreBounded(t *testing.T) {
	message := bytes.Repeat([]byte{1<<3 | typeBytes, 0}, MaxEntries+1)
	entry := bytes.Repeat([]byte{3<<3 | typeBytes, 0}, MaxEntries+1)
	for n, want := range map[int]error{MaxEntries: nil, MaxEntries + 1: ErrTooMany} {
		if err := (&SendRequest{}).Decode(message[:2*n]); !errors.Is(err, want) {
			t.Errorf("%d messages: %v", n, err)
		}
		if err := (&AckMessageRequest{}).Decode(entry[:2*n]); !errors.Is(err, want) {
			t.Errorf("%d handles: %v", n, err)
		}
	}
}

// TestManyPiecesAreCopiedOnce has a sub-message that occurs very often: what is merged must not be
// copied once per occurrence.
func TestManyPiecesAreCopiedOnce(t *testing.T) {
	const n = 30_000
	long := appendText(nil, 2, strings.Repeat("x", 1000))
	topic := append(appendHead(nil, 1, len(long)), long...)
	topic = append(topic, bytes.Repeat([]byte{1<<3 | typeBytes, 0}, n)...)
	topic = append(topic, bytes.Repeat([]byte{3<<3 | typeBytes, 0}, n)...)
	for range n { // properties with a gap before each
		topic = append(topic, 9<<3, 0, 2<<3|typeBytes, 0)
	}
	b := append(appendHead(nil, 1, len(topic)), topic...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var q SendRequest
	if err := q.Decode(b); err != nil {
		t.Fatal(err)
	}
	m := &q.Messages[0]
	if len(m.Topic.Bytes()) != len(long) || m.Properties != n || len(m.User) != 2*n || len(m.AppendSystem(nil, System{Type: 1})) != 4 {
		t.Errorf("%d bytes of topic, %d properties in %d bytes", len(m.Topic.Bytes()), m.Properties, len(m.User))
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 8*uint64(len(b)) { // what grows by appending is copied a few times
		t.Errorf("%d bytes were allocated for a request of %d", n, len(b))
	}
}
