package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/obs"
)

const metricsPage = "../../docs/metrics.md"

const metricsHead = `# Metrics

Written from the instruments: change those, then run ` + "`go test ./cmd/perigee -run TestMetrics -update`" + `.

` + "`/metrics`" + ` of the HTTP port shows them in the format of Prometheus, besides those of the Go runtime (` + "`go_`, `process_`" + `). A value that is
unknown is absent, never 0: write alerts with ` + "`absent()`" + ` where that matters. Names are those of RocketMQ 5 where the same thing is measured,
` + "`perigee_`" + ` otherwise. Counters begin at the start of the process. What a broker shows by topic and group is bounded by ` + "`--metrics-limit`" + `;
` + "`perigee_metrics_left_out`" + ` says how much is left out.
`

// TestMetrics: a process that has done everything once shows what docs/metrics.md says, with these labels and
// types, in a form that Prometheus takes and lints clean.
func TestMetrics(t *testing.T) {
	d, server := startDev(t)
	for _, line := range [][]string{
		{"topic", "create", "orders"},
		{"group", "create", "billing"},
		{"send", "orders", "hello"},
		{"topic", "create", "later", "--type", "delay"},
		{"send", "later", "hello", "--delay", "1h"},
		{"receive", "orders", "--group", "billing"},
	} {
		do(t, append(line, "--server", server)...)
	}
	families := scrape(t, d.metrics)
	listed := map[string]obs.Instrument{}
	for _, i := range d.metrics.Instruments() {
		require.NotContains(t, listed, i.Metric(), "two instruments of one name")
		listed[i.Metric()] = i
	}
	for name, f := range families {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "promhttp_") {
			continue
		}
		i, ok := listed[name]
		require.True(t, ok, "%s is not made with obs.Instruments", name)
		require.Equal(t, string(i.Kind), strings.ToLower(f.GetType().String()), name)
		require.Equal(t, i.Help, f.GetHelp(), name)
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
			require.ElementsMatch(t, i.Labels, labels, name)
		}
	}
	// What a process in this state does not know, or has nothing of.
	absent := []string{
		"perigee_checkpoint_age_milliseconds", "perigee_checkpoint_size_bytes", "perigee_checkpoint_duration_milliseconds", "perigee_half_messages_age_milliseconds",
		"perigee_controller_leader_contact_age_milliseconds", "perigee_controller_snapshot_age_milliseconds", "rocketmq_consumer_queueing_latency_milliseconds",
		"rocketmq_producer_connections", "perigee_proxy_mixed_subscriptions", "rocketmq_consumer_connections",
		"perigee_retention_snapshot_bytes", "perigee_retention_snapshot_position_bytes", "perigee_retention_oldest_stays", "perigee_retention_failing_seconds",
		"perigee_log_damaged_records", "perigee_broker_links", "perigee_broker_links_refused_total",
		"perigee_broker_connections", "perigee_broker_connections_refused_total",
		"perigee_proxy_masters_switched_total", "perigee_proxy_isolated", "perigee_proxy_calls_repeated_total", "perigee_proxy_calls_given_up_total", "perigee_proxy_calls_awaiting_master", "perigee_proxy_requests_cut_total",
		"perigee_replica_confirmed_bytes", "perigee_replica_lag_bytes", "perigee_replica_late_milliseconds", "perigee_sync_state_set", "perigee_min_isr",
		"perigee_replica_waits", "perigee_replica_disk_full",
	}
	for name := range listed {
		if slices.Contains(absent, name) {
			require.NotContains(t, families, name, "it is unknown")
		} else {
			require.Contains(t, families, name)
		}
	}
	writeMetricsPage(t, listed)
}

// do runs a command line, which must succeed.
func do(t *testing.T, args ...string) {
	t.Helper()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	require.NoError(t, root.ExecuteContext(t.Context()), args)
}

// startDev runs a service in this process until the test is over.
func startDev(t *testing.T) (d *devParts, server string) {
	t.Helper()
	s := &devSettings{logSettings: defaultLog(), storeSettings: defaultStore(1 << 20), edgeSettings: defaultEdge()}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d, err = s.wire(t.TempDir(), ln, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, d.conn.Close())
	})
	select {
	case <-d.proxy.Ready():
	case <-time.After(20 * time.Second):
		t.Fatal("dev is not ready")
	}
	return d, ln.Addr().String()
}

// scrape reads /metrics as Prometheus does, and lints it.
func scrape(t *testing.T, m *obs.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	body := w.Body.String()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	require.NoError(t, err)
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	require.NoError(t, err)
	for _, p := range problems {
		if strings.Contains(p.Text, "use base unit") {
			continue // RocketMQ measures times in milliseconds
		}
		require.Fail(t, "lint", "%s: %s", p.Metric, p.Text)
	}
	return families
}

func writeMetricsPage(t *testing.T, listed map[string]obs.Instrument) {
	t.Helper()
	var b strings.Builder
	b.WriteString(metricsHead)
	for _, part := range []string{"broker", "proxy", "controller", "process"} {
		fmt.Fprintf(&b, "\n## Of a %s\n\n| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n", part)
		for _, name := range slices.Sorted(maps.Keys(listed)) {
			if i := listed[name]; i.Part == part {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, i.Kind, i.Unit, strings.Join(i.Labels, ", "), i.Help)
			}
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(metricsPage, []byte(b.String()), 0o644))
	}
	have, err := os.ReadFile(metricsPage)
	require.NoError(t, err)
	for name, i := range listed {
		require.Contains(t, b.String(), "`"+name+"`", "part %q has no table", i.Part)
	}
	require.Equal(t, b.String(), string(have), "run: go test ./cmd/perigee -run TestMetrics -update")
}
