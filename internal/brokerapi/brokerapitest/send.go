package brokerapitest

import (
	"bytes"
	"crypto/md5"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

func own(all []brokerapi.Delivery) []brokerapi.Delivery {
	all = slices.Clone(all)
	for i := range all {
		m := &all[i]
		m.User, m.Sys, m.Body = bytes.Clone(m.User), bytes.Clone(m.Sys), bytes.Clone(m.Body)
	}
	return all
}

// Everything that a message says arrives as it was sent.
func fields(s *session) {
	before := time.Now().UnixMilli()
	sys := []byte{1<<3 | 2, 3, 't', 'a', 'g'}
	m := brokerapi.Message{
		Queue: 1, Type: brokerapi.FIFO, TagHash: brokerapi.HashTag([]byte("tag")), GroupHash: brokerapi.HashGroup([]byte("group")),
		Digest: md5.Sum([]byte("body")), ID: []byte("an id"), User: []byte("user properties"), Sys: sys, Body: []byte("body"),
	}
	stored := s.send(m)[0]
	require.Equal(s.t, brokerapi.QueueID(1), stored.Queue)
	require.Zero(s.t, stored.Offset)
	require.InDelta(s.t, before, stored.StoreTime, 30_000)

	got := s.pop(s.receive())
	require.Len(s.t, got, 1)
	d := got[0]
	require.Equal(s.t, stored.Queue, d.Queue)
	require.Equal(s.t, stored.Offset, d.Offset)
	require.Equal(s.t, stored.StoreTime, d.StoreTime)
	require.Equal(s.t, s.Epoch, d.Epoch)
	require.Equal(s.t, int32(1), d.Attempt)
	require.Equal(s.t, brokerapi.FIFO, d.Type)
	require.Zero(s.t, d.DeliverAt)
	require.Equal(s.t, m.Digest, d.Digest)
	require.Equal(s.t, "user properties", string(d.User))
	require.Equal(s.t, string(sys), string(d.Sys))
	require.Equal(s.t, "body", string(d.Body))
	s.ok(s.ack(s.Group, handle(d)))

	// A message may have nothing but an id.
	s.send(brokerapi.Message{Queue: 0, Type: brokerapi.Normal, ID: []byte("x")})
	got = s.pop(s.receive())
	require.Len(s.t, got, 1)
	require.Empty(s.t, got[0].User)
	require.Empty(s.t, got[0].Sys)
	require.Empty(s.t, got[0].Body)
	require.Zero(s.t, got[0].Digest)
}

// The messages of one request stand next to each other, in order.
func batch(s *session) {
	s.send(message(0, 0))
	var all []brokerapi.Message
	for i := range 20 {
		all = append(all, message(0, i+1))
	}
	results := s.send(all...)
	for i, r := range results {
		require.Equal(s.t, brokerapi.QueueOffset(i+1), r.Offset)
		require.Zero(s.t, r.Queue)
		if i > 0 {
			require.Greater(s.t, r.Pos, results[i-1].Pos)
			require.GreaterOrEqual(s.t, r.StoreTime, results[i-1].StoreTime)
		}
	}
	got := s.pop(s.receive())
	require.Len(s.t, got, 21)
	for i, d := range got {
		require.Equal(s.t, brokerapi.QueueOffset(i), d.Offset)
		require.Equal(s.t, string(message(0, i).Body), string(d.Body))
	}
}

// The broker spreads what has no queue of its own, and a pop finds messages of every queue.
func anyQueue(s *session) {
	n := 4 * s.Queues
	used := map[brokerapi.QueueID]int{}
	for i := range n {
		r := s.send(message(brokerapi.AnyQueue, i))[0]
		require.Equal(s.t, brokerapi.QueueOffset(used[r.Queue]), r.Offset, "offsets of a queue are dense")
		used[r.Queue]++
	}
	require.Len(s.t, used, s.Queues)
	seen := map[string]bool{}
	for _, d := range s.popUntil(n) {
		require.False(s.t, seen[string(d.Body)], "%s came twice", d.Body)
		seen[string(d.Body)] = true
	}
	require.Empty(s.t, s.pop(s.receive()))
}

func body(size int, seed byte) []byte {
	b := make([]byte, size)
	x := uint32(seed) + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// Large and odd sizes arrive whole.
func largeBody(s *session) {
	for i, size := range []int{1, 255, 256, 65_000, 65_536, 70_000, 1 << 20, 4 << 20} {
		m := message(0, i)
		m.Body = body(size, byte(i))
		s.send(m)
		got := s.pop(s.receive())
		require.Len(s.t, got, 1)
		require.True(s.t, bytes.Equal(m.Body, got[0].Body), "a body of %d bytes", size)
		s.ok(s.ack(s.Group, handle(got[0])))
	}
}

// Whatever a caller asks for, replies keep to its bound of bytes and nothing is lost.
func largeReplies(s *session) {
	const n = 24
	for i := range n {
		m := message(0, i)
		m.Body = body(1<<20, byte(i))
		s.send(m)
	}
	seen := map[brokerapi.QueueOffset]bool{}
	for _, limit := range []int{0, 3 << 20, 256 << 20, 256 << 20} {
		got := s.pop(s.receive(func(r *brokerapi.PopRequest) { r.MaxBytes = limit }))
		require.NotEmpty(s.t, got)
		total := 0
		for _, d := range got {
			require.False(s.t, seen[d.Offset])
			seen[d.Offset] = true
			require.True(s.t, bytes.Equal(body(1<<20, byte(d.Offset)), d.Body))
			total += len(d.Body)
		}
		if limit == 0 {
			limit = 4 << 20
		}
		require.LessOrEqual(s.t, total, limit)
		if len(seen) == n {
			break
		}
	}
	require.Len(s.t, seen, n)
}

// A pop keeps to its bounds, but hands out at least one message.
func bounds(s *session) {
	for i := range 5 {
		m := message(0, i)
		m.Body = body(10_000, byte(i))
		s.send(m)
	}
	require.Len(s.t, s.pop(s.receive(atMost(2))), 2)
	require.Len(s.t, s.pop(s.receive(func(r *brokerapi.PopRequest) { r.MaxBytes = 1 })), 1)
	require.Len(s.t, s.pop(s.receive(func(r *brokerapi.PopRequest) { r.MaxBytes = 15_000 })), 1)
	require.Len(s.t, s.pop(s.receive()), 1)
}

// A filter takes what it matches; the rest is done for the group.
func filter(s *session) {
	for i, tag := range []string{"a", "b", "a", "c"} {
		s.send(tagged(i, tag))
	}
	s.send(message(0, 4))
	tags := func(tags ...string) func(*brokerapi.PopRequest) {
		return func(r *brokerapi.PopRequest) { r.Filter = brokerapi.Filter{Kind: brokerapi.FilterTags, Tags: tags} }
	}
	got := s.pop(s.receive(tags("a", "c", "never")))
	require.Len(s.t, got, 3)
	for i, off := range []brokerapi.QueueOffset{0, 2, 3} {
		require.Equal(s.t, off, got[i].Offset)
	}
	require.Empty(s.t, s.pop(s.receive()), "what the filter let pass is done")

	s.send(tagged(5, "a"))
	require.Empty(s.t, s.pop(s.receive(tags())), "no tags match nothing")
	require.Empty(s.t, s.pop(s.receive()))
	all := func(r *brokerapi.PopRequest) { r.Group = s.OtherGroup }
	require.Len(s.t, s.pop(s.receive(all)), 6, "another group has its own progress")
}

// The bytes of a reply stay as they are until it is released, whatever else happens.
func release(s *session) {
	for i := range 4 {
		m := message(0, i)
		m.User, m.Body = body(500, byte(i)), body(5000, byte(i))
		s.send(m)
	}
	var replies []*brokerapi.PopReply
	for range 4 {
		replies = append(replies, s.popReply(s.receive(atMost(1))))
	}
	for i := range 200 {
		m := message(0, 100+i)
		m.Body = body(5000, 0xAA)
		s.send(m)
	}
	for len(s.pop(s.receive())) > 0 {
	}
	for _, r := range replies {
		require.Len(s.t, r.Messages, 1)
		d := r.Messages[0]
		require.True(s.t, bytes.Equal(body(500, byte(d.Offset)), d.User))
		require.True(s.t, bytes.Equal(body(5000, byte(d.Offset)), d.Body))
		r.Release()
	}
}
