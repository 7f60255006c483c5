// Package brokerapitest is the suite that every implementation of brokerapi passes: the broker itself
// and a broker behind a link. What it does not state, callers must not rely on.
package brokerapitest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Harness is a fresh broker for one test.
type Harness struct {
	Connector brokerapi.Connector
	// Topic and OtherTopic have Queues queues (at least 2) and no messages.
	Topic, OtherTopic brokerapi.TopicID
	Queues            int
	// Group and OtherGroup start at the first message.
	Group, OtherGroup brokerapi.GroupID
	// Epoch is what the broker leads.
	Epoch brokerapi.Epoch
	// SessionTimeout is when a silent client's session ends. 0, or more than 2 s: not tested.
	SessionTimeout time.Duration
	// GoodbyeDelay is how long session leases live after EndSession, at most 2 s.
	GoodbyeDelay time.Duration
	// Transactions says that the broker has EndTxn, Checks and Producers.
	Transactions bool
	// Pulls says that the broker has Pull, SetOffsets, Offset and Reset.
	Pulls bool
	// Dead is the dead-letter topic of Group, with one queue; 0 says that the broker has neither Forward
	// nor Redrive.
	Dead brokerapi.TopicID
	// Delays says that the broker has delayed messages and Recall.
	Delays bool
	// LiteParent is a topic of lite topics, and LiteGroup a group that is bound to it. 0: not tested.
	LiteParent brokerapi.TopicID
	LiteGroup  brokerapi.GroupID
}

// Run tests an implementation. fresh is called once for each test and ends with t.
func Run(t *testing.T, fresh func(t *testing.T) Harness) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := fresh(t)
			test.run(&session{t: t, Harness: h, Broker: attach(t, h, brokerapi.Events{})})
		})
	}
}

var tests = []struct {
	name string
	run  func(s *session)
}{
	{"Fields", fields},
	{"Batch", batch},
	{"AnyQueue", anyQueue},
	{"LargeBody", largeBody},
	{"LargeReplies", largeReplies},
	{"Bounds", bounds},
	{"Filter", filter},
	{"Release", release},
	{"Redelivery", redelivery},
	{"Ack", acks},
	{"Groups", groups},
	{"Change", change},
	{"GiveBack", giveBack},
	{"AttemptID", attemptID},
	{"Session", sessionLease},
	{"SessionTimeout", sessionTimeout},
	{"More", more},
	{"Arm", arm},
	{"Forward", ifDead(forwards)},
	{"Redrive", ifDead(redrives)},
	{"ArmAfterMessages", armAfterMessages},
	{"ArmForRedelivery", armForRedelivery},
	{"ArmTwoProxies", armTwoProxies},
	{"DescribeTopic", describeTopic},
	{"DescribeGroup", describeGroup},
	{"Refusals", refusals},
	{"Deadline", deadline},
	{"Cancelled", cancelled},
	{"Close", closing},
	{"Concurrent", concurrent},
	{"Transactions", ifTransactions(transactions)},
	{"CommittedArms", ifTransactions(committedArms)},
	{"TransactionChecks", ifTransactions(transactionChecks)},
	{"Delay", ifDelays(delays)},
	{"DelayWakes", ifDelays(delayWakes)},
	{"Recall", ifDelays(recalls)},
	{"Pull", ifPulls(pulls)},
	{"PullWaits", ifPulls(pullWaits)},
	{"PullRefusals", ifPulls(pullRefusals)},
	{"Offsets", ifPulls(offsets)},
	{"Reset", ifPulls(resets)},
	{"LiteTopics", liteTopics},
	{"Listings", listings},
}

// patience bounds every wait of the suite.
const patience = 20 * time.Second

// short is an invisible time that tests wait out.
const short = 300 * time.Millisecond

// session is a broker under test, with calls that wait.
type session struct {
	brokerapi.Broker
	Harness
	t *testing.T
}

func attach(t *testing.T, h Harness, ev brokerapi.Events) brokerapi.Broker {
	t.Helper()
	b, err := h.Connector.Attach("suite", ev)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// another attaches a second time.
func (s *session) another(ev brokerapi.Events) *session {
	return &session{t: s.t, Harness: s.Harness, Broker: attach(s.t, s.Harness, ev)}
}

func (s *session) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *session) head() brokerapi.Head {
	return brokerapi.Head{Principal: brokerapi.Principal{User: "suite"}, Epoch: s.Epoch, Deadline: time.Now().Add(patience)}
}

// await turns a call into one that waits, and checks that it is answered exactly once.
func await[R any](t *testing.T, start func(done func(R, error))) (R, error) {
	type answer struct {
		r   R
		err error
	}
	ch := make(chan answer, 1)
	var once sync.Mutex
	n := 0
	start(func(r R, err error) {
		once.Lock()
		n++
		twice := n > 1
		once.Unlock()
		if twice {
			t.Errorf("a call was answered %d times", n)
			return
		}
		ch <- answer{r, err}
	})
	select {
	case a := <-ch:
		return a.r, a.err
	case <-time.After(2 * patience):
		t.Error("a call was not answered")
		var none R
		return none, mqerr.New(mqerr.Internal, "not answered")
	}
}

func (s *session) send(messages ...brokerapi.Message) []brokerapi.SendResult {
	s.t.Helper()
	reply, err := await(s.t, func(done func(*brokerapi.SendReply, error)) {
		s.Send(&brokerapi.SendRequest{Head: s.head(), Topic: s.Topic, Messages: messages}, done)
	})
	require.NoError(s.t, err)
	require.Len(s.t, reply.Results, len(messages))
	return reply.Results
}

// receive is a pop of up to 32 messages for the group, changed by with.
func (s *session) receive(with ...func(*brokerapi.PopRequest)) *brokerapi.PopRequest {
	req := &brokerapi.PopRequest{
		Head: s.head(), Topic: s.Topic, Group: s.Group, Client: "client-1", Max: 32, Invisible: time.Minute,
	}
	for _, f := range with {
		f(req)
	}
	return req
}

func visibleAfter(d time.Duration) func(*brokerapi.PopRequest) {
	return func(r *brokerapi.PopRequest) { r.Invisible = d }
}

func atMost(n int) func(*brokerapi.PopRequest) {
	return func(r *brokerapi.PopRequest) { r.Max = n }
}

func armed(r *brokerapi.PopRequest) { r.Arm = true }

func (s *session) popReply(req *brokerapi.PopRequest) *brokerapi.PopReply {
	s.t.Helper()
	reply, err := await(s.t, func(done func(*brokerapi.PopReply, error)) { s.Pop(req, done) })
	require.NoError(s.t, err)
	return reply
}

// pop returns the messages of one pop with bytes of their own.
func (s *session) pop(req *brokerapi.PopRequest) []brokerapi.Delivery {
	s.t.Helper()
	reply := s.popReply(req)
	defer reply.Release()
	return own(reply.Messages)
}

// popUntil pops until it has n messages.
func (s *session) popUntil(n int, with ...func(*brokerapi.PopRequest)) []brokerapi.Delivery {
	s.t.Helper()
	var got []brokerapi.Delivery
	s.eventually(func() bool {
		got = append(got, s.pop(s.receive(with...))...)
		return len(got) >= n
	})
	require.Len(s.t, got, n)
	return got
}

// eventually waits for ok, which may take some time on the broker's clock.
func (s *session) eventually(ok func() bool) {
	s.t.Helper()
	end := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(end) {
			s.t.Fatal("it never came")
		}
		s.pause(10 * time.Millisecond)
	}
}

// pause lets time pass for the broker.
func (s *session) pause(d time.Duration) { <-time.After(d) }

func (s *session) ack(group brokerapi.GroupID, handles ...brokerapi.Handle) []error {
	s.t.Helper()
	reply, err := await(s.t, func(done func(*brokerapi.AckReply, error)) {
		s.Ack(&brokerapi.AckRequest{Head: s.head(), Topic: s.Topic, Group: group, Handles: handles}, done)
	})
	require.NoError(s.t, err)
	require.Len(s.t, reply.Errors, len(handles))
	return reply.Errors
}

func (s *session) change(d time.Duration, mode brokerapi.ChangeMode, handles ...brokerapi.Handle) []error {
	s.t.Helper()
	reply, err := await(s.t, func(done func(*brokerapi.ChangeReply, error)) {
		s.Change(&brokerapi.ChangeRequest{Head: s.head(), Topic: s.Topic, Group: s.Group, Handles: handles, Invisible: d, Mode: mode}, done)
	})
	require.NoError(s.t, err)
	require.Len(s.t, reply.Errors, len(handles))
	return reply.Errors
}

func handle(d brokerapi.Delivery) brokerapi.Handle {
	return brokerapi.Handle{Queue: d.Queue, Offset: d.Offset, Lease: d.Lease, Epoch: d.Epoch}
}

func handles(all []brokerapi.Delivery) []brokerapi.Handle {
	hs := make([]brokerapi.Handle, len(all))
	for i := range all {
		hs[i] = handle(all[i])
	}
	return hs
}

// ok checks that every handle of a reply succeeded.
func (s *session) ok(errs []error) {
	s.t.Helper()
	for i, err := range errs {
		require.NoError(s.t, err, "handle %d", i)
	}
}

// refused checks that an error is of a kind.
func refused(t *testing.T, err error, k mqerr.Kind) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, k, mqerr.KindOf(err), "error: %v", err)
}

// message is a small message; n tells messages apart.
func message(queue brokerapi.QueueID, n int) brokerapi.Message {
	return brokerapi.Message{Queue: queue, Type: brokerapi.Normal, ID: fmt.Appendf(nil, "id-%d", n), Body: fmt.Appendf(nil, "body-%d", n)}
}

// tagged is a message with a tag, in the encoding of the public protocol.
func tagged(n int, tag string) brokerapi.Message {
	m := message(0, n)
	m.TagHash = brokerapi.HashTag([]byte(tag))
	m.Sys = append([]byte{1<<3 | 2, byte(len(tag))}, tag...)
	return m
}
