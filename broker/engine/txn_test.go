package engine

import (
	"crypto/md5"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/store/record"
)

// half is a half message; one id and body always make the same.
func half(id, body string) *brokerapi.SendRequest {
	return &brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{{
		Queue: brokerapi.AnyQueue, Type: brokerapi.Transaction, ID: []byte(id), Body: []byte(body), Digest: md5.Sum([]byte(body)), TagHash: 5,
	}}}
}

func (b *bench) sendReq(req *brokerapi.SendRequest) ([]brokerapi.SendResult, error) {
	b.t.Helper()
	r, err := wait(b.t, func(done func(*brokerapi.SendReply, error)) { b.proxy.Send(req, done) })
	if err != nil {
		return nil, err
	}
	return r.Results, nil
}

func (b *bench) mustHalf(id, body string) brokerapi.SendResult {
	b.t.Helper()
	r, err := b.sendReq(half(id, body))
	require.NoError(b.t, err)
	require.Len(b.t, r, 1)
	require.EqualValues(b.t, -1, r[0].Offset)
	return r[0]
}

func (b *bench) end(id string, commit bool) error {
	b.t.Helper()
	return b.endAs(topicSync, id, commit, brokerapi.TxnByClient)
}

func (b *bench) endAs(topic record.TopicID, id string, commit bool, source brokerapi.TxnSource) error {
	b.t.Helper()
	req := &brokerapi.EndTxnRequest{Topic: brokerapi.TopicID(topic), ID: []byte(id), Commit: commit, Source: source}
	_, err := wait(b.t, func(done func(*brokerapi.EndTxnReply, error)) { b.proxy.EndTxn(req, done) })
	return err
}

// sameAgain restarts the engine and expects the views that it had. A start looks at once for half messages
// that are over, a running engine that has told a proxy of checks some seconds later: so it looks here, too.
func (b *bench) sameAgain() {
	b.t.Helper()
	require.NoError(b.t, b.engine.call(b.t.Context(), func(w *writer) {
		w.flushEndings()
		w.txns.checks.soon(0)
		w.lookAtHalves()
	}))
	before := b.state()
	b.again()
	after := b.state()
	delete(before, sectionBase) // a start begins an epoch
	delete(after, sectionBase)
	delete(before, sectionEpochs)
	delete(after, sectionEpochs)
	for name := range before {
		require.Equal(b.t, []byte(before[name]), []byte(after[name]), "section %s after a restart", name)
	}
}

func TestTransaction(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustHalf("one", "a")
	b.mustHalf("two", "b")
	b.mustHalf("three", "c")
	require.Empty(t, b.mustPop(topicSync, groupA), "a half message is invisible")
	b.sameAgain()
	require.Empty(t, b.mustPop(topicSync, groupA))

	require.NoError(t, b.end("two", true))
	require.NoError(t, b.end("one", false))
	got := b.mustPop(topicSync, groupA)
	require.Equal(t, []string{"b"}, bodies(got))
	require.Equal(t, brokerapi.Transaction, got[0].Type)
	require.Zero(t, got[0].DeliverAt)
	b.sameAgain()
	require.NoError(t, b.end("three", true))
	require.Equal(t, []string{"c"}, bodies(b.mustPop(topicSync, groupA)))

	for range 2 { // what stands is told after a restart, too
		require.NoError(t, b.end("two", true), "the same again")
		require.NoError(t, b.end("one", false), "the same again")
		require.True(t, mqerr.Is(b.end("two", false), mqerr.Invalid))
		require.True(t, mqerr.Is(b.end("one", true), mqerr.Invalid))
		require.True(t, mqerr.Is(b.end("never", true), mqerr.NotFound))
		require.True(t, mqerr.Is(b.endAs(topicAsync, "two", true, 0), mqerr.NotFound), "another topic's")
		require.Empty(t, b.mustPop(topicSync, groupA))
		b.sameAgain()
	}
}

// TestTransactionAcrossCheckpoint: what a checkpoint holds and what follows it make the same views.
func TestTransactionAcrossCheckpoint(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustHalf("one", "a")
	b.mustHalf("two", "b")
	require.NoError(t, b.end("one", true))
	_, err := b.engine.Close()
	require.NoError(t, err)
	b.engine = nil
	require.NoError(t, b.store.Close())
	b.mustOpen()
	b.mustHalf("three", "c")
	require.NoError(t, b.end("two", true))
	b.sameAgain()
	require.NoError(t, b.end("three", true))
	require.ElementsMatch(t, []string{"a", "b", "c"}, bodies(b.mustPop(topicSync, groupA)))
	require.True(t, mqerr.Is(b.end("one", false), mqerr.Invalid))
}

// TestHalfSentAgain: a client that got no answer sends the same message again.
func TestHalfSentAgain(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	first := b.mustHalf("id", "body")
	again := b.mustHalf("id", "body")
	require.True(t, again.Duplicate)
	require.Equal(t, first.Pos, again.Pos)
	b.mustHalf("id", "another body")
	require.NoError(t, b.end("id", true))
	require.ElementsMatch(t, []string{"body", "another body"}, bodies(b.mustPop(topicSync, groupA)), "each body once")
	require.True(t, b.mustHalf("id", "another body").Duplicate, "it came late")
	require.NoError(t, b.end("id", true))
	require.Empty(t, b.mustPop(topicSync, groupA))
	b.clock.advance(sentAgain)
	require.False(t, b.mustHalf("id", "another body").Duplicate)
	require.NoError(t, b.end("id", false), "it is another transaction now")
	require.False(t, b.mustHalf("id", "another body").Duplicate, "what was rolled back may be tried again")
	b.sameAgain()
}

// TestVerdictsOfOneTurn: they share a record, and the first of two stands.
func TestVerdictsOfOneTurn(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	for i := range 10 {
		b.mustHalf(fmt.Sprint(i), fmt.Sprint("body ", i))
	}
	written := func() record.Pos {
		s, err := b.engine.Views(t.Context())
		require.NoError(t, err)
		return s.Written
	}
	before := written()
	free := b.hold()
	errs := make(chan error, 32)
	end := func(id int, commit bool) {
		b.proxy.EndTxn(&brokerapi.EndTxnRequest{Topic: brokerapi.TopicID(topicSync), ID: []byte(fmt.Sprint(id)), Commit: commit, Source: 1},
			func(_ *brokerapi.EndTxnReply, err error) { errs <- err })
	}
	for i := range 10 {
		end(i, i%2 == 0)
	}
	end(0, true)
	end(0, false)
	sent := make(chan error, 1)
	req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(topicAsync), Messages: []brokerapi.Message{message("plain")}}
	b.proxy.Send(req, func(_ *brokerapi.SendReply, err error) { sent <- err })
	free()
	bad := 0
	for range 12 {
		if err := <-errs; err != nil {
			require.True(t, mqerr.Is(err, mqerr.Invalid), err)
			bad++
		}
	}
	require.NoError(t, <-sent)
	require.Equal(t, 1, bad, "only the contradiction")
	require.Less(t, int64(written()-before), int64(500), "twelve verdicts and a message")
	b.sameAgain()
	require.ElementsMatch(t, []string{"body 0", "body 2", "body 4", "body 6", "body 8"}, bodies(b.mustPop(topicSync, groupA)))
}

// TestCommitAndSendOfOneTurn: offsets are given in the order of the records that say them.
func TestCommitAndSendOfOneTurn(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	req := half("id", "half")
	req.Messages[0].Queue = 0
	_, err := b.sendReq(req)
	require.NoError(t, err)
	free := b.hold()
	done := make(chan error, 2)
	b.proxy.EndTxn(&brokerapi.EndTxnRequest{Topic: brokerapi.TopicID(topicSync), ID: []byte("id"), Commit: true},
		func(_ *brokerapi.EndTxnReply, err error) { done <- err })
	plain := message("plain")
	plain.Queue = 0
	b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{plain}},
		func(_ *brokerapi.SendReply, err error) { done <- err })
	free()
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	b.sameAgain()
	got := b.mustPop(topicSync, groupA)
	require.Len(t, got, 2)
	require.ElementsMatch(t, []brokerapi.QueueOffset{0, 1}, []brokerapi.QueueOffset{got[0].Offset, got[1].Offset})
}

func TestHalvesAreBounded(t *testing.T) {
	b := newBench(t, Options{Txn: TxnOptions{OpenMax: 3}})
	b.mustOpen()
	b.define()
	for i := range 3 {
		b.mustHalf(fmt.Sprint(i), "x")
	}
	_, err := b.sendReq(half("more", "x"))
	require.True(t, mqerr.Is(err, mqerr.Exhausted), err)
	require.EqualValues(t, 1, b.engine.Counts().HalvesRefused.Load())
	require.NoError(t, b.end("0", false))
	b.mustHalf("more", "x")
}

func TestHalfRefusals(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	two := half("id", "x")
	two.Messages = append(two.Messages, half("id2", "y").Messages...)
	_, err := b.sendReq(two)
	require.True(t, mqerr.Is(err, mqerr.Invalid), err)
	timed := half("id", "x")
	timed.Messages[0].DeliverAt = 1
	_, err = b.sendReq(timed)
	require.True(t, mqerr.Is(err, mqerr.Invalid), err)
	require.True(t, mqerr.Is(b.endAs(99, "id", true, 1), mqerr.TopicNotFound))
}

// TestHalvesGoWithTheirTopic: and what is left of the log is still readable.
func TestHalvesGoWithTheirTopic(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustHalf("one", "a")
	b.mustHalf("two", "b")
	require.NoError(t, b.end("one", true))
	require.NoError(t, b.engine.Define(t.Context(), &Definitions{DeletedTopics: []record.TopicID{topicSync}, Version: 9}))
	require.True(t, mqerr.Is(b.end("two", true), mqerr.TopicNotFound))
	b.sameAgain()
	s, err := b.engine.Views(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.Halves)
}

// TestRandomTransactions does anything in any order, restarts at any time, and expects every committed
// message once and the same views after each restart.
func TestRandomTransactions(t *testing.T) {
	seed := testseed.First(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	b := newBench(t, Options{Txn: TxnOptions{VerdictsMax: 20, CheckLimit: 3}})
	b.mustOpen()
	b.define()
	defineParking(b)
	notices := b.attachProducer("p", topicSync)
	open, committed, parked := map[string]string{}, map[string]bool{}, 0
	received := map[string]bool{}
	for i := range 600 {
		b.clock.advance(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		switch op := rnd.IntN(20); {
		case op < 7:
			id := fmt.Sprint("id ", i)
			b.mustHalf(id, "body of "+id)
			open[id] = "body of " + id
		case op < 13:
			for id, body := range open { // any
				commit := rnd.IntN(2) == 0
				err := b.end(id, commit)
				delete(open, id)
				if mqerr.Is(err, mqerr.Invalid) || mqerr.Is(err, mqerr.NotFound) {
					parked++ // given up before
					break
				}
				require.NoError(t, err)
				if commit {
					committed[body] = true
				}
				break
			}
		case op < 15:
			notices.take(100)
		case op < 18:
			for _, m := range b.mustPop(topicSync, groupA) {
				require.False(t, received[m.body], "%s came twice", m.body)
				require.True(t, committed[m.body], "%s was not committed", m.body)
				received[m.body] = true
				require.Equal(t, []error{nil}, b.ack(topicSync, groupA, m))
			}
		case op < 19:
			b.sameAgain()
			notices = b.attachProducer("p", topicSync)
		default:
			b.mustSend(topicAsync, "other")
		}
	}
	b.sameAgain()
	for _, m := range b.mustPop(topicSync, groupA) {
		require.False(t, received[m.body])
		received[m.body] = true
	}
	require.Equal(t, len(committed), len(received))
	t.Logf("%d committed, %d ended too late, %d open, %d given up", len(committed), parked, len(open), b.engine.Counts().GivenUp.Load())
}

// topicParked is the topic of transactions of topicSync that were given up.
const topicParked record.TopicID = 77

func defineParking(b *bench) {
	b.t.Helper()
	require.NoError(b.t, b.engine.Define(b.t.Context(), &Definitions{
		Topics: []topic.Definition{{ID: topicParked, Name: "%TXN%sync", Queues: 1, Flush: topic.FlushSync, Version: 20}}, Version: 20,
	}))
}
