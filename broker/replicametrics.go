package broker

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/perigee-mq/perigee/broker/repl"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/obs"
)

// waitReasons are all of them.
var waitReasons = []quorum.Reason{quorum.OwnFlush, quorum.BelowMinISR, quorum.NoSession, quorum.NoAck, quorum.LateAck}

// registerReplica makes the instruments that tell what this replica does. They are there as long as the process is.
func (b *Broker) registerReplica() error {
	r := &registrar{obs.NewInstruments(b.o.Metrics)}
	role := r.gauge("perigee_replica_role", "1 for what this replica does now: starting, copying, following, promoting, defining, leading, resting", "", "role")
	confirm := r.gauge("perigee_replica_confirmed", "position below which everything is acknowledged, as far as this replica knows; absent in a group of one", "bytes")
	lag := r.gauge("perigee_replica_lag", "what a follower (label replica) has not acknowledged of the master's log; absent without a stream of it. On a follower: what it lacks itself", "bytes", "replica")
	late := r.gauge("perigee_replica_late", "how long ago a follower had acknowledged all that there was when it was sent something; absent without a stream of it", "milliseconds", "replica")
	set := r.gauge("perigee_sync_state_set", "replicas that count for what is acknowledged; only on a master of several", "")
	least := r.gauge("perigee_min_isr", "copies that there must be before anything is acknowledged; only on a master of several", "")
	waits := r.gauge("perigee_replica_waits", "1 while acknowledging waits for a reason: own_flush, below_min_isr, no_session, no_ack, late_ack; only on a master of several", "", "reason")
	full := r.gauge("perigee_replica_disk_full", "1 if this follower waits for room on its disk; only on a follower", "")
	events := r.counter("perigee_replica_events", "what this replica went through: epochs it led, those that ended without its doing (deposed), logs it took over from the beginning (copied)", "kind")
	return r.Observe(func(_ context.Context, o metric.Observer) error {
		p := b.now.Load()
		o.ObserveInt64(role, 1, metric.WithAttributes(attribute.String("role", string(p.role))))
		for kind, n := range map[string]int64{"led": b.counts.led.Load(), "deposed": b.counts.deposed.Load(), "copied": b.counts.copied.Load()} {
			o.ObserveInt64(events, n, kindOf(kind))
		}
		if p.follower != nil {
			if s, ok := p.follower.Status(); ok {
				o.ObserveInt64(confirm, int64(s.Confirm))
				o.ObserveInt64(full, one(s.DiskFull))
				if s.LagBytes >= 0 {
					o.ObserveInt64(lag, s.LagBytes, replicaOf(b.self.Replica))
				}
			}
		}
		if p.leader == nil {
			return nil
		}
		s, ok := p.leader.Status()
		if !ok {
			return nil
		}
		o.ObserveInt64(confirm, int64(s.Confirm))
		o.ObserveInt64(set, int64(len(s.Set)))
		o.ObserveInt64(least, int64(s.MinISR))
		for _, x := range s.Peers {
			if x.LagBytes >= 0 {
				o.ObserveInt64(lag, x.LagBytes, replicaOf(x.Replica))
				o.ObserveInt64(late, x.Lag.Milliseconds(), replicaOf(x.Replica))
			}
		}
		for _, reason := range waitReasons {
			o.ObserveInt64(waits, one(waitsFor(&s, reason)), metric.WithAttributes(attribute.String("reason", reason.String())))
		}
		return nil
	})
}

func waitsFor(s *repl.LeaderStatus, reason quorum.Reason) bool {
	for _, w := range s.Waits {
		if w.Reason == reason {
			return true
		}
	}
	return false
}

func replicaOf(id quorum.Replica) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("replica", strconv.FormatUint(uint64(id), 10)))
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
