package brokerconn

import (
	"sync/atomic"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Local is a broker in the same process, found like one of a Pool.
type Local struct {
	shard  brokerapi.ShardID
	epoch  brokerapi.Epoch
	broker brokerapi.Broker
	down   atomic.Pointer[mqerr.Error]
}

// AttachLocal attaches to a broker of this process that leads a shard. It can be asked from
// the start, so Up is not told.
func AttachLocal(proxy string, c brokerapi.Connector, shard brokerapi.ShardID, epoch brokerapi.Epoch, ev Events) (*Local, error) {
	l := &Local{shard: shard, epoch: epoch}
	events := brokerapi.Events{Down: func(err error) {
		l.down.Store(mqerr.New(mqerr.Unavailable, "the broker has stopped: %w", err))
		if ev.Down != nil {
			ev.Down(shard, err)
		}
	}}
	if ev.Ready != nil {
		events.Ready = func(ready []brokerapi.Ready) { ev.Ready(shard, ready) }
	}
	if ev.Notice != nil {
		events.Notice = func(n brokerapi.Notice) { ev.Notice(shard, n) }
	}
	b, err := c.Attach(proxy, events)
	if err != nil {
		return nil, err
	}
	l.broker = b
	return l, nil
}

// Broker returns the broker if it leads the shard.
func (l *Local) Broker(shard brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	if shard != l.shard {
		return nil, 0, mqerr.New(mqerr.Unavailable, "shard %d is not in this process", shard)
	}
	if err := l.down.Load(); err != nil {
		return nil, 0, err
	}
	return l.broker, l.epoch, nil
}

// Close ends the use of the broker.
func (l *Local) Close() error { return l.broker.Close() }
