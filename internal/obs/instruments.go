package obs

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// Kind says how a metric behaves.
type Kind string

// Kinds of metrics, as Prometheus calls them.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Instrument describes a metric. docs/metrics.md is made of these.
type Instrument struct {
	Name   string // as RocketMQ 5 or we call it, without the unit
	Kind   Kind
	Unit   string // "bytes", "milliseconds", or empty for a number of things
	Help   string
	Part   string // who measures it
	Labels []string
}

// Metric is the name on /metrics: with the unit, and _total for a counter.
func (i Instrument) Metric() string {
	name := i.Name
	if i.Unit != "" && !strings.HasSuffix(name, "_"+i.Unit) {
		name += "_" + i.Unit
	}
	if i.Kind == Counter {
		name += "_total"
	}
	return name
}

// catalogue is what was made, for the documentation.
type catalogue struct {
	mu  sync.Mutex
	all []Instrument
}

func (c *catalogue) note(i Instrument) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.ContainsFunc(c.all, func(o Instrument) bool { return o.Name == i.Name && o.Part == i.Part }) {
		c.all = append(c.all, i)
	}
}

// sorted returns each instrument once, by name.
func (c *catalogue) sorted() []Instrument {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Clone(c.all)
	slices.SortStableFunc(out, func(a, b Instrument) int { return cmp.Compare(a.Metric(), b.Metric()) })
	return slices.CompactFunc(out, func(a, b Instrument) bool { return a.Metric() == b.Metric() })
}

// partMeter is the meter of a part, which knows where its instruments are listed.
type partMeter struct {
	metric.Meter
	part string
	list *catalogue
}

// Instruments makes the instruments of a part and keeps the first error.
type Instruments struct {
	m    metric.Meter
	all  []metric.Observable
	regs []metric.Registration
	err  error
}

// NewInstruments returns instruments of a meter. Only those of a Metrics are listed.
func NewInstruments(m metric.Meter) *Instruments { return &Instruments{m: m} }

// Counter is something that only grows while the process runs, read when it is asked for.
func (s *Instruments) Counter(name, help string, labels ...string) metric.Int64ObservableCounter {
	return s.CounterOf(name, help, "", labels...)
}

// CounterOf is a Counter with a unit.
func (s *Instruments) CounterOf(name, help, unit string, labels ...string) metric.Int64ObservableCounter {
	c, err := s.m.Int64ObservableCounter(name, metric.WithDescription(help), metric.WithUnit(unit))
	s.observable(c, err, Instrument{Name: name, Kind: Counter, Unit: unit, Help: help, Labels: labels})
	return c
}

// Gauge is a value of the moment, read when it is asked for. Do not observe one that is unknown.
func (s *Instruments) Gauge(name, help, unit string, labels ...string) metric.Int64ObservableGauge {
	g, err := s.m.Int64ObservableGauge(name, metric.WithDescription(help), metric.WithUnit(unit))
	s.observable(g, err, Instrument{Name: name, Kind: Gauge, Unit: unit, Help: help, Labels: labels})
	return g
}

// Histogram counts values by their size when they occur: for what happens once in a batch, or once in a
// call with attributes that are made beforehand.
func (s *Instruments) Histogram(name, help, unit string, bounds []float64, labels ...string) metric.Float64Histogram {
	h, err := s.m.Float64Histogram(name, metric.WithDescription(help), metric.WithUnit(unit), metric.WithExplicitBucketBoundaries(bounds...))
	s.note(err, Instrument{Name: name, Kind: Histogram, Unit: unit, Help: help, Labels: labels})
	return h
}

func (s *Instruments) observable(o metric.Observable, err error, i Instrument) {
	s.note(err, i)
	s.all = append(s.all, o)
}

func (s *Instruments) note(err error, i Instrument) {
	if s.err == nil {
		s.err = err
	}
	if m, ok := s.m.(partMeter); ok {
		i.Part = m.part
		m.list.note(i)
	}
}

// Observe calls f when the counters and gauges made so far are read. It returns what went wrong first.
func (s *Instruments) Observe(f metric.Callback) error {
	if s.err != nil {
		return s.err
	}
	r, err := s.m.RegisterCallback(f, s.all...)
	s.regs = append(s.regs, r)
	return err
}

// Forget ends what Observe began: what was measured is gone.
func (s *Instruments) Forget() error {
	var errs []error
	for _, r := range s.regs {
		errs = append(errs, r.Unregister())
	}
	s.regs = nil
	return errors.Join(errs...)
}

// Milliseconds are bounds for times of disks and calls.
func Milliseconds() []float64 {
	return []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000}
}
