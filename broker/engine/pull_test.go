package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// pulled is a reply with bytes of its own.
type pulled struct {
	bodies         []string
	offsets        []int64
	next, min, max int64
}

func pulledOf(r *brokerapi.PullReply) pulled {
	defer r.Release()
	p := pulled{next: int64(r.Next), min: int64(r.Min), max: int64(r.Max)}
	for _, m := range r.Messages {
		p.bodies = append(p.bodies, string(m.Body))
		p.offsets = append(p.offsets, int64(m.Offset))
	}
	return p
}

// startPull begins a pull; its answer comes on the channel.
func (b *bench) startPull(req brokerapi.PullRequest) chan answer[*brokerapi.PullReply] {
	if req.Topic == 0 {
		req.Topic = brokerapi.TopicID(topicSync)
	}
	if req.Max == 0 {
		req.Max = 32
	}
	c := make(chan answer[*brokerapi.PullReply], 1)
	b.proxy.Pull(&req, func(r *brokerapi.PullReply, err error) { c <- answer[*brokerapi.PullReply]{r, err} })
	return c
}

func (b *bench) pull(req brokerapi.PullRequest) (pulled, error) {
	b.t.Helper()
	return b.endPull(b.startPull(req))
}

func (b *bench) endPull(c chan answer[*brokerapi.PullReply]) (pulled, error) {
	b.t.Helper()
	select {
	case a := <-c:
		if a.err != nil {
			return pulled{}, a.err
		}
		return pulledOf(a.r), nil
	case <-time.After(20 * time.Second):
		b.t.Fatal("no answer within 20 s")
		panic("unreachable")
	}
}

func (b *bench) mustPull(req brokerapi.PullRequest) pulled {
	b.t.Helper()
	p, err := b.pull(req)
	require.NoError(b.t, err)
	return p
}

// sendTo stores messages in queue 0 with a tag, "" for none.
func (b *bench) sendTo(t record.TopicID, tag string, bodies ...string) {
	b.t.Helper()
	req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(t)}
	for _, body := range bodies {
		m := message(body)
		m.Queue = 0
		if tag != "" {
			m.TagHash = brokerapi.HashTag([]byte(tag))
			m.Sys = append([]byte{tagField<<3 | 2, byte(len(tag))}, tag...)
		}
		req.Messages = append(req.Messages, m)
	}
	_, err := wait(b.t, func(done func(*brokerapi.SendReply, error)) { b.proxy.Send(req, done) })
	require.NoError(b.t, err)
}

// parked waits until n pulls wait in the engine.
func (b *bench) parked(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		got := make(chan int, 1)
		if b.engine.call(b.t.Context(), func(w *writer) { got <- len(w.pulls.ends) }) != nil {
			return false
		}
		return <-got == n
	}, 10*time.Second, time.Millisecond)
}

func TestPull(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.sendTo(topicSync, "", "0", "1", "2", "3", "4")
	require.Equal(t, pulled{bodies: []string{"0", "1"}, offsets: []int64{0, 1}, next: 2, max: 5}, b.mustPull(brokerapi.PullRequest{Max: 2}))
	require.Equal(t, pulled{bodies: []string{"3", "4"}, offsets: []int64{3, 4}, next: 5, max: 5}, b.mustPull(brokerapi.PullRequest{Offset: 3}))
	require.Equal(t, pulled{next: 5, max: 5}, b.mustPull(brokerapi.PullRequest{Offset: 5}))
	require.Equal(t, pulled{bodies: []string{"1"}, offsets: []int64{1}, next: 2, max: 5}, b.mustPull(brokerapi.PullRequest{Offset: 1, MaxBytes: 1, Group: brokerapi.GroupID(groupA)}))
	before := b.state()
	require.Len(t, b.mustPop(topicSync, groupA), 5, "a pull leases nothing")
	b.again()
	require.NotEqual(t, before, b.state())
	require.Len(t, b.mustPull(brokerapi.PullRequest{}).bodies, 5, "after a restart, what is old is read from files")
}

func TestPullRefuses(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.sendTo(topicSync, "", "0")
	for name, c := range map[string]struct {
		req  brokerapi.PullRequest
		kind mqerr.Kind
	}{
		"topic":    {brokerapi.PullRequest{Topic: 99}, mqerr.TopicNotFound},
		"group":    {brokerapi.PullRequest{Group: 99}, mqerr.GroupNotFound},
		"queue":    {brokerapi.PullRequest{Queue: 4}, mqerr.NotFound},
		"queue -1": {brokerapi.PullRequest{Queue: -1}, mqerr.NotFound},
		"negative": {brokerapi.PullRequest{Offset: -1}, mqerr.Invalid},
		"beyond":   {brokerapi.PullRequest{Offset: 2}, mqerr.Invalid},
		"epoch":    {brokerapi.PullRequest{Head: brokerapi.Head{Epoch: 99}}, mqerr.Fenced},
	} {
		_, err := b.pull(c.req)
		require.True(t, mqerr.Is(err, c.kind), "%s: %v", name, err)
	}
}

// TestPullFilter: a filter that fits rarely is answered with the match, however many entries lie before it.
func TestPullFilter(t *testing.T) {
	b := newBench(t, Options{ScanEntries: 40})
	b.mustOpen()
	b.define()
	for i := range 10 {
		var bodies []string
		for j := range 30 {
			bodies = append(bodies, fmt.Sprint(i*30+j))
		}
		b.sendTo(topicSync, "dull", bodies...)
	}
	b.sendTo(topicSync, "rare", "found")
	rare := brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: []string{"rare"}}
	require.Equal(t, pulled{bodies: []string{"found"}, offsets: []int64{300}, next: 301, max: 301}, b.mustPull(brokerapi.PullRequest{Filter: rare}))
	none := brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: []string{"none"}}
	require.Equal(t, pulled{next: 301, max: 301}, b.mustPull(brokerapi.PullRequest{Filter: none}))
	require.Equal(t, pulled{next: 301, max: 301}, b.mustPull(brokerapi.PullRequest{Filter: brokerapi.Filter{Kind: brokerapi.FilterTags}}), "an empty list of tags matches nothing")
}

// TestPullTagText: two tags with one hash are told apart, and the pull goes on behind those that only seemed to fit.
func TestPullTagText(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync)}
	for range 3 {
		m := message("other")
		m.Queue, m.TagHash, m.Sys = 0, brokerapi.HashTag([]byte("tag")), []byte("\x0a\x05other")
		req.Messages = append(req.Messages, m)
	}
	_, err := wait(t, func(done func(*brokerapi.SendReply, error)) { b.proxy.Send(req, done) })
	require.NoError(t, err)
	tag := brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: []string{"tag"}}
	require.Equal(t, pulled{next: 3, max: 3}, b.mustPull(brokerapi.PullRequest{Filter: tag}))
	b.sendTo(topicSync, "tag", "it")
	require.Equal(t, pulled{bodies: []string{"it"}, offsets: []int64{3}, next: 4, max: 4}, b.mustPull(brokerapi.PullRequest{Filter: tag, Max: 1}))
	waits := b.startPull(brokerapi.PullRequest{Filter: tag, Offset: 4, Wait: time.Hour})
	b.parked(1)
	_, err = wait(t, func(done func(*brokerapi.SendReply, error)) { b.proxy.Send(req, done) })
	require.NoError(t, err)
	b.parked(1)
	b.sendTo(topicSync, "tag", "again")
	p, err := b.endPull(waits)
	require.NoError(t, err)
	require.Equal(t, []string{"again"}, p.bodies)
}

// TestPullWaits for a message of its own queue, and not longer than it said.
func TestPullWaits(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	first, second := b.startPull(brokerapi.PullRequest{Wait: 10 * time.Second}), b.startPull(brokerapi.PullRequest{Wait: 20 * time.Second})
	other := b.startPull(brokerapi.PullRequest{Queue: 1, Wait: 5 * time.Second})
	deadline := b.startPull(brokerapi.PullRequest{Queue: 1, Wait: time.Hour, Head: brokerapi.Head{Deadline: time.Now().Add(time.Minute)}})
	b.parked(4)
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) { require.Zero(t, w.e.inbox.waiting) }), "what waits keeps out nobody")
	b.sendTo(topicSync, "", "x")
	for _, c := range []chan answer[*brokerapi.PullReply]{first, second} {
		p, err := b.endPull(c)
		require.NoError(t, err)
		require.Equal(t, []string{"x"}, p.bodies)
	}
	b.clock.advance(5 * time.Second)
	b.state() // wakes the writer: its timer follows the real clock
	p, err := b.endPull(other)
	require.NoError(t, err)
	require.Equal(t, pulled{}, p)
	b.parked(1)
	b.clock.advance(time.Minute)
	b.state()
	p, err = b.endPull(deadline)
	require.NoError(t, err)
	require.Equal(t, pulled{}, p)
}

// TestPullsAreBounded, and answered when their session, their topic or the engine ends.
func TestPullsAreBounded(t *testing.T) {
	b := newBench(t, Options{PullsWaiting: 2})
	b.mustOpen()
	b.define()
	mine := b.proxy
	yours, err := b.engine.Attach("another", brokerapi.Events{})
	require.NoError(t, err)
	req := brokerapi.PullRequest{Wait: time.Hour}
	b.proxy = yours
	closed := b.startPull(req)
	b.proxy = mine
	topicEnds := b.startPull(brokerapi.PullRequest{Topic: brokerapi.TopicID(topicAsync), Wait: time.Hour})
	b.parked(2)
	_, err = b.pull(req)
	require.True(t, mqerr.Is(err, mqerr.Exhausted), "%v", err)
	require.NoError(t, yours.Close())
	_, err = b.endPull(closed)
	require.True(t, mqerr.Is(err, mqerr.Unavailable), "%v", err)

	require.NoError(t, b.engine.Define(t.Context(), &Definitions{DeletedTopics: []record.TopicID{topicAsync}, Version: 9}))
	_, err = b.endPull(topicEnds)
	require.True(t, mqerr.Is(err, mqerr.TopicNotFound), "%v", err)

	last := b.startPull(req)
	b.parked(1)
	_, err = b.engine.Close()
	require.NoError(t, err)
	_, err = b.endPull(last)
	require.True(t, mqerr.Is(err, mqerr.Draining), "%v", err)
	require.NoError(t, b.store.Close())
	b.engine = nil
}
