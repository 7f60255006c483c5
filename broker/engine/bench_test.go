package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/record"
)

// BenchmarkCalls measures one caller of the direct session: what a request costs beside transport and disk.
// Run it with -benchmem: the budget is about allocations.
func BenchmarkCalls(b *testing.B) {
	for _, n := range []int{1, 32} {
		b.Run(fmt.Sprintf("send/%d", n), func(b *testing.B) {
			c := newCaller(b)
			req := c.messages(n)
			b.ReportAllocs()
			for b.Loop() {
				c.send(req)
			}
		})
	}
	b.Run("pop/32", func(b *testing.B) {
		c := newCaller(b)
		c.fill(b, 32*b.N)
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			c.pop()
		}
		require.Len(b, c.handles, 32)
	})
	b.Run("pop+ack/32", func(b *testing.B) {
		c := newCaller(b)
		c.fill(b, 32*b.N)
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			c.pop()
			c.ack()
		}
	})
	b.Run("empty pop", func(b *testing.B) {
		c := newCaller(b)
		b.ReportAllocs()
		for b.Loop() {
			c.pop()
		}
	})
}

// caller is one caller that makes the same requests again and again.
type caller struct {
	b       *testing.B
	s       brokerapi.Broker
	done    chan error
	handles []brokerapi.Handle

	sent   func(*brokerapi.SendReply, error)
	popped func(*brokerapi.PopReply, error)
	acked  func(*brokerapi.AckReply, error)
}

func newCaller(b *testing.B) *caller {
	st, err := store.Open(store.Options{FS: memfs.New(), Dir: "data", SegmentBytes: 64 << 20})
	require.NoError(b, err)
	e, err := Open(Options{Store: st, CheckpointBytes: 1 << 40, CheckpointInterval: time.Hour})
	require.NoError(b, err)
	require.NoError(b, e.Start(Identity{Epoch: 1, Incarnation: 1}))
	require.NoError(b, e.Define(b.Context(), definitions()))
	b.Cleanup(func() {
		_, err := e.Close()
		require.NoError(b, err)
		require.NoError(b, st.Close())
	})
	c := &caller{b: b, done: make(chan error, 1)}
	c.s, err = e.Attach("bench", brokerapi.Events{})
	require.NoError(b, err)
	c.sent = func(_ *brokerapi.SendReply, err error) { c.done <- err }
	c.acked = func(_ *brokerapi.AckReply, err error) { c.done <- err }
	c.popped = func(r *brokerapi.PopReply, err error) {
		c.handles = c.handles[:0]
		if err == nil {
			for i := range r.Messages {
				m := &r.Messages[i]
				c.handles = append(c.handles, brokerapi.Handle{Queue: m.Queue, Offset: m.Offset, Lease: m.Lease, Epoch: m.Epoch})
			}
			r.Release()
		}
		c.done <- err
	}
	return c
}

func (c *caller) wait() {
	if err := <-c.done; err != nil {
		c.b.Fatal(err)
	}
}

func (c *caller) messages(n int) *brokerapi.SendRequest {
	req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(topicAsync)}
	for range n {
		req.Messages = append(req.Messages, message("0123456789012345678901234567890123456789012345678901234567890123"))
	}
	return req
}

// fill stores n messages.
func (c *caller) fill(b *testing.B, n int) {
	b.StopTimer()
	req := c.messages(1024)
	for ; n > 0; n -= len(req.Messages) {
		c.send(req)
	}
	b.StartTimer()
}

func (c *caller) send(req *brokerapi.SendRequest) {
	c.s.Send(req, c.sent)
	c.wait()
}

func (c *caller) pop() {
	c.s.Pop(&brokerapi.PopRequest{
		Topic: brokerapi.TopicID(topicAsync), Group: brokerapi.GroupID(groupA), Client: "client", Max: 32, Invisible: time.Minute, Arm: true,
	}, c.popped)
	c.wait()
}

func (c *caller) ack() {
	c.s.Ack(&brokerapi.AckRequest{Topic: brokerapi.TopicID(topicAsync), Group: brokerapi.GroupID(record.GroupID(groupA)), Handles: c.handles}, c.acked)
	c.wait()
}
