package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/memory"
)

const limitsPage = "../../docs/limits.md"

const limitsHead = `# Limits

Written from a table in ` + "`cmd/perigee/limits_test.go`" + `, which takes names and defaults from the settings and knows that the metrics exist: change those, then run
` + "`go test ./cmd/perigee -run TestLimitsPage -update`" + `.

What is bounded, by which [setting](settings.md), what happens at the bound, and which [metric](metrics.md) shows that it was reached. Who meets one is told
` + "`TOO_MANY_REQUESTS` in a normal answer (on a telemetry stream, which has none, gRPC `RESOURCE_EXHAUSTED`), with a pause in the text and in the trailer" + `
` + "`retry-after-ms`" + `. Official clients go by their backoff for that code only; when the call itself fails they try again at once. A receive takes that pause before
it is refused, since four official clients ask again 20 ms later ([outcomes](outcomes.md)); of receives beyond --max-calls a 16th of that number does so at a time.

| what | bound (default) | setting | at the bound | metric |
|---|---|---|---|---|
`

const limitsTail = `
Not bounded by a number of their own, but by the memory limit: messages that wait for their time (timers), runs of messages that an ordered
group has passed over, filters of subscriptions. A bound on messages in flight counts on each broker; a lease that is renewed after its end
counts again and is not refused.

What a process holds beyond perigee_memory_bytes{kind="live"} is garbage that nobody had to collect yet: brokers and proxies let
48 MiB of it gather and twice what holds pointers, at most four times what is live (GOGC, which they set between 10 and 400; controllers: 400), within the
memory limit. Calls that are begun and reset at once, at full rate, take it near the limit that way; what is live of
them are the handlers that have not ended yet, at most --max-connection-calls on each connection.
`

// limit is a row of docs/limits.md.
type limit struct {
	what     string
	settings string // names of flags of dev, broker or proxy
	bound    string // in words; empty: the defaults of the settings
	at       string
	metrics  string // with a label where it matters: name{label="value"}
}

var limits = []limit{
	{"memory", "memory-limit", fmt.Sprintf("%.0f/10 of the machine's or its control group's", 10*memory.ShareOfMachine), "near it (85 %) sends, pulls, receives beyond 256 and first deliveries are refused until 80 %", "perigee_memory_bytes perigee_memory_refused_total"},
	{"connections of clients", "max-connections", "", "closed at once", `perigee_proxy_connections perigee_proxy_refused_total{bound="connections"}`},
	{"time until a connection speaks HTTP/2", "handshake-timeout", "", "closed; the metric sees it until TLS or the first bytes are through", `perigee_proxy_refused_total{bound="handshake"}`},
	{"calls open at a proxy (each is one goroutine, telemetry two)", "max-calls", "", "refused", `perigee_proxy_calls_open perigee_proxy_refused_total{bound="calls"} go_goroutines`},
	{"calls open on one connection", "max-connection-calls", "", "the client's library waits", "perigee_proxy_calls_open"},
	{"headers of a call / a request", "max-header-bytes max-request-bytes", "", "refused by the transport, which sees headers alone", `perigee_proxy_requests_total{code="GRPC_RESOURCEEXHAUSTED"}`},
	{"receives that wait at a proxy / of one group on one topic", "max-receives max-receives-group", "", "refused", `perigee_proxy_receives_waiting perigee_proxy_refused_total{bound="receives_waiting"}`},
	{"messages on their way to slow readers", "memory-limit", fmt.Sprintf("256 MiB, 1/%d of the memory limit", pendingShare), "receives and pulls are refused; one that is not read for a minute is cut off and its batch given back", `perigee_proxy_unread_bytes perigee_proxy_refused_total{bound="unread"}`},
	{"clients known to a proxy", "max-clients", "", "of a few the one silent for longest goes", "perigee_proxy_clients perigee_proxy_clients_pushed_out_total"},
	{"body of a message / bodies of one send", "max-body-bytes max-batch-bytes", "", "refused with a code of its own", `perigee_proxy_requests_total{code="MESSAGE_BODY_TOO_LARGE"} perigee_proxy_requests_total{code="PAYLOAD_TOO_LARGE"}`},
	{"properties of a message: number / bytes with tag and keys / of the system", "max-properties max-property-bytes max-system-bytes", "", "refused with a code of its own", `perigee_proxy_requests_total{code="MESSAGE_PROPERTIES_TOO_LARGE"}`},
	{"bytes of a message group", "max-message-group-bytes", "", "refused with a code of its own", `perigee_proxy_requests_total{code="ILLEGAL_MESSAGE_GROUP"}`},
	{"time until a delivery", "max-delay", "", "refused with a code of its own", `perigee_proxy_requests_total{code="ILLEGAL_DELIVERY_TIME"}`},
	{"messages of one receive or pull / their bytes", "max-receive-batch max-receive-bytes", "", "fewer come, at least one", `perigee_broker_events_total{kind="leased"}`},
	{"requests under way at a broker: number", "max-requests", "", "refused", `perigee_broker_events_total{kind="refused_busy"}`},
	{"requests under way at a broker: bytes", "memory-limit", fmt.Sprintf("256 MiB, 1/%d of the memory limit", pendingShare), "refused", `perigee_broker_events_total{kind="refused_busy"}`},
	{"links of proxies to a broker", "max-links", "", "refused, the proxy tries again", "perigee_broker_links perigee_broker_links_refused_total"},
	{"requests of a class that wait for a link", "link-send-unsent link-receive-unsent link-control-unsent", "", "refused", `perigee_proxy_refused_total{bound="link_unsent"}`},
	{"requests or answers of a class on a link that are not dealt with", "link-send-window link-receive-window link-control-window", "", "the class waits at the other side", `perigee_proxy_refused_total{bound="link_unsent"}`},
	{"silence on a link before a sign of life is asked for", "link-keepalive", "", "after as long again the link ends, and what was under way on it is asked again where that is safe", "perigee_proxy_requests_cut_total"},
	{"connections of other processes to a broker or a controller", "max-peer-connections", "", "closed at once", "perigee_broker_connections perigee_broker_connections_refused_total perigee_controller_connections perigee_controller_connections_refused_total"},
	{"calls open on one such connection to a controller", "max-peer-calls", "", "the other side waits", "perigee_controller_proxies perigee_controller_broker_sessions"},
	{"topics / groups of a cluster", "max-topics max-groups", "", "no more are created, but for topics of dead letters", "perigee_controller_topics perigee_controller_groups"},
	{"broker groups / replicas of one / controllers of a cluster", "", fmt.Sprintf("%d / %d / %d, fixed", state.ShardsMax, state.ReplicasMax, state.ControllersMax), "refused", "perigee_controller_brokers perigee_sync_state_set perigee_controller_members"},
	{"time that a broker group which is slow is left alone by sends that may choose", "isolate-max", "", "it gets one send", "perigee_proxy_isolated perigee_proxy_isolations_total"},
	{"messages leased to a group / to one client, on each broker", "max-in-flight max-in-flight-client", "", "its receives wait, and are woken when a lease ends; a group may have its own: `perigee group update`", `perigee_broker_events_total{kind="refused_group_in_flight"} rocketmq_consumer_inflight_messages`},
	{"messages in flight, all groups", "memory-limit", fmt.Sprintf("1/%d of the memory limit at %d bytes", inFlightShare, messageBytes), "none is handed out for the first time", `perigee_broker_events_total{kind="refused_table_in_flight"}`},
	{"pulls that wait", "pulls-waiting", "", "refused", `perigee_broker_events_total{kind="pulls_refused_waiting"}`},
	{"transactions without an end / remembered ends", "txn-open-max txn-verdicts-max", "", "refused / the oldest is forgotten", `perigee_broker_events_total{kind="half_messages_refused"}`},
	{"duplicate window", "duplicate-memory", "", "it gets shorter", "perigee_duplicate_window_milliseconds"},
	{"lite topics that a client subscribes to, of a proxy / of a broker", "lite-subscriptions lite-client-topics", "", "refused with a quota code", `perigee_broker_events_total{kind="lite_quota_refused"}`},
	{"lite topics of a parent, on each broker", "lite-topics", "", "a message that would make one is refused with a quota code", `perigee_broker_events_total{kind="lite_quota_refused"}`},
	{"log behind the newest checkpoint", "checkpoint-behind", "", "messages are refused", `perigee_checkpoint_behind_bytes perigee_broker_events_total{kind="refused_unsaved"}`},
	{"room kept on a full disk for what retention writes: half of it is for messages that are carried forward; with it a file `ballast` for a checkpoint", "space-retention-room", "", "nothing is deleted until there is more space", "perigee_retention_failing_seconds perigee_space_ballast_bytes"},
	{"room on the disk", "space-producers-used space-producers-free space-consumers-room", "", "producers, then consumers are refused; see [settings](settings.md)", "perigee_space_level perigee_space_refused_total"},
	{"searches and traces of messages at once", "queries", "", "others wait", `perigee_broker_events_total{kind="queries_waited"}`},
	{"topics, and pairs of a topic and a group, in metrics", "metrics-limit", "", "the others are left out", "perigee_metrics_left_out"},
}

// noLinks is what dev does not show, which has no links.
const noLinks = `bound="link_unsent"`

// TestLimitsPage: each limit's setting exists and has the default that is printed, its metric exists, and no setting
// that is named as a bound is missing.
func TestLimitsPage(t *testing.T) {
	flags := serverFlags()
	d, _ := startDev(t)
	shown := scrape(t, d.metrics)
	listed := map[string]bool{}
	for _, i := range d.metrics.Instruments() {
		listed[i.Metric()] = true
	}
	used := map[string]bool{}
	var b strings.Builder
	b.WriteString(limitsHead)
	for _, l := range limits {
		var names, defaults, metrics []string
		for name := range strings.FieldsSeq(l.settings) {
			f := flags[name]
			require.NotNil(t, f, "%s: no server has a setting --%s", l.what, name)
			used[name] = true
			names, defaults = append(names, "`--"+name+"`"), append(defaults, boundText(f))
		}
		for m := range strings.FieldsSeq(l.metrics) {
			name, label, _ := strings.Cut(strings.TrimSuffix(m, "}"), "{")
			require.True(t, listed[name] || strings.HasPrefix(name, "go_"), "%s: there is no metric %s", l.what, name)
			require.True(t, label == "" || hasLabel(shown[name], label), "%s: metric %s has no %s", l.what, name, label)
			metrics = append(metrics, "`"+m+"`")
		}
		require.NotEmpty(t, metrics, l.what)
		bound := l.bound
		if bound == "" {
			bound = strings.Join(defaults, " / ")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", l.what, bound, strings.Join(names, ", "), l.at, strings.Join(metrics, ", "))
	}
	b.WriteString(limitsTail)
	for name := range flags {
		if strings.HasPrefix(name, "max-") || strings.HasSuffix(name, "-max") || strings.HasSuffix(name, "-limit") && name != "txn-check-limit" || strings.HasPrefix(name, "link-") {
			require.True(t, used[name], "--%s is a bound: it lacks a row", name)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(limitsPage, []byte(b.String()), 0o644))
	}
	have, err := os.ReadFile(limitsPage)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(have), "run: go test ./cmd/perigee -run TestLimitsPage -update")
}

// serverFlags are the settings of all servers, by name.
func serverFlags() map[string]*pflag.Flag {
	all := map[string]*pflag.Flag{}
	for _, c := range newRoot().Commands() {
		if slices.Contains([]string{"controller", "broker", "proxy", "dev"}, c.Name()) {
			c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { all[f.Name] = f })
		}
	}
	return all
}

// boundText is the default of a setting; 0 is no bound.
func boundText(f *pflag.Flag) string {
	if f.DefValue == "0" {
		return "none"
	}
	return f.DefValue
}

// hasLabel tells whether a family has a sample with a label name="value", or none can be told now.
func hasLabel(f *dto.MetricFamily, label string) bool {
	if label == noLinks {
		return true
	}
	if code, ok := strings.CutPrefix(label, `code="`); ok { // shown from the first call on that got it
		_, public := rmqv2.Code_value[strings.TrimSuffix(code, `"`)]
		return public || code == `GRPC_RESOURCEEXHAUSTED"`
	}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()) == label {
				return true
			}
		}
	}
	return false
}
