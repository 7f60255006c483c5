package server

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/route"
)

// timerBroker stores messages that are due later and takes them back.
type timerBroker struct {
	brokerapi.Broker // nil: a test that uses more has to say so
	next             brokerapi.LogPos
	sent             []brokerapi.Message
	recalls          []brokerapi.RecallRequest
	err              error
	first            int64 // not 0: every message repeats one that is due then
}

// timerBrokers finds that broker for every shard.
type timerBrokers struct{ b *timerBroker }

func (f timerBrokers) Broker(brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	return f.b, 5, nil
}

func (b *timerBroker) Send(req *brokerapi.SendRequest, done func(*brokerapi.SendReply, error)) {
	reply := &brokerapi.SendReply{}
	for _, m := range req.Messages {
		r := brokerapi.SendResult{Queue: 1, Offset: 7, Pos: b.next}
		if m.DeliverAt > testNow.UnixMilli() {
			r.Queue, r.Offset = brokerapi.AnyQueue, -1
		}
		if b.first != 0 {
			r.Duplicate, r.DeliverAt = true, b.first
		}
		b.next += 1000
		m.ID = clone(m.ID)
		b.sent = append(b.sent, m)
		reply.Results = append(reply.Results, r)
	}
	done(reply, nil)
}

func (b *timerBroker) Recall(req *brokerapi.RecallRequest, done func(*brokerapi.RecallReply, error)) {
	b.recalls = append(b.recalls, *req)
	if b.err != nil {
		done(nil, b.err)
		return
	}
	done(&brokerapi.RecallReply{ID: []byte("the id")}, nil)
}

func timerWorld(t *testing.T) (*world, *timerBroker) {
	b := &timerBroker{}
	w := newWorld(t, func(o *Options) { o.Brokers = timerBrokers{b} })
	w.table.Apply(route.Update{Keys: []route.HandleKey{{ID: 3, Key: [16]byte{9}}}})
	return w, b
}

func (w *world) recall(t *testing.T, topic, handle string) *rmqv2.RecallMessageResponse {
	t.Helper()
	u := newUnary(t, &rmqv2.RecallMessageRequest{Topic: &rmqv2.Resource{Name: topic}, RecallHandle: handle})
	w.RecallMessage(u)
	r := &rmqv2.RecallMessageResponse{}
	u.into(t, r)
	require.NotEmpty(t, r.GetStatus().GetMessage())
	return r
}

// TestDelayedSend: the broker gets the time, never earlier than the sender said it; the sender gets an
// offset that is none and, if the message waits, a handle.
func TestDelayedSend(t *testing.T) {
	w, b := timerWorld(t)
	r := w.send(t, in(time.Minute+1), in(-time.Hour), join(group("g"), in(time.Minute)))
	require.Equal(t, rmqv2.Code_OK, r.GetStatus().GetCode())
	require.Len(t, r.GetEntries(), 3)
	for i, want := range []struct {
		offset int64
		handle bool
	}{{0, true}, {7, false}, {0, true}} {
		e := r.GetEntries()[i]
		require.Equal(t, want.offset, e.GetOffset())
		require.Equal(t, want.handle, e.GetRecallHandle() != "", "message %d", i)
	}
	require.NotEqual(t, r.GetEntries()[0].GetRecallHandle(), r.GetEntries()[2].GetRecallHandle())
	now := testNow.UnixMilli()
	require.Equal(t, []int64{now + 60_001, now - 3_600_000, now + 60_000}, []int64{b.sent[0].DeliverAt, b.sent[1].DeliverAt, b.sent[2].DeliverAt})
	require.NotZero(t, b.sent[2].GroupHash)
	for i := range b.sent {
		require.Equal(t, brokerapi.Delay, b.sent[i].Type)
	}
}

// TestRecall: a handle names its message at its broker.
func TestRecall(t *testing.T) {
	for _, topic := range []string{"delay", "mixed", "%DLQ%g"} {
		w, b := timerWorld(t)
		b.next = 123_456
		h := w.send(t, join(in(time.Minute), to(topic))).GetEntries()[0].GetRecallHandle()
		for range 2 {
			r := w.recall(t, topic, h)
			require.Equal(t, rmqv2.Code_OK, r.GetStatus().GetCode())
			require.Equal(t, "the id", r.GetMessageId())
		}
		require.EqualValues(t, 123_456, b.recalls[0].Ref)
		require.Equal(t, testNow.Add(time.Minute).UnixMilli(), b.recalls[0].DeliverAt)
		require.EqualValues(t, 5, b.recalls[0].Epoch)
		b.err = mqerr.New(mqerr.NotFound, "too late")
		r := w.recall(t, topic, h)
		require.Equal(t, rmqv2.Code_NOT_FOUND, r.GetStatus().GetCode())
		require.Equal(t, "too late", r.GetStatus().GetMessage())
	}
}

// TestRecallOfARepeatedMessage: a message that was sent again with a later time is due when it was said first,
// and its handle is of that one.
func TestRecallOfARepeatedMessage(t *testing.T) {
	w, b := timerWorld(t)
	b.first = testNow.Add(time.Minute).UnixMilli()
	h := w.send(t, in(2*time.Minute)).GetEntries()[0].GetRecallHandle()
	require.Equal(t, rmqv2.Code_OK, w.recall(t, "delay", h).GetStatus().GetCode())
	require.Equal(t, b.first, b.recalls[0].DeliverAt)
}

// TestRecallRefusals: names and types first, then anything that is wrong with the handle; none of it
// reaches a broker.
func TestRecallRefusals(t *testing.T) {
	w, b := timerWorld(t)
	h := w.send(t, in(time.Minute)).GetEntries()[0].GetRecallHandle()
	for _, c := range []struct {
		topic, handle string
		code          rmqv2.Code
	}{
		{"", h, rmqv2.Code_ILLEGAL_TOPIC},
		{"a b", h, rmqv2.Code_ILLEGAL_TOPIC},
		{"missing", h, rmqv2.Code_TOPIC_NOT_FOUND},
		{"normal", h, rmqv2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE},
		{"fifo", "", rmqv2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE},
		{"mixed", h, rmqv2.Code_NOT_FOUND},
		{"delay", "", rmqv2.Code_BAD_REQUEST},
		{"delay", "garbage", rmqv2.Code_BAD_REQUEST},
		{"delay", h[:len(h)/2], rmqv2.Code_BAD_REQUEST},
		{"delay", h + h, rmqv2.Code_BAD_REQUEST},
		{"delay", strings.ToLower(h), rmqv2.Code_BAD_REQUEST},
		{"delay", "AA" + h[2:], rmqv2.Code_BAD_REQUEST},
	} {
		require.Equal(t, c.code, w.recall(t, c.topic, c.handle).GetStatus().GetCode(), "%q %q", c.topic, c.handle)
	}
	require.Empty(t, b.recalls)
	u := newUnary(t, &rmqv2.RecallMessageRequest{})
	delete(u.headers, headerClientID)
	w.RecallMessage(u)
	r := &rmqv2.RecallMessageResponse{}
	u.into(t, r)
	require.Equal(t, rmqv2.Code_CLIENT_ID_REQUIRED, r.GetStatus().GetCode())
}
