package main

import (
	"github.com/perigee-mq/perigee/broker"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/internal/obs"
)

// brokerPart is a broker on the health pages.
func brokerPart(b *broker.Broker) obs.Part {
	return obs.Part{Name: "broker", Ready: b.Healthy, Progress: func() (obs.Progress, bool) {
		p := b.Progress()
		return obs.Progress{From: int64(p.From), At: int64(p.At), End: int64(p.To), Records: p.Records, Took: p.Took}, p.Stage == engine.StageLog
	}}
}
