package costs

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/store"
)

const (
	topicSync  = 1
	topicAsync = 2
	groupA     = 1

	bodyBytes = 1024
	callers   = 64
	batch     = 32 // messages of a receive, at most
)

// broker is an engine on files, and callers that ask the same again and again. Each has one request under way.
type broker struct {
	meter
	t      *testing.T
	s      brokerapi.Broker
	done   chan error
	ids    uint64
	leased []brokerapi.Handle
	sends  [callers]brokerapi.SendRequest
}

func newBroker(t *testing.T) *broker {
	b := &broker{t: t, done: make(chan error, callers)}
	b.fs = faultfs.Wrap(vfs.OS)
	st, err := store.Open(store.Options{FS: b.fs, Dir: t.TempDir(), SegmentBytes: 256 << 20})
	require.NoError(t, err)
	b.end = func() int64 { return int64(st.Log().Written()) }
	e, err := engine.Open(engine.Options{Store: st, CheckpointBytes: 1 << 40, CheckpointInterval: time.Hour})
	require.NoError(t, err)
	require.NoError(t, e.Start(engine.Identity{Epoch: 1, Incarnation: 1}))
	require.NoError(t, e.Define(t.Context(), &engine.Definitions{
		Topics: []topic.Definition{
			{ID: topicSync, Name: "sync", Queues: 4, Flush: topic.FlushSync, Version: 1},
			{ID: topicAsync, Name: "async", Queues: 4, Flush: topic.FlushAsync, Version: 2},
		},
		Groups: []group.Definition{{ID: groupA, Name: "a", MaxAttempts: 17, Version: 3}},
		Full:   true, Version: 3,
	}))
	t.Cleanup(func() {
		_, err := e.Close()
		require.NoError(t, err)
		require.NoError(t, st.Close())
	})
	b.s, err = e.Attach("costs", brokerapi.Events{})
	require.NoError(t, err)
	return b
}

func (b *broker) wait(n int) {
	for range n {
		if err := <-b.done; err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *broker) sent(_ *brokerapi.SendReply, err error) { b.done <- err }
func (b *broker) acked(_ *brokerapi.AckReply, err error) { b.done <- err }

func (b *broker) popped(r *brokerapi.PopReply, err error) {
	if err == nil {
		for i := range r.Messages {
			m := &r.Messages[i]
			b.leased = append(b.leased, brokerapi.Handle{Queue: m.Queue, Offset: m.Offset, Lease: m.Lease, Epoch: m.Epoch})
		}
		r.Release()
	}
	b.done <- err
}

// send stores n messages in each of the requests of so many callers, all at once.
func (b *broker) send(topic brokerapi.TopicID, callers, n int) {
	for i := range callers {
		r := &b.sends[i]
		for r.Topic = topic; len(r.Messages) < n; {
			r.Messages = append(r.Messages, brokerapi.Message{
				Queue: brokerapi.AnyQueue, Type: brokerapi.Normal, ID: make([]byte, 16), Body: make([]byte, bodyBytes), User: make([]byte, 128),
			})
		}
		for j := range n {
			b.ids++
			binary.BigEndian.PutUint64(r.Messages[j].ID, b.ids)
		}
		b.s.Send(r, b.sent)
	}
	b.wait(callers)
}

func (b *broker) fill(n int) {
	for ; n > 0; n -= batch {
		b.send(topicAsync, 1, batch)
	}
}

func (b *broker) receive(times int) {
	for range times {
		b.s.Pop(&brokerapi.PopRequest{Topic: topicAsync, Group: groupA, Client: "client", Max: batch, Invisible: time.Hour}, b.popped)
		b.wait(1)
	}
}

// ack ends all leases, so many in a request.
func (b *broker) ack(n int) {
	for len(b.leased) > 0 {
		r := &brokerapi.AckRequest{Topic: topicAsync, Group: groupA, Handles: b.leased[:min(n, len(b.leased))]}
		b.s.Ack(r, b.acked)
		b.wait(1)
		b.leased = b.leased[len(r.Handles):]
	}
	b.leased = nil
}
