package broker

import (
	"context"

	"github.com/perigee-mq/perigee/broker/ctl"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/repl"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// fresh is a broker whose answers that are no records are given only while it surely leads: a master that has been
// replaced, and does not know, may have old ones. What is answered after a record needs no such thing: the record is
// confirmed in this epoch, or there is no answer. Messages that are read lie below the confirm offset, whoever leads.
type fresh struct {
	brokerapi.Connector
	sure func() error // why it may not lead any more
}

// Attach opens the broker for one proxy.
func (f fresh) Attach(proxy string, ev brokerapi.Events) (brokerapi.Broker, error) {
	b, err := f.Connector.Attach(proxy, ev)
	if err != nil {
		return nil, err
	}
	return freshBroker{b, f.sure}, nil
}

type freshBroker struct {
	brokerapi.Broker
	sure func() error
}

// surely reads, and is sure of the lead before and after.
func surely[R any](sure func() error, read func() (R, error)) (R, error) {
	var none R
	if err := sure(); err != nil {
		return none, err
	}
	r, err := read()
	if err != nil {
		return r, err
	}
	if err := sure(); err != nil {
		return none, err
	}
	return r, nil
}

// Offset tells of places in a queue.
func (b freshBroker) Offset(ctx context.Context, req *brokerapi.OffsetRequest) (*brokerapi.OffsetReply, error) {
	return surely(b.sure, func() (*brokerapi.OffsetReply, error) { return b.Broker.Offset(ctx, req) })
}

// LiteList lists lite topics.
func (b freshBroker) LiteList(ctx context.Context, req *brokerapi.LiteListRequest) (*brokerapi.LiteListReply, error) {
	return surely(b.sure, func() (*brokerapi.LiteListReply, error) { return b.Broker.LiteList(ctx, req) })
}

// DescribeGroup tells how far a group is.
func (b freshBroker) DescribeGroup(ctx context.Context, topic brokerapi.TopicID, group brokerapi.GroupID) ([]brokerapi.GroupQueue, error) {
	return surely(b.sure, func() ([]brokerapi.GroupQueue, error) { return b.Broker.DescribeGroup(ctx, topic, group) })
}

// DescribeTopic tells what is in the queues of a topic.
func (b freshBroker) DescribeTopic(ctx context.Context, topic brokerapi.TopicID) ([]brokerapi.TopicQueue, error) {
	return surely(b.sure, func() ([]brokerapi.TopicQueue, error) { return b.Broker.DescribeTopic(ctx, topic) })
}

// connector is what clients reach. A replica that is alone is the only one that can lead; l is nil then.
func (b *Broker) connector(e *engine.Engine, l *repl.Leader, s *ctl.Session) brokerapi.Connector {
	if l == nil {
		return e
	}
	return fresh{e, func() error {
		if s.Lease.Valid() {
			return nil
		}
		return mqerr.New(mqerr.NotLeader, "broker %s can't tell whether it still leads, since no controller has confirmed it for a while: messages flow, but what only a master knows is not told", b.name())
	}}
}
