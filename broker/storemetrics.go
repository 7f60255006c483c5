package broker

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/internal/obs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// logMetrics are those of the commit log and of its recovery. They are there before the engine is.
type logMetrics struct {
	flush, batch metric.Float64Histogram
	failures     atomic.Int64
	recovered    atomic.Pointer[recovered]
}

// recovered is a recovery that is over.
type recovered struct {
	from, to record.Pos
	records  int64
	took     time.Duration
}

func newRecovered(from, to record.Pos, records int64, took time.Duration) *recovered {
	return &recovered{from, to, records, took}
}

// registerLog makes the instruments of the log.
func (b *Broker) registerLog(log *commitlog.Log) error {
	m, r := &b.log, b.instruments()
	m.flush = r.Histogram("perigee_log_flush_duration", "time of one fdatasync of the commit log", "milliseconds", obs.Milliseconds())
	m.batch = r.Histogram("perigee_log_batch_size", "bytes that one write appends to the commit log: what arrived while the one before was written", "bytes",
		[]float64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20})
	size := r.gauge("rocketmq_storage_size", "commit log that is kept, from its first record to its end", "bytes")
	segments := r.gauge("perigee_log_segments", "files of the commit log", "")
	first := r.gauge("perigee_log_first", "position of the oldest record that is kept", "bytes")
	written := r.gauge("perigee_log_written", "end of the commit log", "bytes")
	durable := r.gauge("perigee_log_durable", "position below which everything is surely on disk", "bytes")
	behind := r.gauge("rocketmq_storage_flush_behind", "bytes written and not yet durable", "bytes")
	reserve := r.gauge("rocketmq_storage_message_reserve_time", "age of the oldest record that is kept; absent if there is none", "milliseconds")
	failures := r.counter("perigee_log_failures", "writes and fdatasyncs of the commit log that failed: the first one ends the broker")
	records := r.gauge("perigee_recovery_records", "records read by the recovery at the start; grows while it goes on", "")
	from := r.gauge("perigee_recovery_from", "log position where the recovery began; absent until it is known", "bytes")
	took := r.gauge("perigee_recovery_duration", "how long the recovery took; absent while it goes on", "milliseconds")
	return r.Observe(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(failures, m.failures.Load())
		p := b.Progress()
		o.ObserveInt64(records, p.Records)
		if p.Stage != engine.StageDone {
			if p.Stage == engine.StageLog {
				o.ObserveInt64(from, int64(p.From))
			}
			return nil
		}
		if done := m.recovered.Load(); done != nil {
			o.ObserveInt64(from, int64(done.from))
			o.ObserveInt64(took, done.took.Milliseconds())
		}
		files := log.Segments()
		if len(files) == 0 {
			return nil // closed
		}
		end := log.Written()
		o.ObserveInt64(size, int64(end-log.First()))
		o.ObserveInt64(first, int64(log.First()))
		o.ObserveInt64(written, int64(end))
		o.ObserveInt64(durable, int64(log.Durable()))
		o.ObserveInt64(behind, max(0, int64(end-log.Durable())))
		o.ObserveInt64(segments, int64(len(files)))
		if files[0].FirstTime > 0 {
			o.ObserveInt64(reserve, max(0, b.o.Engine.Clock.Wall()-files[0].FirstTime))
		}
		return nil
	})
}

// synced records one fdatasync.
func (m *logMetrics) synced(_, _ record.Pos, took time.Duration) {
	if m.flush != nil {
		m.flush.Record(context.Background(), float64(took)/1e6)
	}
}

// wrote records one batch.
func (m *logMetrics) wrote(bytes int) {
	if m.batch != nil {
		m.batch.Record(context.Background(), float64(bytes))
	}
}

// checkpointGauges are about the saved state of the views, which are never behind the log themselves.
func checkpointGauges(r *registrar, e *engine.Engine) observed {
	saved := r.gauge("perigee_checkpoint_position", "log position of the newest checkpoint", "bytes")
	behind := r.gauge("perigee_checkpoint_behind", "log behind the newest checkpoint: what a start after a crash reads", "bytes")
	age := r.gauge("perigee_checkpoint_age", "time since a checkpoint was saved; absent until one is since the start", "milliseconds")
	size := r.gauge("perigee_checkpoint_size", "size of the newest checkpoint; absent until one is saved since the start", "bytes")
	took := r.gauge("perigee_checkpoint_duration", "how long saving the newest checkpoint took; absent until one is saved since the start", "milliseconds")
	failures := r.counter("perigee_checkpoint_failures", "checkpoints that could not be saved")
	aside := r.counter("perigee_checkpoint_set_aside", "checkpoints that the start could not use: damaged, or of another log")
	return func(o metric.Observer, s *engine.Snapshot) {
		o.ObserveInt64(saved, int64(s.Checkpoint))
		o.ObserveInt64(behind, max(0, int64(s.Written-s.Checkpoint)))
		o.ObserveInt64(failures, e.Counts().CheckpointFailures.Load())
		o.ObserveInt64(aside, e.SetAside())
		if s.CheckpointSaved {
			o.ObserveInt64(age, s.CheckpointAgeMS)
			o.ObserveInt64(size, s.CheckpointBytes)
			o.ObserveInt64(took, s.CheckpointTookMS)
		}
	}
}

// indexGauges are about the index by key and message id.
func indexGauges(r *registrar, e *engine.Engine) func(metric.Observer) {
	entries := r.gauge("perigee_index_entries", "entries of the index by key and message id", "")
	bytes := r.gauge("perigee_index_bytes", "files of the index", "bytes")
	missing := r.gauge("perigee_index_missing_files", "files of the index that are rebuilt from the log: a search is incomplete until then", "")
	pending := r.gauge("perigee_index_pending_files", "files of the index that wait in memory to be written", "")
	return func(o metric.Observer) {
		x := e.Index()
		o.ObserveInt64(entries, x.Entries)
		o.ObserveInt64(bytes, x.Bytes)
		o.ObserveInt64(missing, int64(x.Missing))
		o.ObserveInt64(pending, int64(x.Pending))
	}
}

func indexEvents(e *engine.Engine) map[string]int64 {
	x := e.Index()
	return map[string]int64{
		"index_files_written": x.Written, "index_files_rebuilt": x.Rebuilt, "index_files_damaged": x.Damaged, "index_files_failed": x.Failures, "index_runs_dropped": x.Dropped,
	}
}

// queueGauges are about the consume queues.
func queueGauges(r *registrar, e *engine.Engine) func(metric.Observer) {
	queues := r.gauge("perigee_queues", "consume queues, lite topics included", "")
	extents := r.gauge("perigee_queue_extents", "extents of consume queues: used, or retired until no checkpoint needs them", "", "state")
	files := r.gauge("perigee_queue_files", "files of extents", "")
	tail := r.gauge("perigee_queue_tail", "memory of the newest entries, which are in no extent yet", "bytes")
	cache := r.counter("perigee_queue_cache", "look-ups of extents: hits needed no read", "result")
	with := func(key, value string) metric.MeasurementOption {
		return metric.WithAttributes(attribute.String(key, value))
	}
	return func(o metric.Observer) {
		s := e.Queues()
		o.ObserveInt64(queues, int64(s.Queues))
		o.ObserveInt64(extents, int64(s.Extents), with("state", "used"))
		o.ObserveInt64(extents, int64(s.Retired), with("state", "retired"))
		o.ObserveInt64(files, int64(s.Files))
		o.ObserveInt64(tail, int64(s.TailBytes))
		o.ObserveInt64(cache, s.CacheHits, with("result", "hit"))
		o.ObserveInt64(cache, s.CacheMisses, with("result", "miss"))
	}
}
