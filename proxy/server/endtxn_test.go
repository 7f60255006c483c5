package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// verdict is an EndTxn that a testBroker got.
type verdict struct {
	shard brokerapi.ShardID
	id    string
	req   brokerapi.EndTxnRequest
}

// txnBroker is a testBroker that takes verdicts.
type txnBroker struct {
	*testBroker
	shard brokerapi.ShardID
	got   *[]verdict
	say   map[brokerapi.ShardID]error
}

func (b txnBroker) EndTxn(req *brokerapi.EndTxnRequest, done func(*brokerapi.EndTxnReply, error)) {
	*b.got = append(*b.got, verdict{b.shard, string(req.ID), *req})
	if err := b.say[b.shard]; err != nil {
		done(nil, err)
		return
	}
	done(&brokerapi.EndTxnReply{}, nil)
}

type txnBrokers struct {
	testBrokers
	got []verdict
	say map[brokerapi.ShardID]error
}

func (m *txnBrokers) Broker(id brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	if err := m.say[id]; mqerr.Is(err, mqerr.Unavailable) {
		return nil, 0, err
	}
	return txnBroker{m.testBrokers[id], id, &m.got, m.say}, 1, nil
}

func txnWorld(t *testing.T) (*world, *txnBrokers) {
	brokers := &txnBrokers{say: map[brokerapi.ShardID]error{}}
	w := newWorld(t, func(o *Options) { brokers.testBrokers = o.Brokers.(testBrokers); o.Brokers = brokers })
	return w, brokers
}

func (w *world) end(t *testing.T, topic, id string, r rmqv2.TransactionResolution, change ...func(*rmqv2.EndTransactionRequest)) *rmqv2.Status {
	t.Helper()
	req := &rmqv2.EndTransactionRequest{Topic: &rmqv2.Resource{Name: topic}, MessageId: "another", TransactionId: id, Resolution: r}
	for _, f := range change {
		f(req)
	}
	c := newUnary(t, req)
	w.EndTransaction(c)
	var out rmqv2.EndTransactionResponse
	c.into(t, &out)
	return out.GetStatus()
}

const (
	commit   = rmqv2.TransactionResolution_COMMIT
	rollback = rmqv2.TransactionResolution_ROLLBACK
)

func TestEndTransaction(t *testing.T) {
	w, b := txnWorld(t)
	require.Equal(t, rmqv2.Code_OK, w.end(t, "tx", "one", commit).GetCode())
	require.Equal(t, rmqv2.Code_OK, w.end(t, "tx", "two", rollback, func(r *rmqv2.EndTransactionRequest) {
		r.Source, r.MessageId = rmqv2.TransactionSource_SOURCE_SERVER_CHECK, ""
	}).GetCode())
	require.Len(t, b.got, 2)
	require.Equal(t, "one", b.got[0].id)
	require.True(t, b.got[0].req.Commit)
	require.Equal(t, brokerapi.TxnByClient, b.got[0].req.Source)
	require.EqualValues(t, 4, b.got[0].req.Topic)
	require.Equal(t, "two", b.got[1].id)
	require.False(t, b.got[1].req.Commit)
	require.Equal(t, brokerapi.TxnByCheck, b.got[1].req.Source)

	for _, r := range []rmqv2.TransactionResolution{0, 3} { // undecided
		require.Equal(t, rmqv2.Code_OK, w.end(t, "tx", "three", r).GetCode())
	}
	require.Len(t, b.got, 2)
}

func TestEndTransactionRefusals(t *testing.T) {
	w, b := txnWorld(t)
	require.Equal(t, rmqv2.Code_INVALID_TRANSACTION_ID, w.end(t, "tx", " ", commit).GetCode())
	require.Equal(t, rmqv2.Code_ILLEGAL_TOPIC, w.end(t, "", "one", commit).GetCode())
	require.Equal(t, rmqv2.Code_INVALID_TRANSACTION_ID, w.end(t, "missing", "one", commit).GetCode())
	require.Equal(t, rmqv2.Code_INVALID_TRANSACTION_ID, w.end(t, "nowhere", "one", commit).GetCode())
	require.Empty(t, b.got)
	for _, c := range []struct {
		err  error
		want rmqv2.Code
	}{
		{mqerr.New(mqerr.NotFound, "unknown"), rmqv2.Code_INVALID_TRANSACTION_ID},
		{mqerr.New(mqerr.TopicNotFound, "unknown"), rmqv2.Code_INVALID_TRANSACTION_ID},
		{mqerr.New(mqerr.Invalid, "committed"), rmqv2.Code_PRECONDITION_FAILED},
		{mqerr.New(mqerr.Unavailable, "away"), rmqv2.Code_HA_NOT_AVAILABLE},
		{mqerr.New(mqerr.UnknownOutcome, "?"), rmqv2.Code_PROXY_TIMEOUT},
	} {
		b.say[1] = c.err
		require.Equal(t, c.want, w.end(t, "tx", "one", commit).GetCode(), c.err)
	}
}

// TestTransactionHome: a message and its verdict meet on the same shard, and ids spread over the shards.
func TestTransactionHome(t *testing.T) {
	w, b := txnWorld(t)
	homes := map[brokerapi.ShardID]int{}
	for i := range 40 {
		id := fmt.Sprint("id ", i)
		b.got = nil
		before := [2]int{len(w.brokers[1].sent), len(w.brokers[2].sent)}
		r := w.send(t, join(to("spread"), sys(func(p *rmqv2.SystemProperties) { p.MessageType, p.MessageId = rmqv2.MessageType_TRANSACTION, id })))
		require.Equal(t, rmqv2.Code_OK, r.GetStatus().GetCode())
		require.Equal(t, id, r.GetEntries()[0].GetTransactionId())
		home := brokerapi.ShardID(1)
		if len(w.brokers[2].sent) > before[1] {
			home = 2
		}
		require.Equal(t, rmqv2.Code_OK, w.end(t, "spread", id, commit).GetCode())
		require.Len(t, b.got, 1)
		require.Equal(t, home, b.got[0].shard)
		homes[home]++
	}
	require.Greater(t, homes[1], 5)
	require.Greater(t, homes[2], 5)
}

// TestEndTransactionElsewhere: a message whose home was down is on another shard, and one whose home is
// down now is not said to be unknown.
func TestEndTransactionElsewhere(t *testing.T) {
	w, b := txnWorld(t)
	topic := w.table.Load().Topic([]byte("spread"))
	home := topic.Placements[transactionHome(topic, []byte("id"))].Shard
	other := 3 - home
	b.say[home] = mqerr.New(mqerr.NotFound, "unknown")
	require.Equal(t, rmqv2.Code_OK, w.end(t, "spread", "id", commit).GetCode())
	require.Equal(t, []brokerapi.ShardID{home, other}, []brokerapi.ShardID{b.got[0].shard, b.got[1].shard})
	b.say[other] = b.say[home]
	require.Equal(t, rmqv2.Code_INVALID_TRANSACTION_ID, w.end(t, "spread", "id", commit).GetCode())
	b.say[home] = mqerr.New(mqerr.Unavailable, "down")
	require.Equal(t, rmqv2.Code_HA_NOT_AVAILABLE, w.end(t, "spread", "id", commit).GetCode())
	b.say[other] = nil
	require.Equal(t, rmqv2.Code_OK, w.end(t, "spread", "id", commit).GetCode())
	b.say[other] = mqerr.New(mqerr.UnknownOutcome, "?") // it may have been written there
	require.Equal(t, rmqv2.Code_PROXY_TIMEOUT, w.end(t, "spread", "id", commit).GetCode())
	b.say[other] = mqerr.New(mqerr.Invalid, "rolled back")
	require.Equal(t, rmqv2.Code_PRECONDITION_FAILED, w.end(t, "spread", "id", commit).GetCode())
}

// TestSendTransaction: what the broker gets, and who is known as a producer afterwards.
func TestSendTransaction(t *testing.T) {
	w, _ := txnWorld(t)
	r := w.send(t, join(recovery(90*time.Second), to("tx")))
	require.Equal(t, rmqv2.Code_OK, r.GetStatus().GetCode())
	sent := w.brokers[1].sent[0].Messages[0]
	require.Equal(t, brokerapi.Transaction, sent.Type)
	require.Equal(t, 90*time.Second, sent.CheckAfter)
	require.Equal(t, brokerapi.AnyQueue, sent.Queue)
	w.o.Clients.Put("client@1", remembered(&rmqv2.Settings{PubSub: &rmqv2.Settings_Publishing{Publishing: &rmqv2.Publishing{}}}), &testStream{}, testNow)
	require.Equal(t, []string{"tx"}, w.o.Clients.ProducedTopics())

	for _, refused := range [][]edit{
		{join(recovery(0), to("tx")), join(recovery(0), to("tx"))},
		{join(in(time.Minute), recovery(0), to("mixed"))},
	} {
		require.Equal(t, rmqv2.Code_BAD_REQUEST, w.send(t, refused...).GetStatus().GetCode())
	}
	require.Equal(t, rmqv2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, w.send(t, join(recovery(0), to("%DLQ%g"))).GetStatus().GetCode())
}

type testStream struct{ _ byte }

func (*testStream) Send([]byte) error { return nil }
