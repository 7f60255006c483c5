package server

import (
	"cmp"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/longpoll"
	"github.com/perigee-mq/perigee/proxy/receipt"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// sendTimeout is how long a caller may take to read its answer. Then the call is cut off, and what
// it has not taken is given back.
const sendTimeout = time.Minute

// deliver writes leased messages to the stream. The broker's bytes are copied and let go first, so
// a slow reader holds on to its own messages only.
func (r *receive) deliver(a longpoll.Answer) {
	lease := longpoll.Lease{
		Shard: a.Shard, Topic: r.topic.ID, Group: r.group.ID, Handles: longpoll.Handles(a.Reply.Messages),
	}
	r.meetsGroups(a.Reply.Messages)
	messages, size := r.encode(a)
	a.Reply.Release()

	unsent := &r.s.receives.unsent
	unsent.Add(size)
	late := time.AfterFunc(cmp.Or(r.s.receives.cutOff, sendTimeout), func() { r.call.Fail(call.Cancelled, "the messages were not read in time") })
	taken := r.write(messages)
	late.Stop()
	unsent.Add(-size)

	lease.Handles = lease.Handles[taken:]
	r.s.o.Polls.GiveBack(lease)
	r.call.End()
}

// write sends status, messages and time, and returns how many messages the transport has taken.
func (r *receive) write(messages [][]byte) (taken int) {
	if r.call.Send(okReply(0)) != nil {
		return 0
	}
	for i, m := range messages {
		messages[i] = nil // the transport's now
		if r.call.Send(m) != nil {
			return i
		}
	}
	_ = r.call.Send(r.stamp()) // the messages arrived, with or without it
	return len(messages)
}

// encode makes the response of each message and returns their size together.
func (r *receive) encode(a longpoll.Answer) (messages [][]byte, size int64) {
	routes := r.s.o.Routes.Load()
	key := routes.HandleKeys()[0]
	secret := receipt.NewKey(key.Key)
	d := wire.Delivery{Topic: r.req.Queue.Topic.Bytes(), StoreHost: r.s.storeHost(r.call, a.Shard)}
	handle := make([]byte, 0, receipt.Size)
	messages = make([][]byte, len(a.Reply.Messages))
	for i := range a.Reply.Messages {
		m := &a.Reply.Messages[i]
		h := receipt.Handle{
			Topic: r.topic.ID, Group: r.group.ID, Shard: a.Shard,
			Handle: brokerapi.Handle{Queue: m.Queue, Offset: m.Offset, Lease: m.Lease, Epoch: m.Epoch},
		}
		d.Handle = h.Append(handle[:0], receipt.KeyID(key.ID), secret)
		messages[i] = wire.AppendDelivery(make([]byte, 0, wire.DeliverySize(m, &d)), m, &d)
		size += int64(len(messages[i]))
	}
	return messages, size
}

// storeHost is the address of the broker that stored a message. One in this process has none of its
// own and is known by the proxy's.
func (s *Server) storeHost(c call.Info, shard brokerapi.ShardID) string {
	if sh := s.o.Routes.Load().Shard(shard); sh != nil && sh.Address != "" {
		return sh.Address
	}
	return c.Local()
}
