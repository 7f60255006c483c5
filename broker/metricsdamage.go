package broker

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/perigee-mq/perigee/broker/engine"
)

// damageGauges observe what of the log cannot be read.
func damageGauges(r *registrar, e *engine.Engine) func(metric.Observer) {
	records := r.gauge("perigee_log_damaged_records", "records that were found to be damaged when they were read, by file, since the start", "", "file")
	holes := r.gauge("perigee_log_holes", "parts of the log that are lost and that a start went on without", "")
	bytes := r.gauge("perigee_log_lost", "bytes of these parts", "bytes")
	return func(o metric.Observer) {
		for file, n := range e.DamagedRecords() {
			o.ObserveInt64(records, n, metric.WithAttributes(attribute.String("file", file)))
		}
		list, size := e.Holes(), int64(0)
		for _, h := range list {
			size += h.Bytes()
		}
		o.ObserveInt64(holes, int64(len(list)))
		o.ObserveInt64(bytes, size)
	}
}
