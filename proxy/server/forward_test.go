package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Forward ends messages here; where they go is the broker's affair.
func (b *memBroker) Forward(req *brokerapi.ForwardRequest, done func(*brokerapi.ForwardReply, error)) {
	b.mu.Lock()
	if err := b.err; err != nil {
		b.mu.Unlock()
		done(nil, err)
		return
	}
	b.forwards++
	errs := b.each(req.Handles, func(m *memMessage) { m.state = memDone })
	b.mu.Unlock()
	done(&brokerapi.ForwardReply{Errors: errs}, nil)
}

func (s *site) forwarded(t *testing.T, topic, group, handle string) rmqv2.Code {
	t.Helper()
	req := &rmqv2.ForwardMessageToDeadLetterQueueRequest{Topic: res(topic), Group: res(group), ReceiptHandle: handle, DeliveryAttempt: 9, MaxDeliveryAttempts: 1}
	resp := ask(t, s.ForwardMessageToDeadLetterQueue, req, &rmqv2.ForwardMessageToDeadLetterQueueResponse{})
	require.NotEmpty(t, resp.GetStatus().GetMessage())
	return resp.GetStatus().GetCode()
}

func TestForward(t *testing.T) {
	s := newSite()
	h := handleText(s.held(t, 1)[0])
	for range 2 {
		require.Equal(t, rmqv2.Code_OK, s.forwarded(t, "one", "g", h))
	}
	require.Equal(t, 1, s.brokers[1].count(memDone))
}

// TestForwardRefusals: names first, then anything that is wrong with the handle, which ends the retries
// of push consumers.
func TestForwardRefusals(t *testing.T) {
	s := newSite()
	h := handleText(s.held(t, 1)[0])
	for _, c := range []struct {
		topic, group, handle string
		code                 rmqv2.Code
	}{
		{"", "", "", rmqv2.Code_ILLEGAL_TOPIC},
		{"a b", "g", h, rmqv2.Code_ILLEGAL_TOPIC},
		{"one", "a b", h, rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		{"one", "", h, rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		{"one", "g", "", rmqv2.Code_INVALID_RECEIPT_HANDLE},
		{"one", "g", "garbage", rmqv2.Code_INVALID_RECEIPT_HANDLE},
		{"one", "g", h[:len(h)-1], rmqv2.Code_INVALID_RECEIPT_HANDLE},
		{"quiet", "g", h, rmqv2.Code_INVALID_RECEIPT_HANDLE},
		{"nowhere", "g", h, rmqv2.Code_INVALID_RECEIPT_HANDLE},
		{"one", "other", h, rmqv2.Code_INVALID_RECEIPT_HANDLE},
		{"one", "nobody", h, rmqv2.Code_INVALID_RECEIPT_HANDLE},
	} {
		require.Equal(t, c.code, s.forwarded(t, c.topic, c.group, c.handle), "%+v", c)
	}
	require.Zero(t, s.brokers[1].forwards)
	for kind, code := range map[mqerr.Kind]rmqv2.Code{
		mqerr.Unavailable: rmqv2.Code_HA_NOT_AVAILABLE, mqerr.TopicNotFound: rmqv2.Code_INVALID_RECEIPT_HANDLE,
		mqerr.GroupNotFound: rmqv2.Code_INVALID_RECEIPT_HANDLE, mqerr.DiskFull: rmqv2.Code_TOO_MANY_REQUESTS,
	} {
		s.brokers[1].err = mqerr.New(kind, "the text")
		require.Equal(t, code, s.forwarded(t, "one", "g", h))
	}
}
