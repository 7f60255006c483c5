package server

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/failover"
)

// masters is a broker group whose master fails with each of those errors in turn; the one after it answers.
type masters struct {
	fails []mqerr.Kind
	heads []brokerapi.Head // of the tries
	ages  []time.Duration  // of sends
	asked []brokerapi.ShardID
}

func (m *masters) Broker(id brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	m.asked = append(m.asked, id)
	return master{masters: m}, brokerapi.Epoch(1 + len(m.heads)), nil
}

// master is one of them.
type master struct {
	brokerapi.Broker // calls that are not used panic
	*masters
}

func (m *masters) try(h brokerapi.Head) error {
	m.heads = append(m.heads, h)
	if n := len(m.heads) - 1; n < len(m.fails) {
		return mqerr.New(m.fails[n], "try %d", n)
	}
	return nil
}

func replied[R any](err error, reply R, done func(*R, error)) {
	if err != nil {
		done(nil, err)
		return
	}
	done(&reply, nil)
}

func (m master) Send(r *brokerapi.SendRequest, done func(*brokerapi.SendReply, error)) {
	m.ages = append(m.ages, r.Age)
	replied(m.try(r.Head), brokerapi.SendReply{Results: make([]brokerapi.SendResult, len(r.Messages))}, done)
}

func (m master) Ack(r *brokerapi.AckRequest, done func(*brokerapi.AckReply, error)) {
	replied(m.try(r.Head), brokerapi.AckReply{Errors: make([]error, len(r.Handles))}, done)
}

func (m master) Change(r *brokerapi.ChangeRequest, done func(*brokerapi.ChangeReply, error)) {
	replied(m.try(r.Head), brokerapi.ChangeReply{Errors: make([]error, len(r.Handles))}, done)
}

func (m master) Forward(r *brokerapi.ForwardRequest, done func(*brokerapi.ForwardReply, error)) {
	replied(m.try(r.Head), brokerapi.ForwardReply{Errors: make([]error, len(r.Handles))}, done)
}

func (m master) EndTxn(r *brokerapi.EndTxnRequest, done func(*brokerapi.EndTxnReply, error)) {
	replied(m.try(r.Head), brokerapi.EndTxnReply{}, done)
}

func (m master) Pull(r *brokerapi.PullRequest, done func(*brokerapi.PullReply, error)) {
	if err := m.try(r.Head); err != nil {
		done(nil, err)
		return
	}
	done(brokerapi.NewPullReply(nil, 0, nil), nil)
}

func (m master) SetOffsets(context.Context, *brokerapi.SetOffsetsRequest) (*brokerapi.SetOffsetsReply, error) {
	return &brokerapi.SetOffsetsReply{}, m.try(brokerapi.Head{})
}

func (m master) Offset(context.Context, *brokerapi.OffsetRequest) (*brokerapi.OffsetReply, error) {
	return &brokerapi.OffsetReply{}, m.try(brokerapi.Head{})
}

// siteOf is a site whose broker groups are those masters.
func siteOf(m *masters) *site {
	return newSite(func(o *Options) {
		o.Brokers, o.Masters = m, failover.New(failover.Options{Brokers: m})
	})
}

func sendOf(topic, id string) *rmqv2.SendMessageRequest {
	return &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{plain(func(m *rmqv2.Message) {
		m.Topic, m.SystemProperties.MessageId = res(topic), id
	})}}
}

// TestCallsOutliveTheirMaster: every call is made again at the next master, in its epoch, where it surely had no effect, and where
// it may have had one.
func TestCallsOutliveTheirMaster(t *testing.T) {
	queue := &rmqv2.MessageQueue{Topic: res("one"), Broker: &rmqv2.Broker{Name: "a"}}
	calls := map[string]func(t *testing.T, s *site) rmqv2.Code{
		"send": func(t *testing.T, s *site) rmqv2.Code {
			return ask(t, s.SendMessage, sendOf("one", "id"), &rmqv2.SendMessageResponse{}).GetStatus().GetCode()
		},
		"ack": func(t *testing.T, s *site) rmqv2.Code {
			return ask(t, s.AckMessage, ackRequest("two", "g", s.handleAt(1, 0)), &rmqv2.AckMessageResponse{}).GetStatus().GetCode()
		},
		"change": func(t *testing.T, s *site) rmqv2.Code {
			req := &rmqv2.ChangeInvisibleDurationRequest{Topic: res("two"), Group: res("g"), ReceiptHandle: s.handleAt(1, 0)}
			return ask(t, s.ChangeInvisibleDuration, req, &rmqv2.ChangeInvisibleDurationResponse{}).GetStatus().GetCode()
		},
		"forward": func(t *testing.T, s *site) rmqv2.Code {
			req := &rmqv2.ForwardMessageToDeadLetterQueueRequest{Topic: res("two"), Group: res("g"), ReceiptHandle: s.handleAt(1, 0), MessageId: "m"}
			return ask(t, s.ForwardMessageToDeadLetterQueue, req, &rmqv2.ForwardMessageToDeadLetterQueueResponse{}).GetStatus().GetCode()
		},
		"end of a transaction": func(t *testing.T, s *site) rmqv2.Code {
			req := &rmqv2.EndTransactionRequest{Topic: res("one"), MessageId: "m", TransactionId: "m", Resolution: rmqv2.TransactionResolution_COMMIT}
			return ask(t, s.EndTransaction, req, &rmqv2.EndTransactionResponse{}).GetStatus().GetCode()
		},
		"update of an offset": func(t *testing.T, s *site) rmqv2.Code {
			req := &rmqv2.UpdateOffsetRequest{Group: res("g"), MessageQueue: queue, Offset: 3}
			return ask(t, s.UpdateOffset, req, &rmqv2.UpdateOffsetResponse{}).GetStatus().GetCode()
		},
		"offset": func(t *testing.T, s *site) rmqv2.Code {
			req := &rmqv2.GetOffsetRequest{Group: res("g"), MessageQueue: queue}
			return ask(t, s.GetOffset, req, &rmqv2.GetOffsetResponse{}).GetStatus().GetCode()
		},
		"pull": func(t *testing.T, s *site) rmqv2.Code {
			st := &pullStream{fakeInfo: newInfo(t.Context(), "c"), done: make(chan struct{}), req: mustMarshal(&rmqv2.PullMessageRequest{Group: res("g"), MessageQueue: queue, BatchSize: 1})}
			s.PullMessage(st)
			return st.wait(t)[0].GetStatus().GetCode()
		},
	}
	for name, f := range calls {
		for _, k := range []mqerr.Kind{mqerr.NotLeader, mqerr.Fenced, mqerr.Draining, mqerr.Unavailable, mqerr.UnknownOutcome} {
			synctest.Test(t, func(t *testing.T) {
				m := &masters{fails: []mqerr.Kind{k, k}}
				require.Equal(t, rmqv2.Code_OK, f(t, siteOf(m)), "%s: %v", name, k)
				require.Len(t, m.heads, 3, "%s: %v", name, k)
				if h := m.heads[2]; !h.Deadline.IsZero() {
					require.EqualValues(t, 3, h.Epoch, "%s: %v", name, k)
				}
			})
		}
		synctest.Test(t, func(t *testing.T) { // what no other master changes
			m := &masters{fails: []mqerr.Kind{mqerr.Denied}}
			require.Equal(t, rmqv2.Code_UNAUTHORIZED, f(t, siteOf(m)), name)
			require.Len(t, m.heads, 1, name)
		})
	}
}

// TestDoubtfulSendStays: a send that may have been stored is made again on its own broker group alone, which is told since
// when; one that surely was not may go elsewhere.
func TestDoubtfulSendStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 20 {
			m := &masters{fails: []mqerr.Kind{mqerr.UnknownOutcome, mqerr.NotEnoughReplicas, mqerr.UnknownOutcome}}
			r := ask(t, siteOf(m).SendMessage, sendOf("two", fmt.Sprint("id", i)), &rmqv2.SendMessageResponse{})
			require.Equal(t, rmqv2.Code_OK, r.GetStatus().GetCode())
			require.Zero(t, m.ages[0])
			last := time.Duration(0)
			for _, age := range m.ages[1:] {
				require.Greater(t, age, last)
				last = age
			}
			for _, id := range m.asked {
				require.Equal(t, m.asked[0], id)
			}
		}
		m := &masters{fails: []mqerr.Kind{mqerr.NotEnoughReplicas}}
		ask(t, siteOf(m).SendMessage, sendOf("two", "id"), &rmqv2.SendMessageResponse{})
		require.NotEqual(t, m.asked[0], m.asked[len(m.asked)-1])
		require.Equal(t, []time.Duration{0, 0}, m.ages)
	})
}

// TestTooLateToTell: a send that may have been stored too long ago for its broker to recognise it is said to be in doubt.
func TestTooLateToTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &masters{fails: []mqerr.Kind{mqerr.UnknownOutcome, mqerr.Timeout}}
		r := ask(t, siteOf(m).SendMessage, sendOf("one", "id"), &rmqv2.SendMessageResponse{})
		require.Equal(t, rmqv2.Code_PROXY_TIMEOUT, r.GetStatus().GetCode())
		require.Contains(t, r.GetStatus().GetMessage(), "try 0")
		require.Len(t, m.heads, 2)
	})
}

// TestLeaseEndedByItself: a call that may have ended the lease of its handle is in doubt when it is made again and the lease is
// over; an ack is not, since what it has ended is OK the second time.
func TestLeaseEndedByItself(t *testing.T) {
	code := func(first mqerr.Kind, f func(*site) rmqv2.Code) rmqv2.Code {
		m := &masters{fails: []mqerr.Kind{first, mqerr.HandleInvalid}}
		c := f(siteOf(m))
		require.Len(t, m.heads, 2)
		return c
	}
	synctest.Test(t, func(t *testing.T) {
		change := func(s *site) rmqv2.Code {
			req := &rmqv2.ChangeInvisibleDurationRequest{Topic: res("two"), Group: res("g"), ReceiptHandle: s.handleAt(1, 0)}
			return ask(t, s.ChangeInvisibleDuration, req, &rmqv2.ChangeInvisibleDurationResponse{}).GetStatus().GetCode()
		}
		forward := func(s *site) rmqv2.Code {
			req := &rmqv2.ForwardMessageToDeadLetterQueueRequest{Topic: res("two"), Group: res("g"), ReceiptHandle: s.handleAt(1, 0), MessageId: "m"}
			return ask(t, s.ForwardMessageToDeadLetterQueue, req, &rmqv2.ForwardMessageToDeadLetterQueueResponse{}).GetStatus().GetCode()
		}
		ack := func(s *site) rmqv2.Code {
			return ask(t, s.AckMessage, ackRequest("two", "g", s.handleAt(1, 0)), &rmqv2.AckMessageResponse{}).GetEntries()[0].GetStatus().GetCode()
		}
		for _, f := range []func(*site) rmqv2.Code{change, forward} {
			require.Equal(t, rmqv2.Code_PROXY_TIMEOUT, code(mqerr.UnknownOutcome, f))
			require.Equal(t, rmqv2.Code_INVALID_RECEIPT_HANDLE, code(mqerr.NotLeader, f), "the first try had no effect")
		}
		require.Equal(t, rmqv2.Code_INVALID_RECEIPT_HANDLE, code(mqerr.UnknownOutcome, ack))
	})
}
