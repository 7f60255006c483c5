package server

import (
	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/receipt"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// recallHandle appends the handle by which a message that waits for its time can be recalled.
func (d *send) recallHandle(dst []byte, i int, r *brokerapi.SendResult) []byte {
	m, keys := &d.out.Messages[i], d.routes.HandleKeys()
	if m.Type != brokerapi.Delay || r.Offset >= 0 || len(keys) == 0 {
		return dst
	}
	due := m.DeliverAt
	if r.Duplicate {
		due = r.DeliverAt // the one that waits is the first one
	}
	h := receipt.Recall{Topic: d.topic.ID, Shard: d.asked, Ref: r.Pos, DeliverAt: due}
	return h.Append(dst, receipt.KeyID(keys[0].ID), receipt.NewKey(keys[0].Key))
}

// reply has one entry per message: clients count them. The transaction id is the message id, for
// plain messages too. A message without an offset yet shows 0.
func (d *send) reply(results []brokerapi.SendResult) []byte {
	size := 0
	for i := range d.req.Messages {
		size += 32 + receipt.RecallSize + 2*len(d.req.Messages[i].MessageID)
	}
	dst := okReply(size)
	var handle []byte
	for i := range results {
		id := d.req.Messages[i].MessageID
		handle = d.recallHandle(handle[:0], i, &results[i])
		dst = wire.AppendSendEntry(dst, wire.SendEntry{
			Code: int32(rmqv2.Code_OK), Text: okText, MessageID: id, TransactionID: id, Offset: max(0, int64(results[i].Offset)), RecallHandle: handle,
		})
	}
	return dst
}
