package broker

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/perigee-mq/perigee/broker/engine"
)

// observed shows figures of a snapshot.
type observed = func(metric.Observer, *engine.Snapshot)

// viewGauges are the sizes of the views.
func viewGauges(r *registrar, _ *engine.Engine) observed {
	topics := r.gauge("rocketmq_topic_number", "topics", "")
	groups := r.gauge("rocketmq_consumer_group_number", "consumer groups", "")
	epoch := r.gauge("perigee_epoch", "epoch that this broker leads", "")
	clients := r.gauge("perigee_client_sessions", "consumer clients known", "")
	inFlight := r.gauge("perigee_inflight_messages", "messages of all groups that were handed out and are not done", "")
	lites := r.gauge("perigee_lite_topics", "lite topics of all parents", "")
	liteSubs := r.gauge("perigee_lite_subscriptions", "lite topics that clients subscribe to, each client for itself", "")
	window := r.gauge("perigee_duplicate_window", "how far back messages that are sent again are found, if their topic's window is so long", "milliseconds")
	windowSet := r.gauge("perigee_duplicate_window_set", "the longest duplicate window that is set, for the broker or a topic", "milliseconds")
	remembered := r.gauge("perigee_duplicate_entries", "messages that are remembered to find those that are sent again", "")
	left := r.gauge("perigee_metrics_left_out", "what the last collection has left out: pairs of a topic and a group (groups) or their ages (ages), because of --metrics-limit or for lack of time", "", "what")
	return func(o metric.Observer, s *engine.Snapshot) {
		o.ObserveInt64(topics, int64(s.Sizes.Topics))
		o.ObserveInt64(groups, int64(s.Sizes.Groups))
		o.ObserveInt64(epoch, int64(s.Epoch))
		o.ObserveInt64(clients, int64(s.Clients))
		o.ObserveInt64(inFlight, s.InFlight)
		o.ObserveInt64(lites, int64(s.Sizes.LiteTopics))
		o.ObserveInt64(liteSubs, int64(s.LiteSubscriptions))
		o.ObserveInt64(window, s.DuplicateWindowMS)
		o.ObserveInt64(windowSet, s.DuplicateWindowSetMS)
		o.ObserveInt64(remembered, s.DuplicateEntries)
		o.ObserveInt64(left, int64(s.TopicsLeft), metric.WithAttributes(attribute.String("what", "topics")))
		o.ObserveInt64(left, int64(s.GroupsLeft), metric.WithAttributes(attribute.String("what", "groups")))
		o.ObserveInt64(left, int64(s.AgesLeft), metric.WithAttributes(attribute.String("what", "ages")))
	}
}

// transactionGauges are about half messages.
func transactionGauges(r *registrar, e *engine.Engine) observed {
	halves := r.gauge("rocketmq_half_messages", "transactions that nobody has ended", "")
	halfAge := r.gauge("perigee_half_messages_age", "age of the oldest transaction that nobody has ended; absent if there is none", "milliseconds")
	commits := r.counter("rocketmq_commit_messages", "transactions committed")
	rollbacks := r.counter("rocketmq_rollback_messages", "transactions rolled back")
	dead := r.counter("rocketmq_send_to_dlq_messages", "messages moved to dead-letter topics")
	return func(o metric.Observer, s *engine.Snapshot) {
		o.ObserveInt64(halves, int64(s.Halves))
		if s.OldestHalfMS != 0 {
			o.ObserveInt64(halfAge, max(0, s.NowMS-s.OldestHalfMS))
		}
		c := e.Counts()
		o.ObserveInt64(commits, c.Committed.Load())
		o.ObserveInt64(rollbacks, c.RolledBack.Load())
		o.ObserveInt64(dead, c.DeadAttempts.Load()+c.DeadClient.Load())
	}
}

// delayGauges are about messages that wait for their time.
func delayGauges(r *registrar, e *engine.Engine) observed {
	late := r.gauge("perigee_delay_lateness_max", "the longest that a message was delivered after its time, since the start", "milliseconds")
	lateSum := r.CounterOf("perigee_delay_lateness", "how long messages were delivered after their times, all together", "milliseconds")
	overdue := r.gauge("perigee_delay_overdue", "for how long the first message has been due that is not delivered; 0 if none is overdue", "milliseconds")
	return func(o metric.Observer, s *engine.Snapshot) {
		o.ObserveInt64(late, e.Counts().LateMaxMS.Load())
		o.ObserveInt64(lateSum, e.Counts().LateMS.Load())
		behind := int64(0)
		if s.DueMS != 0 {
			behind = max(0, s.NowMS-s.DueMS)
		}
		o.ObserveInt64(overdue, behind)
	}
}

// topicGauges are those of each topic.
func topicGauges(r *registrar) observed {
	in := r.counter("rocketmq_messages_in", "messages stored", "topic")
	inBytes := r.counter("rocketmq_throughput_in", "bytes of stored messages", "topic")
	timers := r.gauge("rocketmq_timing_messages", "messages that wait for their time", "", "topic")
	return func(o metric.Observer, s *engine.Snapshot) {
		for _, t := range s.Topics {
			a := metric.WithAttributeSet(attribute.NewSet(attribute.String("topic", t.Topic)))
			o.ObserveInt64(timers, int64(t.Timers), a)
			o.ObserveInt64(in, t.Messages, a)
			o.ObserveInt64(inBytes, t.Bytes, a)
		}
	}
}

// groupGauges are those of each group on each topic that it reads.
func groupGauges(r *registrar) observed {
	labels := []string{"topic", "consumer_group"}
	out := r.counter("rocketmq_messages_out", "messages handed out", labels...)
	outBytes := r.counter("rocketmq_throughput_out", "bytes of messages handed out", labels...)
	ready := r.gauge("rocketmq_consumer_ready_messages", "messages that are not done and due", "", labels...)
	inFlight := r.gauge("rocketmq_consumer_inflight_messages", "leased messages", "", labels...)
	waiting := r.gauge("perigee_consumer_waiting_messages", "messages that wait before they come again: for their back-off, or behind an older one of their message group", "", labels...)
	lag := r.gauge("rocketmq_consumer_lag_messages", "messages that are not done", "", labels...)
	age := r.gauge("rocketmq_consumer_queueing_latency", "age of the oldest ready message; absent if there is none", "milliseconds", labels...)
	overMax := r.counter("perigee_consumer_over_max_attempts", "deliveries past the group's most attempts: its dead-letter topic could not take the message", labels...)
	lost := r.counter("perigee_consumer_lost_messages", "messages that retention deleted before the group had read them, since the group exists", labels...)
	return func(o metric.Observer, s *engine.Snapshot) {
		for i := range s.Groups {
			g := &s.Groups[i]
			a := metric.WithAttributeSet(attribute.NewSet(attribute.String("topic", g.Topic), attribute.String("consumer_group", g.Group)))
			o.ObserveInt64(out, g.Messages, a)
			o.ObserveInt64(outBytes, g.Bytes, a)
			o.ObserveInt64(ready, g.Ready, a)
			o.ObserveInt64(inFlight, g.InFlight, a)
			o.ObserveInt64(waiting, g.Waiting, a)
			o.ObserveInt64(lag, g.Ready+g.InFlight+g.Waiting, a)
			o.ObserveInt64(overMax, g.OverMax, a)
			o.ObserveInt64(lost, g.Lost, a)
			if g.OldestMS != 0 {
				o.ObserveInt64(age, max(0, g.NowMS-g.OldestMS), a)
			}
		}
	}
}
