package server

import (
	"fmt"
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// delayLimit is the longest time from a send to a delivery time.
type delayLimit struct {
	max   time.Duration
	topic string // that states it, else it is this proxy's
}

// delayOf is the limit of a topic; nil is one that is not known.
func (l *Limits) delayOf(t *route.Topic) delayLimit {
	if t == nil || t.Limits.MaxDelay == 0 {
		return delayLimit{max: l.DelayMax}
	}
	return delayLimit{max: t.Limits.MaxDelay, topic: t.Name}
}

// check says whether a message may be delivered when it says.
func (d delayLimit) check(m *wire.SendMessage, now time.Time) refusal {
	if !m.DeliverAt.Set {
		return refusal{}
	}
	at, ok := m.DeliverAt.UnixMillis()
	switch {
	case !ok:
		return refuse(rmqv2.Code_ILLEGAL_DELIVERY_TIME, "the delivery time is no time")
	case at-now.UnixMilli() <= d.max.Milliseconds():
		return refusal{}
	}
	whose := "the limit of this proxy (--max-delay); a topic may have its own"
	if d.topic != "" {
		whose = "the limit of topic " + d.topic + " (perigee topic update --max-delay)"
	}
	return refuse(rmqv2.Code_ILLEGAL_DELIVERY_TIME, fmt.Sprintf("the delivery time is more than %v away, %s", d.max, whose))
}
