package obs

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// SeriesMax bounds what a part may show under one name; a part has a lower limit of its own and says what it leaves
// out. Beyond this the library sums up under the label otel_metric_overflow.
const SeriesMax = 100_000

// Metrics is where the parts of a process register their instruments.
type Metrics struct {
	list     catalogue
	provider *sdkmetric.MeterProvider
	registry *prometheus.Registry
}

// NewMetrics returns metrics with those of the Go runtime and the process.
func NewMetrics() (*Metrics, error) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exp, err := otelprom.New(otelprom.WithRegisterer(reg), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, err
	}
	return &Metrics{
		provider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exp), sdkmetric.WithCardinalityLimit(SeriesMax+1)),
		registry: reg,
	}, nil
}

// Meter returns the meter of a part, for instance "broker".
func (m *Metrics) Meter(part string) metric.Meter {
	return partMeter{Meter: m.provider.Meter("perigee/" + part), part: part, list: &m.list}
}

// Instruments lists what was made with NewInstruments, by name.
func (m *Metrics) Instruments() []Instrument { return m.list.sorted() }

// Handler serves /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
