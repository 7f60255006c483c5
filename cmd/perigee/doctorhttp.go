package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/perigee-mq/perigee/internal/doctor"
	"github.com/perigee-mq/perigee/internal/obs"
)

// pageMax bounds a page that is read, in bytes.
const pageMax = 256 << 20

// lookAtProcess reads /readyz and /metrics of a process.
func lookAtProcess(ctx context.Context, address string) doctor.Process {
	p := doctor.Process{Address: address}
	began := time.Now()
	body, err := webPage(ctx, address, "/readyz?verbose")
	ended := time.Now()
	var state obs.Readiness
	if err == nil {
		err = json.Unmarshal(body, &state)
	}
	if err == nil && state.NowMS == 0 {
		err = errors.New("its /readyz is not that of Perigee")
	}
	if err != nil {
		p.Error = err.Error()
		return p
	}
	p.Release = state.Release
	p.Off = clockOff(time.UnixMilli(state.NowMS), began, ended)
	for _, part := range state.Parts {
		p.Parts = append(p.Parts, doctor.Part{Name: part.Name, Ready: part.Ready, Reason: part.Reason})
	}
	if body, err = webPage(ctx, address, "/metrics"); err == nil {
		p.Metrics, err = metricsOf(body)
	}
	if err != nil {
		p.Error = "/metrics: " + err.Error()
	}
	return p
}

// clockOff is how far a clock that was read between two moments is surely off.
func clockOff(at, began, ended time.Time) time.Duration {
	const exact = time.Millisecond
	switch {
	case at.Before(began.Add(-exact)):
		return at.Sub(began)
	case at.After(ended.Add(exact)):
		return at.Sub(ended)
	}
	return 0
}

// webPage reads one page, whatever its status says.
func webPage(ctx context.Context, address, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("there is no %s", path)
	}
	return io.ReadAll(io.LimitReader(resp.Body, pageMax))
}

// metricsOf reads the format of Prometheus.
func metricsOf(body []byte) (doctor.Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out := doctor.Metrics{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			out[name] = append(out[name], sampleOf(f.GetType(), m))
		}
	}
	return out, nil
}

func sampleOf(kind dto.MetricType, m *dto.Metric) doctor.Sample {
	s := doctor.Sample{Labels: map[string]string{}}
	for _, l := range m.GetLabel() {
		s.Labels[l.GetName()] = l.GetValue()
	}
	switch kind {
	case dto.MetricType_COUNTER:
		s.Value = m.GetCounter().GetValue()
	case dto.MetricType_GAUGE:
		s.Value = m.GetGauge().GetValue()
	case dto.MetricType_HISTOGRAM:
		s.Value = float64(m.GetHistogram().GetSampleCount())
		for _, b := range m.GetHistogram().GetBucket() {
			s.Buckets = append(s.Buckets, doctor.Bucket{Upto: b.GetUpperBound(), Count: float64(b.GetCumulativeCount())})
		}
	default:
		s.Value = m.GetUntyped().GetValue()
	}
	return s
}
