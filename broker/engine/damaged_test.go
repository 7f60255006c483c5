package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// TestDamagedMessage is left out of the reply, counted, and left alone for a while: a receive that is
// repeated under its attempt id once met it again and again, without a pause.
//
//fault:damage a stored message is damaged while the broker runs => it is left out, counted and left alone for a while; what is around it comes
func TestDamagedMessage(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	sent := b.mustSend(topicSync, "one", "two", "three")
	f, err := b.fs.Open("data/log/00000000000000000000")
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{0xff}, int64(sent[0].Pos)+record.HeaderSize+20)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	req := brokerapi.PopRequest{
		Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupB), AttemptID: "attempt", Client: "push", Session: true, Arm: true,
	}
	ms, more, err := b.pop(req)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, []string{"two", "three"}, bodies(ms))
	require.EqualValues(t, 1, b.engine.counts.Damaged.Load())
	require.Equal(t, []error{nil, nil}, b.ack(topicSync, groupB, ms...))

	ms, more, err = b.pop(req)
	require.NoError(t, err)
	require.Empty(t, ms)
	require.False(t, more, "a receive that is told of more comes at once")
	b.mustSend(topicSync, "four")
	require.EqualValues(t, 1, b.event().Count, "the repeated receive has armed")
	ms, _, err = b.pop(req)
	require.NoError(t, err)
	require.Equal(t, []string{"four"}, bodies(ms))
	require.EqualValues(t, 1, b.engine.counts.Damaged.Load(), "nobody has asked for it again")

	q, err := b.proxy.DescribeGroup(t.Context(), req.Topic, req.Group)
	require.NoError(t, err)
	waiting := int64(0)
	for _, one := range q {
		waiting += one.Waiting
	}
	require.EqualValues(t, 1, waiting, "it is not done")
	b.clock.advance(61 * time.Second) // the longest delay of the group
	require.Equal(t, 1, len(b.mustPop(topicSync, groupB)), "four, whose client said nothing")
	require.EqualValues(t, 2, b.engine.counts.Damaged.Load(), "it is looked at again")
}

// TestOldMessages: those that are not mapped any more, or that this process did not write, are read
// beside the writer.
func TestOldMessages(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	want := map[string]bool{}
	for i := range 50 {
		body := string(make([]byte, 100_000)) + time.Duration(i).String()
		want[body] = true
		b.mustSend(topicAsync, body)
	}
	require.False(t, b.engine.log.Hot(record.Pos(200_000)))
	b.again()
	for len(want) > 0 {
		ms := b.mustPop(topicAsync, groupA)
		require.NotEmpty(t, ms)
		for _, m := range ms {
			require.True(t, want[m.body])
			delete(want, m.body)
		}
		b.ack(topicAsync, groupA, ms...)
	}
	require.Zero(t, b.underWay())
}

// underWay is what the inbox counts, once everything is answered.
func (b *bench) underWay() int {
	b.t.Helper()
	b.turns()
	in := &b.engine.inbox
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.waiting == 0 && in.size != 0 {
		b.t.Errorf("%d bytes of no request", in.size)
	}
	return in.waiting
}

// TestCloseWhileReading: a receive whose messages are read beside the writer is answered before proxies
// hear that the broker is gone.
func TestCloseWhileReading(t *testing.T) {
	fs := &hookFS{FS: memfs.New()}
	b := newBench(t, Options{})
	b.fs = fs
	b.mustOpen()
	b.define()
	for range 50 {
		b.mustSend(topicAsync, string(make([]byte, 100_000)))
	}
	order := make(chan string, 2)
	proxy, err := b.engine.Attach("second", brokerapi.Events{Down: func(error) { order <- "down" }})
	require.NoError(t, err)
	reading, read := make(chan struct{}), make(chan struct{})
	fs.set(func(op, _ string) error {
		if op == "read" {
			close(reading)
			<-read
		}
		return nil
	})
	proxy.Pop(&brokerapi.PopRequest{Topic: brokerapi.TopicID(topicAsync), Group: brokerapi.GroupID(groupA), Client: "c", Max: 1, Invisible: time.Minute},
		func(r *brokerapi.PopReply, err error) {
			if err != nil || len(r.Messages) != 1 {
				t.Errorf("answer %v, %v", r, err)
			}
			r.Release()
			order <- "answer"
		})
	<-reading
	e, closed := b.engine, make(chan error, 1)
	b.engine = nil
	go func() { _, err := e.Close(); closed <- err }()
	require.Eventually(t, func() bool { e.inbox.mu.Lock(); defer e.inbox.mu.Unlock(); return e.inbox.closed != nil }, 10*time.Second, time.Millisecond)
	select {
	case what := <-order:
		order <- what
		t.Errorf("%s, while a call is not answered", what)
	case <-time.After(50 * time.Millisecond):
	}
	close(read)
	require.NoError(t, <-closed)
	require.Equal(t, "answer", <-order)
	require.Equal(t, "down", <-order)
	require.NoError(t, b.store.Close())
}

// TestDamagedInOrder: what waits behind a damaged message of its message group goes on without it, whether it is found
// when it is to be handed out, or when it is to be moved to the dead-letter topic.
//
//fault:damage a message of a message group is damaged while the broker runs => it is done for the group that comes to it, counted and told of once with file and offset; the messages behind it come
func TestDamagedInOrder(t *testing.T) {
	var log lockedBuffer
	b := newOrderedBench(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, b.engine.Define(t.Context(), &Definitions{
		Topics: []topic.Definition{{ID: 50, Name: deadPrefix + "ordered", Queues: 1, Version: 20}}, Version: 20,
	}))
	b.sendGroups("A1", "A2", "A3", "B1")
	a1, a2 := b.position(0), b.position(1)
	b.damageRecord(a2, inBody)
	require.Equal(t, "A1", names(b.popN(1)))
	for range 2 { // three attempts in all
		b.clock.advance(31 * time.Second)
		require.Len(t, b.popN(1), 1)
	}
	b.damageRecord(a1, inBody)
	b.clock.advance(31 * time.Second)
	var got string
	b.until("the group goes on", func() bool {
		got += names(b.popN(1)) + " "
		return strings.Contains(got, "A3") && strings.Contains(got, "B1")
	})
	require.NotContains(t, got, "A2")
	require.EqualValues(t, 2, b.engine.counts.Damaged.Load())
	require.EqualValues(t, 2, b.engine.counts.DamagedDone.Load())
	require.Equal(t, 2, strings.Count(log.String(), "goes on without it"))
	require.Contains(t, log.String(), fmt.Sprintf("offset=%d", a1))
	b.same()
}

// lockedBuffer is what a logger writes to while a test reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
