package broker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/perigee-mq/perigee/broker/engine"
)

// scrapeTimeout bounds how long a collection waits for the engine.
const scrapeTimeout = 2 * time.Second

// register makes the broker's instruments. Names are those of RocketMQ 5 where the same thing is
// measured, perigee_ otherwise. Everything is observed from counters and views when it is collected;
// nothing is recorded per message. What cannot be had then is absent.
func register(m metric.Meter, e *engine.Engine) error {
	r := registrar{m: m}
	in := r.counter("rocketmq_messages_in", "messages stored")
	inBytes := r.counter("rocketmq_throughput_in", "bytes of stored messages")
	out := r.counter("rocketmq_messages_out", "messages handed out")
	outBytes := r.counter("rocketmq_throughput_out", "bytes of messages handed out")
	topics := r.gauge("rocketmq_topic_number", "topics", "")
	groups := r.gauge("rocketmq_consumer_group_number", "consumer groups", "")
	ready := r.gauge("rocketmq_consumer_ready_messages", "messages that are not done and due", "")
	inFlight := r.gauge("rocketmq_consumer_inflight_messages", "leased messages", "")
	lag := r.gauge("rocketmq_consumer_lag_messages", "messages that are not done", "")
	age := r.gauge("rocketmq_consumer_queueing_latency", "age of the oldest ready message; absent if there is none", "milliseconds")
	behind := r.gauge("rocketmq_storage_flush_behind", "bytes written and not yet durable", "bytes")
	written := r.gauge("perigee_log_written", "end of the commit log", "bytes")
	saved := r.gauge("perigee_checkpoint_position", "log position of the newest checkpoint", "bytes")
	epoch := r.gauge("perigee_epoch", "epoch that this broker leads", "")
	clients := r.gauge("perigee_client_sessions", "consumer clients known", "")
	indexed := r.gauge("perigee_index_entries", "entries of the index by key and message id", "")
	indexBytes := r.gauge("perigee_index_bytes", "files of the index", "bytes")
	unindexed := r.gauge("perigee_index_missing_files", "files of the index that are rebuilt from the log: a search is incomplete until then", "")
	halves := r.gauge("rocketmq_half_messages", "transactions that nobody has ended", "")
	halfAge := r.gauge("perigee_half_messages_age", "age of the oldest transaction that nobody has ended; absent if there is none", "milliseconds")
	commits := r.counter("rocketmq_commit_messages", "transactions committed")
	rollbacks := r.counter("rocketmq_rollback_messages", "transactions rolled back")
	lites := r.gauge("perigee_lite_topics", "lite topics of all parents", "")
	liteSubs := r.gauge("perigee_lite_subscriptions", "lite topics that clients subscribe to, each client for itself", "")
	timers := r.gauge("perigee_delay_waiting_messages", "messages that wait for their time", "")
	late := r.gauge("perigee_delay_lateness_max", "the longest that a message was delivered after its time, since the start", "milliseconds")
	lateSum := r.counter("perigee_delay_lateness", "how long messages were delivered after their times, all together, in milliseconds")
	window := r.gauge("perigee_duplicate_window", "how far back messages that are sent again are found, if their topic's window is so long", "milliseconds")
	remembered := r.gauge("perigee_duplicate_entries", "messages that are remembered to find those that are sent again", "")
	events := r.counter("perigee_broker_events", "what the broker has done, by kind")
	spaces := newSpaceGauges(&r)
	if r.err != nil {
		return r.err
	}
	_, err := m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		for kind, n := range counted(e.Counts()) {
			o.ObserveInt64(events, n, metric.WithAttributes(attribute.String("kind", kind)))
		}
		spaces.observe(o, e)
		x := e.Index()
		o.ObserveInt64(indexed, x.Entries)
		o.ObserveInt64(indexBytes, x.Bytes)
		o.ObserveInt64(unindexed, int64(x.Missing))
		for kind, n := range map[string]int64{
			"index_files_written": x.Written, "index_files_rebuilt": x.Rebuilt, "index_files_damaged": x.Damaged, "index_files_failed": x.Failures, "index_runs_dropped": x.Dropped,
		} {
			o.ObserveInt64(events, n, metric.WithAttributes(attribute.String("kind", kind)))
		}
		o.ObserveInt64(commits, e.Counts().Committed.Load())
		o.ObserveInt64(rollbacks, e.Counts().RolledBack.Load())
		ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
		defer cancel()
		s, err := e.Snapshot(ctx, 10_000)
		if err != nil {
			return err
		}
		o.ObserveInt64(topics, int64(len(s.Topics)))
		o.ObserveInt64(groups, int64(s.Sizes.Groups))
		o.ObserveInt64(clients, int64(s.Clients))
		o.ObserveInt64(lites, int64(s.Sizes.LiteTopics))
		o.ObserveInt64(liteSubs, int64(s.LiteSubscriptions))
		o.ObserveInt64(epoch, int64(s.Epoch))
		o.ObserveInt64(window, s.DuplicateWindowMS)
		o.ObserveInt64(remembered, s.DuplicateEntries)
		o.ObserveInt64(written, int64(s.Written))
		o.ObserveInt64(behind, int64(s.Written-s.Durable))
		o.ObserveInt64(saved, int64(s.Checkpoint))
		o.ObserveInt64(halves, int64(s.Halves))
		if s.OldestHalfMS != 0 {
			o.ObserveInt64(halfAge, max(0, s.NowMS-s.OldestHalfMS))
		}
		o.ObserveInt64(late, e.Counts().LateMaxMS.Load())
		o.ObserveInt64(lateSum, e.Counts().LateMS.Load())
		for _, t := range s.Topics {
			a := metric.WithAttributes(attribute.String("topic", t.Topic))
			o.ObserveInt64(timers, int64(t.Timers), a)
			o.ObserveInt64(in, t.Messages, a)
			o.ObserveInt64(inBytes, t.Bytes, a)
		}
		for _, g := range s.Groups {
			a := metric.WithAttributes(attribute.String("topic", g.Topic), attribute.String("consumer_group", g.Group))
			o.ObserveInt64(out, g.Messages, a)
			o.ObserveInt64(outBytes, g.Bytes, a)
			o.ObserveInt64(ready, g.Ready, a)
			o.ObserveInt64(inFlight, g.InFlight, a)
			o.ObserveInt64(lag, g.Ready+g.InFlight+g.Waiting, a)
			if g.OldestMS != 0 {
				o.ObserveInt64(age, max(0, g.NowMS-g.OldestMS), a)
			}
		}
		return nil
	}, r.all...)
	return err
}

// counted names the engine's counters.
func counted(c *engine.Counts) map[string]int64 {
	return map[string]int64{
		"delayed": c.Delayed.Load(), "delay_delivered": c.Delivered.Load(), "delay_delivered_late": c.DeliveredLate.Load(), "recalled": c.Recalled.Load(),
		"sent": c.Sent.Load(), "leased": c.Leased.Load(), "redelivered": c.Redelivered.Load(), "acked": c.Acked.Load(), "changed": c.Changed.Load(),
		"skipped": c.Skipped.Load(), "passed_over": c.Passed.Load(), "pops": c.Pops.Load(), "empty_pops": c.EmptyPops.Load(), "over_max_attempts": c.OverMax.Load(),
		"dead_attempts_used_up": c.DeadAttempts.Load(), "dead_forwarded": c.DeadClient.Load(), "redriven": c.Redriven.Load(),
		"stale_handles": c.Stale.Load(), "damaged": c.Damaged.Load(), "refused_busy": c.Refused.Load(), "refused_topic_grows": c.GrowthRefused.Load(), "turns": c.Turns.Load(),
		"pulls": c.Pulls.Load(), "pulled": c.Pulled.Load(), "pulls_refused_waiting": c.PullsRefused.Load(),
		"positions_stored": c.Positions.Load(), "group_resets": c.Resets.Load(),
		"sessions_ended": c.Sessions.Load(), "checkpoints": c.Checkpoints.Load(),
		"half_messages": c.Halves.Load(), "half_messages_refused": c.HalvesRefused.Load(), "transaction_checks": c.Checks.Load(),
		"duplicates": c.Duplicates.Load(), "duplicate_ids_with_other_bodies": c.DuplicatesDiffer.Load(),
		"transactions_given_up": c.GivenUp.Load(),
		"lite_topics_expired":   c.LiteExpired.Load(), "lite_messages_expired_undone": c.LiteUndone.Load(), "lite_quota_refused": c.LiteRefused.Load(),
	}
}

// registrar makes observable instruments and keeps the first error.
type registrar struct {
	m   metric.Meter
	all []metric.Observable
	err error
}

func (r *registrar) counter(name, help string) metric.Int64ObservableCounter {
	c, err := r.m.Int64ObservableCounter(name, metric.WithDescription(help))
	r.keep(c, err)
	return c
}

func (r *registrar) gauge(name, help, unit string) metric.Int64ObservableGauge {
	g, err := r.m.Int64ObservableGauge(name, metric.WithDescription(help), metric.WithUnit(unit))
	r.keep(g, err)
	return g
}

func (r *registrar) keep(o metric.Observable, err error) {
	if err != nil && r.err == nil {
		r.err = err
	}
	r.all = append(r.all, o)
}
