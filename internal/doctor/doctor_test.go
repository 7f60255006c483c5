package doctor

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// one is a metric with a single value.
func one(value float64, labels ...string) []Sample {
	s := Sample{Value: value, Labels: map[string]string{}}
	for i := 0; i+1 < len(labels); i += 2 {
		s.Labels[labels[i]] = labels[i+1]
	}
	return []Sample{s}
}

// healthy is an installation without a fault: a proxy, a broker and a controller on machines of their own.
func healthy() *Picture {
	user := uint32(1000)
	syncs := []time.Duration{time.Millisecond, 2 * time.Millisecond, 90 * time.Millisecond}
	base := Metrics{"process_open_fds": one(100), "process_max_fds": one(65536), "process_resident_memory_bytes": one(1 << 28), "go_gc_gomemlimit_bytes": one(1 << 30)}
	with := func(more Metrics) Metrics {
		m := base.clone()
		maps.Copy(m, more)
		return m
	}
	return &Picture{
		Now: now,
		Server: &Server{
			Address: "mq.example:8081", Reach: Reached, Serving: new(true), Release: "1", Cluster: "c",
			TLS:         &TLS{Host: "mq.example", NotAfter: now.AddDate(0, 6, 0)},
			Advertised:  []Endpoint{{Address: "mq.example:8081"}},
			Topics:      []Topic{{Name: "orders", Queues: 8}},
			Groups:      []Group{{Name: "billing", Topics: []Progress{{Topic: "orders", Ready: 5, InFlight: 3, OldestMS: now.Add(-time.Hour).UnixMilli()}, {Topic: "fresh", Ready: 2, OldestMS: now.UnixMilli()}}}},
			DeadLetters: []DeadLetters{{Topic: "%DLQ%billing", Broker: "a", Left: 0, NewestMS: now.UnixMilli()}},
		},
		Processes: []Process{
			{Address: "proxy:8082", Release: "1", Off: 3 * time.Millisecond, Parts: []Part{{Name: "proxy", Ready: true}}, Metrics: with(Metrics{
				"perigee_proxy_clients": one(3), "perigee_proxy_requests_total": one(7, "method", "SendMessage", "code", "OK"),
			})},
			{Address: "broker:8082", Release: "1", Off: -40 * time.Millisecond, Parts: []Part{{Name: "broker", Ready: true}}, Metrics: with(Metrics{
				"perigee_space_level": one(0), "perigee_space_used_bytes": one(50), "perigee_space_free_bytes": one(50), "perigee_space_stuck": one(0),
				"perigee_log_flush_duration_milliseconds": {{Value: 100, Buckets: []Bucket{{1, 90}, {5, 99}, {100, 100}}}},
				"perigee_log_failures_total":              one(0), "perigee_broker_events_total": one(0, "kind", "damaged"),
				"perigee_retention_steps_total":     one(3),
				"perigee_checkpoint_failures_total": one(0), "perigee_checkpoint_behind_bytes": one(1 << 20),
				"perigee_delay_overdue_milliseconds": one(12), "perigee_duplicate_window_milliseconds": one(600_000), "perigee_duplicate_window_set_milliseconds": one(600_000),
			})},
			{Address: "ctl:8083", Release: "1", Parts: []Part{{Name: "controller", Ready: true}}, Metrics: with(Metrics{
				"perigee_controller_up": one(1), "perigee_controller_leads": one(1), "perigee_controller_brokers": one(0, "state", "away"),
				"perigee_controller_members": append(one(3, "state", "votes"), one(0, "state", "learns")...), "perigee_controller_members_away": one(0), "perigee_controller_caught_up": one(1),
				"perigee_controller_stuck_groups": one(0), "perigee_controller_data_losses": one(0),
			})},
		},
		Dir: &Dir{Path: "/data", Owner: &user, User: &user, Free: 500 << 30, Total: 1000 << 30, Syncs: syncs, Checked: true, LogEnd: 5 << 30, Checkpoint: 5<<30 - 1000},
	}
}

func find(t *testing.T, all []Finding, check string) Finding {
	t.Helper()
	for _, f := range all {
		if f.Check == check {
			return f
		}
	}
	require.Fail(t, "no check", check)
	return Finding{}
}

// TestHealthyIsSilent: a healthy installation has no fault and nothing that is not known.
func TestHealthyIsSilent(t *testing.T) {
	all := Examine(healthy())
	require.Len(t, all, len(serverChecks)+len(processChecks)+len(dirChecks))
	for _, f := range all {
		require.Equal(t, OK, f.State, "%s: %v", f.Check, f.Found)
		require.Empty(t, f.Found)
		require.NotEmpty(t, f.Looked)
	}
	require.False(t, Sick(all))
}

// faults are seeded one at a time into a healthy picture: the check says so, and what to do.
var faults = []struct {
	check string
	state State
	says  string
	seed  func(p *Picture)
}{
	{"server-reachable", Fail, "nothing answers at mq.example:8081: connection refused", func(p *Picture) { p.Server.Reach, p.Server.Error = Refused, "connection refused" }},
	{"server-port", Fail, "is an HTTP port", func(p *Picture) { p.Server.Reach, p.Server.HTTP = NotGRPC, true }},
	{"server-port", Fail, "speaks no gRPC", func(p *Picture) { p.Server.Reach = NotGRPC }},
	{"server-port", Fail, "is no proxy of Perigee", func(p *Picture) { p.Server.Reach = NotPerigee }},
	{"server-ready", Fail, "does not want calls now", func(p *Picture) { p.Server.Serving = new(false) }},
	{"tls", Fail, "the certificate ended on 2026-02-28", func(p *Picture) { p.Server.TLS.NotAfter = now.Add(-24 * time.Hour) }},
	{"tls", Warn, "the certificate ends on 2026-03-08", func(p *Picture) { p.Server.TLS.NotAfter = now.AddDate(0, 0, 7) }},
	{"tls", Fail, "is not for mq.example", func(p *Picture) { p.Server.TLS.HostErr = "it is for other.example" }},
	{"tls", Unknown, "no TLS connection", func(p *Picture) { p.Server.TLS = nil }},
	{"advertised-address", Fail, "cannot be reached from here", func(p *Picture) { p.Server.Advertised[0].Error = "no route to host" }},
	{"advertised-address", Fail, "which is their own machine", func(p *Picture) { p.Server.Advertised[0].Address = "127.0.0.1:8081" }},
	{"advertised-address", Fail, "which is their own machine", func(p *Picture) { p.Server.Advertised[0].Address = "0.0.0.0:8081" }},
	{"advertised-address", Unknown, "no route", func(p *Picture) { p.Server.Advertised = nil }},
	{"controller", Fail, "the server has no controller: gone", func(p *Picture) { p.Server.Controller = "gone" }},
	{"groups-without-consumers", Warn, "group billing has 5 ready messages of topic orders, the oldest 1h0m0s old, and nobody receives", func(p *Picture) { p.Server.Groups[0].Topics[0].InFlight = 0 }},
	{"groups-without-consumers", Unknown, "group billing: a is away", func(p *Picture) { p.Server.Groups[0].Unknown = []string{"a is away"} }},
	{"groups-without-consumers", Unknown, "could not list them", func(p *Picture) { p.Server.Unlisted = "no controller" }},
	{"retries", Warn, "4 times after its last attempt", func(p *Picture) { p.Server.Groups[0].Topics[0].OverMax = 4 }},
	{"dead-letters", Warn, "the newest 1m0s old: consumers fail now", func(p *Picture) {
		p.Server.DeadLetters[0].Left, p.Server.DeadLetters[0].NewestMS = 7, now.Add(-time.Minute).UnixMilli()
	}},
	{"dead-letters", Warn, "has 7 dead letters", func(p *Picture) { p.Server.DeadLetters[0].Left, p.Server.DeadLetters[0].NewestMS = 7, 0 }},
	{"topic-queues", Fail, "topic orders: broker b is away", func(p *Picture) { p.Server.Topics[0].Unknown = []string{"broker b is away"} }},
	{"topic-queues", Fail, "topics without queues: orders", func(p *Picture) { p.Server.Topics[0].Queues = 0 }},

	{"topic-queues", Unknown, "12 topics were not asked", func(p *Picture) { p.Server.Unasked = 12 }},

	{"processes", Fail, "broker:8082 does not answer: refused", func(p *Picture) { p.Processes[1].Error = "refused" }},
	{"processes", Unknown, "no process was asked", func(p *Picture) { p.Processes = nil }},
	{"processes-ready", Fail, "the broker is not ready: it recovers", func(p *Picture) { p.Processes[1].Parts[0] = Part{Name: "broker", Reason: "it recovers"} }},
	{"clocks", Warn, "broker:8082 is off by 3s", func(p *Picture) { p.Processes[1].Off = -3 * time.Second }},
	{"clocks", Fail, "broker:8082 is off by 1h0m0s", func(p *Picture) { p.Processes[1].Off = time.Hour }},
	{"versions", Warn, "release 2: broker:8082", func(p *Picture) { p.Processes[1].Release = "2" }},
	{"raft-leader", Fail, "knows no leader", func(p *Picture) { p.Processes[2].Metrics["perigee_controller_up"] = one(0) }},
	{"raft-leader", Fail, "2 broker groups are away", func(p *Picture) { p.Processes[2].Metrics["perigee_controller_brokers"] = one(2, "state", "away") }},
	{"controllers", Fail, "1 of 3 controllers do not answer the leader ctl:8083", func(p *Picture) { p.Processes[2].Metrics["perigee_controller_members_away"] = one(1) }},
	{"controllers", Warn, "2 controllers vote", func(p *Picture) { p.Processes[2].Metrics["perigee_controller_members"] = one(2, "state", "votes") }},
	{"controllers", Warn, "1 controllers have no vote yet", func(p *Picture) {
		p.Processes[2].Metrics["perigee_controller_members"] = append(one(3, "state", "votes"), one(1, "state", "learns")...)
	}},
	{"controllers", Fail, "ctl:8083 has not caught up", func(p *Picture) { p.Processes[2].Metrics["perigee_controller_caught_up"] = one(0) }},
	{"broker-groups", Fail, "2 broker groups need a master", func(p *Picture) { p.Processes[2].Metrics["perigee_controller_stuck_groups"] = one(2) }},
	{"broker-groups", Warn, "1 times an operator had a master elected", func(p *Picture) { p.Processes[2].Metrics["perigee_controller_data_losses"] = one(1) }},
	{"broker-groups", Unknown, "no process that was asked shows it", func(p *Picture) { delete(p.Processes[2].Metrics, "perigee_controller_data_losses") }},
	{"controllers", Unknown, "no process that was asked shows it", func(p *Picture) { delete(p.Processes[2].Metrics, "perigee_controller_members") }},
	{"raft-leader", Warn, "2 controllers lead", func(p *Picture) { p.Processes = append(p.Processes, p.Processes[2]) }},
	{"disk-space", Fail, "refuses producers and consumers", metric(1, "perigee_space_level", 3)},
	{"disk-space", Fail, "refuses producers", metric(1, "perigee_space_level", 2)},
	{"disk-space", Warn, "near its watermark", metric(1, "perigee_space_level", 1)},
	{"disk-space", Warn, "95 % full", metric(1, "perigee_space_used_bytes", 950)},
	{"disk-space", Fail, "cannot make its next file", metric(1, "perigee_space_stuck", 1)},
	{"flush-time", Warn, "up to 100 ms", histogram(50)},
	{"flush-time", Fail, "longer than 1000 ms", histogram(0)},
	{"flush-time", Unknown, "has synced nothing yet", func(p *Picture) {
		p.Processes[1].Metrics["perigee_log_flush_duration_milliseconds"] = []Sample{{}}
	}},
	{"log-failures", Fail, "a write or fdatasync of broker:8082 has failed", metric(1, "perigee_log_failures_total", 1)},
	{"log-failures", Fail, "3 damaged messages", func(p *Picture) { p.Processes[1].Metrics["perigee_broker_events_total"] = one(3, "kind", "damaged") }},
	{"checkpoints", Warn, "could not save 2 checkpoints", metric(1, "perigee_checkpoint_failures_total", 2)},
	{"checkpoints", Warn, "4.0 GiB of log behind", metric(1, "perigee_checkpoint_behind_bytes", 4<<30)},
	{"retention", Warn, "broker:8082 has not been able to delete old messages for 1m30s", metric(1, "perigee_retention_failing_seconds", 90)},
	{"retention", Fail, "for 2h0m0s", metric(1, "perigee_retention_failing_seconds", 7200)},
	{"retention", Unknown, "", func(p *Picture) { delete(p.Processes[1].Metrics, "perigee_retention_steps_total") }},
	{"subscriptions", Warn, "push consumers of group billing", func(p *Picture) {
		p.Processes[0].Metrics["perigee_proxy_mixed_subscriptions"] = one(1, "consumer_group", "billing")
	}},
	{"message-types", Warn, "has refused 9 sends", func(p *Picture) {
		p.Processes[0].Metrics["perigee_proxy_requests_total"] = one(9, "code", "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE")
	}},
	{"delayed-messages", Warn, "are 5s late", metric(1, "perigee_delay_overdue_milliseconds", 5000)},
	{"duplicate-window", Warn, "for 1m0s, not for the 10m0s", metric(1, "perigee_duplicate_window_milliseconds", 60_000)},
	{"file-descriptors", Warn, "may open 1024 files", metric(0, "process_max_fds", 1024)},
	{"file-descriptors", Fail, "uses 60000 of 65536", metric(0, "process_open_fds", 60_000)},
	{"memory", Warn, "has refused new work 5 times", metric(1, "perigee_memory_refused_total", 5)},
	{"memory", Warn, "uses 950 MiB of 1024 MiB", func(p *Picture) {
		p.Processes[1].Metrics["perigee_memory_bytes"] = append(one(1<<30, "kind", "limit"), one(950<<20, "kind", "live")...)
	}},
	{"memory", Warn, "uses 1000 MiB of 1024 MiB", metric(2, "process_resident_memory_bytes", 1000<<20)},

	{"data-directory", Fail, "no such directory", func(p *Picture) { p.Dir.Error = "no such directory" }},
	{"data-directory", Fail, "this release does not take it: format 9", func(p *Picture) { p.Dir.Refused = "format 9" }},
	{"data-directory", Fail, "it belongs to user 7", func(p *Picture) { p.Dir.Owner = new(uint32(7)) }},
	{"data-lock", Warn, "a process has it", func(p *Picture) { p.Dir.Locked, p.Server = true, nil }},
	{"data-space", Warn, "90 % full", func(p *Picture) { p.Dir.Free = 100 << 30 }},
	{"data-space", Fail, "512 MiB are free", func(p *Picture) { p.Dir.Free = 512 << 20 }},
	{"data-space", Unknown, "does not tell", func(p *Picture) { p.Dir.Total = 0 }},
	{"data-sync", Warn, "longer than 30ms", func(p *Picture) { p.Dir.Syncs = []time.Duration{30 * time.Millisecond} }},
	{"data-sync", Fail, "longer than 2s", func(p *Picture) { p.Dir.Syncs = []time.Duration{2 * time.Second} }},
	{"data-sync", Unknown, "no write could be tried", func(p *Picture) { p.Dir.Syncs = nil }},
	{"data-damage", Fail, "record at 7 is damaged", func(p *Picture) { p.Dir.Damage = []string{"record at 7 is damaged"} }},
	{"data-damage", Unknown, "it was not read", func(p *Picture) { p.Dir.Checked = false }},
	{"data-checkpoint", Warn, "5.0 GiB of log are behind", func(p *Picture) { p.Dir.Checkpoint = -1 }},
	{"data-leftovers", Warn, "old.tmp", func(p *Picture) { p.Dir.Leftovers = []string{"old.tmp"} }},
}

// metric sets a value that a process shows.
func metric(process int, name string, value float64) func(*Picture) {
	return func(p *Picture) { p.Processes[process].Metrics[name] = one(value) }
}

// histogram makes fdatasyncs slow: so many of 100 take up to 5 ms, the others up to 100 ms, or without end.
func histogram(fast float64) func(*Picture) {
	return func(p *Picture) {
		b := []Bucket{{5, fast}, {100, 100}}
		if fast == 0 {
			b = []Bucket{{5, 0}, {100, 0}}
		}
		p.Processes[1].Metrics["perigee_log_flush_duration_milliseconds"] = []Sample{{Value: 100, Buckets: b}}
	}
}

func TestFaultsAreFound(t *testing.T) {
	seeded := map[string]bool{}
	for _, c := range faults {
		p := healthy()
		c.seed(p)
		all := Examine(p)
		f := find(t, all, c.check)
		require.Equal(t, c.state, f.State, "%s: %v", c.check, f.Found)
		require.NotEmpty(t, f.Found)
		require.Contains(t, strings.Join(f.Found, "\n"), c.says)
		if c.state == Unknown {
			continue
		}
		require.NotEmpty(t, f.Do, "%s does not say what to do", c.check)
		require.True(t, Sick(all))
		seeded[c.check] = true
		for _, other := range all { // nothing else is blamed; what the fault hides may be unknown
			if other.Check != c.check {
				require.Contains(t, []State{OK, Unknown}, other.State, "%s is blamed for %s: %v", other.Check, c.check, other.Found)
			}
		}
	}
	for _, f := range Examine(healthy()) {
		require.True(t, seeded[f.Check], "no fault is seeded for %s", f.Check)
	}
}

// TestNothingKnown: without any answer no check says OK but those that need none.
func TestNothingKnown(t *testing.T) {
	for _, f := range Examine(&Picture{Now: now, Server: &Server{Address: "x:1", Reach: Refused}}) {
		require.NotEqual(t, OK, f.State, f.Check)
	}
	for _, f := range Examine(&Picture{Now: now, Server: &Server{Address: "x:1", Reach: Reached}}) {
		switch f.Check {
		case "server-ready", "tls", "advertised-address", "processes", "disk-space", "flush-time", "clocks":
			require.Equal(t, Unknown, f.State, f.Check)
		}
	}
	for _, f := range Examine(&Picture{Now: now, Dir: &Dir{Path: "/x"}}) {
		switch f.Check {
		case "data-space", "data-sync", "data-damage", "data-checkpoint":
			require.Equal(t, Unknown, f.State, f.Check)
		}
	}
}
