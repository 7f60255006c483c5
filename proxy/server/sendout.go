package server

import (
	"crypto/md5"
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// prepare makes the broker's messages. The digest is over the body as received.
func (d *send) prepare(now time.Time) {
	peer := ""
	for i := range d.req.Messages {
		m := &d.req.Messages[i]
		if len(m.BornHost) == 0 && peer == "" {
			peer = d.call.Peer()
		}
		typ := typeOf(m)
		from := len(d.sys)
		d.sys = m.AppendSystem(d.sys, wire.System{
			Type: int32(typ), Encoding: encodingOf(m), BornMS: now.UnixMilli(), BornHost: peer,
		})
		out := brokerapi.Message{
			Queue: brokerapi.AnyQueue, Type: typ, Digest: md5.Sum(m.Body),
			Priority: m.Priority, ID: m.MessageID, User: m.User, Sys: d.sys[from:len(d.sys):len(d.sys)], Body: m.Body,
		}
		if typ == brokerapi.Transaction && m.Recovery.Set {
			out.CheckAfter = max(0, m.Recovery.Duration())
		}
		if typ == brokerapi.Delay {
			out.DeliverAt = deliverAt(m)
		}
		if len(m.Tag) > 0 {
			out.TagHash = brokerapi.HashTag(m.Tag)
		}
		if len(m.Group) > 0 {
			out.GroupHash = brokerapi.HashGroup(m.Group)
		}
		if typ == brokerapi.Lite {
			out.Lite = string(m.LiteTopic)
		}
		d.out.Messages = append(d.out.Messages, out)
	}
}

// deliverAt is the time of a delayed message, never before what the sender said.
func deliverAt(m *wire.SendMessage) int64 {
	ms, _ := m.DeliverAt.UnixMillis()
	if m.DeliverAt.Nanos%1e6 > 0 {
		ms++
	}
	return max(ms, 0)
}

func encodingOf(m *wire.SendMessage) int32 {
	if m.BodyEncoding == int32(rmqv2.Encoding_GZIP) {
		return m.BodyEncoding
	}
	return int32(rmqv2.Encoding_IDENTITY)
}

// home sets the queues of messages with a message group and returns their shard, or that of messages of a
