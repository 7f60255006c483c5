package main

import "github.com/perigee-mq/perigee/internal/obs"

// metricsSettings say what a broker shows on /metrics.
type metricsSettings struct {
	MetricsLimit int `koanf:"metrics-limit" help:"most topics, and most pairs of a topic and a group, that /metrics shows; perigee_metrics_left_out counts the others"`
}

func defaultMetrics() metricsSettings { return metricsSettings{MetricsLimit: 10_000} }

func (s metricsSettings) check() error {
	if s.MetricsLimit < 1 || s.MetricsLimit > obs.SeriesMax {
		return usageError("--metrics-limit %d: use 1 to %d", s.MetricsLimit, obs.SeriesMax)
	}
	return nil
}
