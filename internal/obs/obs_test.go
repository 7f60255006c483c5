package obs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestMetricsParse(t *testing.T) {
	m, err := NewMetrics()
	require.NoError(t, err)
	sent, err := m.Meter("perigee/test").Int64Counter("perigee_sent", metric.WithDescription("messages sent"))
	require.NoError(t, err)
	sent.Add(t.Context(), 3, metric.WithAttributes(attribute.String("topic", `o"r\ders`)))
	code, body := get(t, NewMux(Health{}, m), "/metrics")
	require.Equal(t, http.StatusOK, code)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	require.NoError(t, err)
	require.Contains(t, families, "go_goroutines")
	f := families["perigee_sent_total"]
	require.NotNil(t, f, body)
	require.EqualValues(t, 3, f.GetMetric()[0].GetCounter().GetValue())
	require.Equal(t, `o"r\ders`, f.GetMetric()[0].GetLabel()[0].GetValue())
}

// TestUnknownValuesAreAbsent: what a part cannot tell at a scrape is missing, neither 0 nor an old
// value; the others are there.
func TestUnknownValuesAreAbsent(t *testing.T) {
	m, err := NewMetrics()
	require.NoError(t, err)
	meter := m.Meter("perigee/test")
	lag, err := meter.Int64ObservableGauge("perigee_lag")
	require.NoError(t, err)
	up, err := meter.Int64ObservableCounter("perigee_seen")
	require.NoError(t, err)
	var broken error
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(up, 5)
		if broken != nil {
			return broken
		}
		o.ObserveInt64(lag, 7)
		return nil
	}, lag, up)
	require.NoError(t, err)
	mux := NewMux(Health{}, m)
	_, body := get(t, mux, "/metrics")
	require.Contains(t, body, "\nperigee_lag 7\n")
	require.NotContains(t, body, "target_info")

	broken = errors.New("the engine does not answer")
	code, body := get(t, mux, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.NotContains(t, body, "perigee_lag")
	require.Contains(t, body, "\nperigee_seen_total 5\n")
	require.Contains(t, body, "go_goroutines")
}

func TestServeHTTPEnds(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m, err := NewMetrics()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ServeHTTP(ctx, ln, NewMux(Health{}, m)) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ln.Addr().String()+"/healthz", nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "ok\n", string(body))
	cancel()
	require.NoError(t, <-ended)
	_, err = net.Dial("tcp", ln.Addr().String())
	require.Error(t, err, "the port is free again")
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log, err := NewLogger(&b, "warn", "json")
	require.NoError(t, err)
	log.Info("quiet")
	require.Empty(t, b.String())
	log.Warn("loud", slog.Int("disk_bytes", 7))
	var line map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &line))
	require.Equal(t, "loud", line["msg"])
	require.EqualValues(t, 7, line["disk_bytes"])

	b.Reset()
	log, err = NewLogger(&b, "DEBUG", "text")
	require.NoError(t, err)
	log.Debug("fine", slog.String("group", "a b"))
	require.Contains(t, b.String(), `msg=fine group="a b"`)

	for _, c := range []struct{ level, format, names string }{
		{"loud", "text", `"loud": use debug, info, warn or error`}, {"", "text", "log level"}, {"info", "xml", `"xml": use text or json`}, {"info", "", "log format"},
	} {
		_, err := NewLogger(&b, c.level, c.format)
		require.ErrorContains(t, err, c.names)
	}
}
