package broker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/internal/obs"
)

// scrapeTimeout bounds how long a collection waits for the engine.
const scrapeTimeout = 2 * time.Second

// register makes the instruments that need the engine. Names are those of RocketMQ 5 where the same thing is
// measured, perigee_ otherwise. Everything is observed from counters and views when it is collected;
// nothing is recorded per message. What cannot be had then is absent.
func (b *Broker) register(e *engine.Engine) error {
	r := b.instruments()
	parts := []func(metric.Observer, *engine.Snapshot){
		viewGauges(r, e), checkpointGauges(r, e), transactionGauges(r, e), delayGauges(r, e), topicGauges(r), groupGauges(r),
	}
	events := r.counter("perigee_broker_events", "what the broker has done, by kind", "kind")
	spaces := newSpaceGauges(r)
	retention := newRetentionGauges(r)
	index := indexGauges(r, e)
	queues := queueGauges(r, e)
	damage := damageGauges(r, e)
	links := b.linkGauges(r)
	return r.Observe(func(ctx context.Context, o metric.Observer) error {
		for kind, n := range counted(e.Counts()) {
			o.ObserveInt64(events, n, kindOf(kind))
		}
		for kind, n := range indexEvents(e) {
			o.ObserveInt64(events, n, kindOf(kind))
		}
		spaces.observe(o, e)
		index(o)
		queues(o)
		damage(o)
		links(o)
		if r := b.Role(); r != Leading && r != Defining {
			return nil // the views of a standby answer no questions
		}
		ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
		defer cancel()
		if err := retention.observe(ctx, o, e); err != nil {
			return err
		}
		s, err := e.Snapshot(ctx, b.o.MetricsLimit)
		if err != nil {
			return err
		}
		for _, part := range parts {
			part(o, s)
		}
		return nil
	})
}

func kindOf(kind string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("kind", kind))
}

// counted names the engine's counters.
func counted(c *engine.Counts) map[string]int64 {
	return map[string]int64{
		"delayed": c.Delayed.Load(), "delay_delivered": c.Delivered.Load(), "delay_delivered_late": c.DeliveredLate.Load(), "recalled": c.Recalled.Load(),
		"sent": c.Sent.Load(), "leased": c.Leased.Load(), "redelivered": c.Redelivered.Load(), "acked": c.Acked.Load(), "changed": c.Changed.Load(),
		"skipped": c.Skipped.Load(), "passed_over": c.Passed.Load(), "pops": c.Pops.Load(), "empty_pops": c.EmptyPops.Load(), "over_max_attempts": c.OverMax.Load(),
		"dead_attempts_used_up": c.DeadAttempts.Load(), "dead_forwarded": c.DeadClient.Load(), "redriven": c.Redriven.Load(),
		"stale_handles": c.Stale.Load(), "damaged": c.Damaged.Load(), "damaged_done": c.DamagedDone.Load(), "refused_busy": c.Refused.Load(), "queries_waited": c.QueriesWaited.Load(), "refused_unsaved": c.UnsavedRefused.Load(), "refused_topic_grows": c.GrowthRefused.Load(), "turns": c.Turns.Load(),
		"refused_group_in_flight": c.InFlightFull.Load(), "refused_table_in_flight": c.TableFull.Load(),
		"pulls": c.Pulls.Load(), "pulled": c.Pulled.Load(), "pulls_refused_waiting": c.PullsRefused.Load(),
		"positions_stored": c.Positions.Load(), "group_resets": c.Resets.Load(),
		"sessions_ended": c.Sessions.Load(), "checkpoints": c.Checkpoints.Load(), "queue_extents_rebuilt": c.Mended.Load(),
		"half_messages": c.Halves.Load(), "half_messages_refused": c.HalvesRefused.Load(), "transaction_checks": c.Checks.Load(),
		"duplicates": c.Duplicates.Load(), "duplicate_ids_with_other_bodies": c.DuplicatesDiffer.Load(),
		"transactions_given_up": c.GivenUp.Load(),
		"lite_topics_expired":   c.LiteExpired.Load(), "lite_messages_expired_undone": c.LiteUndone.Load(), "lite_quota_refused": c.LiteRefused.Load(),
	}
}

// registrar makes instruments.
type registrar struct{ *obs.Instruments }

func (r *registrar) counter(name, help string, labels ...string) metric.Int64ObservableCounter {
	return r.Counter(name, help, labels...)
}

func (r *registrar) gauge(name, help, unit string, labels ...string) metric.Int64ObservableGauge {
	return r.Gauge(name, help, unit, labels...)
}
