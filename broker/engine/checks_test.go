package engine

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// producer is a proxy that has producers.
type producer struct {
	b       *bench
	broker  brokerapi.Broker
	notices chan brokerapi.Notice
}

func (b *bench) attachProducer(name string, topics ...record.TopicID) *producer {
	b.t.Helper()
	p := &producer{b: b, notices: make(chan brokerapi.Notice, 1024)}
	var err error
	p.broker, err = b.engine.Attach(name, brokerapi.Events{Notice: func(n brokerapi.Notice) { p.notices <- n }})
	require.NoError(b.t, err)
	p.produce(topics...)
	return p
}

func (p *producer) produce(topics ...record.TopicID) {
	p.b.t.Helper()
	req := &brokerapi.ProducersRequest{}
	for _, id := range topics {
		req.Topics = append(req.Topics, brokerapi.TopicID(id))
	}
	_, err := p.broker.Producers(p.b.t.Context(), req)
	require.NoError(p.b.t, err)
}

// check is one check with bytes of its own.
type check struct {
	brokerapi.Check
	body string
}

func (p *producer) take(most int) []check {
	p.b.t.Helper()
	r, err := wait(p.b.t, func(done func(*brokerapi.ChecksReply, error)) {
		p.broker.Checks(&brokerapi.ChecksRequest{Max: most}, done)
	})
	require.NoError(p.b.t, err)
	defer r.Release()
	var out []check
	for _, c := range r.Checks {
		out = append(out, check{c, string(c.Message.Body)})
	}
	return out
}

// told waits for a notice.
func (p *producer) told() {
	p.b.t.Helper()
	select {
	case n := <-p.notices:
		require.Equal(p.b.t, brokerapi.NoticeChecks, n)
	case <-time.After(20 * time.Second):
		p.b.t.Fatal("no notice within 20 s")
	}
}

// look makes the writer look at the clock.
func (b *bench) look() {
	b.t.Helper()
	require.NoError(b.t, b.engine.call(b.t.Context(), func(*writer) {}))
}

// pass lets time pass, and the writer see it.
func (b *bench) pass(d time.Duration) {
	b.t.Helper()
	b.clock.advance(d)
	b.look()
}

func TestChecks(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	p := b.attachProducer("p", topicSync)
	b.mustHalf("default", "a")
	late := half("late", "b")
	late.Messages[0].CheckAfter = 20 * time.Second
	_, err := b.sendReq(late)
	require.NoError(t, err)
	b.pass(5999 * time.Millisecond)
	require.Empty(t, p.notices)
	require.Empty(t, p.take(10))
	b.pass(time.Millisecond)
	p.told()
	got := p.take(10)
	require.Len(t, got, 1)
	require.Equal(t, "a", got[0].body)
	require.Equal(t, 1, got[0].Checks)
	require.Equal(t, brokerapi.Transaction, got[0].Message.Type)
	require.Empty(t, p.take(10), "it was taken")
	b.sameAgain()

	p = b.attachProducer("p", topicSync)
	b.pass(14 * time.Second)
	p.told()
	got = p.take(10)
	require.Len(t, got, 1)
	require.Equal(t, "b", got[0].body)
	require.NoError(t, b.endAs(topicSync, "late", true, brokerapi.TxnByCheck))
	b.pass(16 * time.Second) // 30 s after the first check of the other
	p.told()
	got = p.take(10)
	require.Len(t, got, 1)
	require.Equal(t, "a", got[0].body)
	require.Equal(t, 2, got[0].Checks, "also after a restart")
}

// TestChecksNeedAProducer: without one nothing happens, and what is due is told when one comes.
func TestChecksNeedAProducer(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	other := b.attachProducer("other", topicAsync)
	b.mustHalf("id", "a")
	b.pass(time.Hour)
	require.Empty(t, other.notices)
	require.Empty(t, other.take(10))
	p := b.attachProducer("p", topicSync)
	b.look()
	p.told()
	require.Len(t, p.take(10), 1)
}

// TestChecksGoRound: proxies take turns, one that does not fetch is passed over, one that is gone too.
func TestChecksGoRound(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	ps := []*producer{b.attachProducer("p", topicSync), b.attachProducer("q", topicSync)}
	b.mustHalf("id", "a")
	next := func() int {
		for i, p := range ps {
			select {
			case <-p.notices:
				return i
			default:
			}
		}
		return -1
	}
	b.pass(6 * time.Second)
	first := next()
	require.GreaterOrEqual(t, first, 0)
	require.Equal(t, -1, next(), "one is told")
	b.pass(4 * time.Second)
	require.Equal(t, -1, next())
	b.pass(time.Second)
	second := next()
	require.Equal(t, 1-first, second, "the first did not fetch")
	require.Len(t, ps[second].take(1), 1)
	require.NoError(t, ps[second].broker.Close())
	for range 3 {
		b.pass(30 * time.Second)
		require.Equal(t, first, next())
		require.Len(t, ps[first].take(1), 1)
	}
}

func TestChecksInParts(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	p := b.attachProducer("p", topicSync)
	for i := range 5 {
		b.mustHalf(fmt.Sprint(i), fmt.Sprint(i))
	}
	b.pass(6 * time.Second)
	r, err := wait(t, func(done func(*brokerapi.ChecksReply, error)) {
		p.broker.Checks(&brokerapi.ChecksRequest{Max: 3}, done)
	})
	require.NoError(t, err)
	require.Len(t, r.Checks, 3)
	require.True(t, r.More)
	r.Release()
	require.Len(t, p.take(10), 2)
	_, err = wait(t, func(done func(*brokerapi.ChecksReply, error)) { p.broker.Checks(&brokerapi.ChecksRequest{}, done) })
	require.True(t, mqerr.Is(err, mqerr.Invalid))
}

// TestGivenUp: what is never answered goes to a topic where it can be read, once that topic exists.
func TestGivenUp(t *testing.T) {
	var wanted atomic.Int32
	b := newBench(t, Options{Txn: TxnOptions{CheckLimit: 2}})
	b.opt.Events.WantTopic = func(name string) {
		require.Equal(t, "%TXN%sync", name)
		wanted.Add(1)
	}
	b.mustOpen()
	b.define()
	p := b.attachProducer("p", topicSync)
	b.mustHalf("id", "a")
	b.pass(6 * time.Second)
	require.Len(t, p.take(1), 1)
	b.pass(30 * time.Second)
	require.Len(t, p.take(1), 1)
	require.EqualValues(t, 1, wanted.Load(), "with the last check")
	b.pass(30 * time.Second)
	require.Empty(t, p.take(1))
	require.EqualValues(t, 2, wanted.Load())
	require.Zero(t, b.engine.Counts().GivenUp.Load(), "there is no such topic: it waits")
	b.sameAgain()

	defineParking(b)
	b.pass(30 * time.Second)
	require.EqualValues(t, 1, b.engine.Counts().GivenUp.Load())
	b.sameAgain()
	got := b.mustPop(topicParked, groupA)
	require.Equal(t, []string{"a"}, bodies(got))
	require.Equal(t, map[string]string{propertyReason: reasonNoAnswer}, pairs(t, got[0].User, userPropertiesField))
	require.Equal(t, map[string]string{"sync": "id"}, pairs(t, got[0].Sys, deadLetterQueueField))
	require.Equal(t, []error{nil}, b.ack(topicParked, groupA, got...))
	require.Empty(t, b.mustPop(topicSync, groupA))
	require.True(t, mqerr.Is(b.end("id", true), mqerr.Invalid), "it is decided")
}

// TestGivenUpWithoutProducer: nobody ever came.
func TestGivenUpWithoutProducer(t *testing.T) {
	b := newBench(t, Options{Txn: TxnOptions{GiveUpAfter: time.Hour}})
	b.mustOpen()
	b.define()
	defineParking(b)
	for i := range giveUpsMax + 10 {
		b.mustHalf(fmt.Sprint(i), "x")
	}
	b.pass(59 * time.Minute)
	require.Zero(t, b.engine.Counts().GivenUp.Load())
	b.pass(time.Minute)
	b.look()
	require.EqualValues(t, giveUpsMax+10, b.engine.Counts().GivenUp.Load())
	b.sameAgain()
}
