package broker

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/space"
)

// spaceGauges show how full the disk is and who is refused.
type spaceGauges struct {
	level, used, free, room, stuck, ballast metric.Int64ObservableGauge
	refused                                 metric.Int64ObservableCounter
}

func newSpaceGauges(r *registrar) *spaceGauges {
	return &spaceGauges{
		level:   r.gauge("perigee_space_level", "who is refused for lack of space: 0 nobody, 1 nobody but room is made, 2 producers, 3 producers and consumers", ""),
		used:    r.gauge("perigee_space_used", "used part of the file system with the broker's data, whoever uses it; absent if it is not known", "bytes"),
		free:    r.gauge("perigee_space_free", "free part of the file system with the broker's data; absent if it is not known", "bytes"),
		room:    r.gauge("perigee_space_log_room", "what can be appended to the commit log into files that are there", "bytes"),
		stuck:   r.gauge("perigee_space_stuck", "1 while the next file of the commit log or of the consume queues cannot be made", ""),
		ballast: r.gauge("perigee_space_ballast", "space that is kept on the disk for the checkpoint of retention; 0 while it is used, or if the disk has none for it", "bytes"),
		refused: r.counter("perigee_space_refused", "requests refused for lack of space, by who wanted to write; of what the broker does by itself: how often it was put off", "writer"),
	}
}

func (g *spaceGauges) observe(o metric.Observer, e *engine.Engine) {
	s := e.Space()
	o.ObserveInt64(g.level, int64(s.Level))
	if u := s.Seen.Disk; u.Total > 0 {
		o.ObserveInt64(g.used, int64(u.Total-min(u.Free, u.Total)))
		o.ObserveInt64(g.free, int64(u.Free))
	}
	o.ObserveInt64(g.room, s.Seen.Room)
	stuck := int64(0)
	if s.Seen.Stuck != nil || s.Seen.Queues != nil {
		stuck = 1
	}
	o.ObserveInt64(g.stuck, stuck)
	o.ObserveInt64(g.ballast, e.Ballast())
	for who := range space.Writers {
		o.ObserveInt64(g.refused, e.SpaceRefused(who), metric.WithAttributes(attribute.String("writer", who.String())))
	}
}
