package broker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/perigee-mq/perigee/broker/engine"
)

// retentionGauges show what retention has done.
type retentionGauges struct {
	snapshot, snapAt, carried, held, stays metric.Int64ObservableGauge
	failing                                metric.Int64ObservableGauge
	deleted, moved, steps, failed, gone    metric.Int64ObservableCounter
	damaged                                metric.Int64ObservableCounter
}

func newRetentionGauges(r *registrar) *retentionGauges {
	return &retentionGauges{
		snapshot: r.gauge("perigee_retention_snapshot_bytes", "size of the newest SNAPSHOT; absent if this process has written none", "bytes"),
		snapAt:   r.gauge("perigee_retention_snapshot_position", "log position that the newest SNAPSHOT stands for; absent if this process has written none", "bytes"),
		carried:  r.gauge("perigee_retention_carried_known", "messages that were carried forward and are still known", ""),
		held:     r.gauge("perigee_retention_held", "messages that a group has under lease, or that wait for a retry, below the first offset of their queue", ""),
		stays:    r.gauge("perigee_retention_oldest_stays", "1 with the reason why the oldest file of the commit log is not deleted; absent before the first look", "", "reason"),
		failing:  r.gauge("perigee_retention_failing", "for how long no deletion could be finished; absent while they can", "seconds"),
		deleted:  r.counter("perigee_retention_deleted_bytes", "bytes of the commit log that were deleted"),
		moved:    r.counter("perigee_retention_carried", "messages that were carried forward out of what was deleted"),
		damaged:  r.counter("perigee_retention_damaged", "messages that were to be carried forward and could not be, since their records are damaged: they are lost"),
		steps:    r.counter("perigee_retention_steps", "times that something was deleted"),
		failed:   r.counter("perigee_retention_failures", "times that a deletion could not be finished; it is tried again"),
		gone:     r.counter("perigee_retention_gone", "times that a message was asked for that had been deleted meanwhile"),
	}
}

func (g *retentionGauges) observe(ctx context.Context, o metric.Observer, e *engine.Engine) error {
	s, err := e.Retention(ctx)
	if err != nil {
		return err
	}
	o.ObserveInt64(g.deleted, s.Bytes)
	o.ObserveInt64(g.moved, s.Carried)
	o.ObserveInt64(g.damaged, s.Damaged)
	o.ObserveInt64(g.steps, s.Steps)
	o.ObserveInt64(g.failed, s.Failures)
	o.ObserveInt64(g.gone, e.Counts().Gone.Load())
	o.ObserveInt64(g.carried, int64(s.ForwardTo))
	o.ObserveInt64(g.held, int64(s.Held))
	if s.Snapshot > 0 {
		o.ObserveInt64(g.snapshot, s.Snapshot)
		o.ObserveInt64(g.snapAt, int64(s.SnapAt))
	}
	if s.Failing {
		o.ObserveInt64(g.failing, s.FailingMS/1000)
	}
	if s.Looked {
		why := string(s.Why)
		if why == "" {
			why = "goes"
		}
		o.ObserveInt64(g.stays, 1, metric.WithAttributes(attribute.String("reason", why)))
	}
	return nil
}
