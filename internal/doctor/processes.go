package doctor

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// What is judged too much.
const (
	clockOff        = time.Second
	clockFar        = 10 * time.Second
	diskUsed        = 0.85
	flushSlowMS     = 50.0
	flushStuckMS    = 1000.0
	checkpointFar   = 1 << 30 // bytes
	descriptorsFew  = 4096
	descriptorsUsed = 0.8
	memoryUsed      = 0.9
	overdueMS       = 2000.0
	retentionLong   = 3600.0 // seconds
)

var processChecks = []check{
	{"processes", "the HTTP ports of --http: /readyz and /metrics", processesAnswer},
	{"processes-ready", "/readyz of each process", processesReady},
	{"clocks", "the clocks of all processes against this one", clocks},
	{"versions", "the releases of all processes", versions},
	{"raft-leader", "raft of the controllers, brokers that are away", raftLeader},
	controllersCheck,
	electionsCheck,
	{"disk-space", "space of the brokers: who is refused, how full the file system is", processSpace},
	{"flush-time", "how long fdatasync of the commit logs took", flushTime},
	{"log-failures", "failed writes, damaged messages", logFailures},
	{"checkpoints", "failures of checkpoints, log behind the newest", checkpoints},
	{"retention", "deletions of old messages that cannot be finished", retentionWorks},
	{"subscriptions", "push consumers of one group that subscribe to different things", subscriptions},
	{"message-types", "messages refused because their topic takes another type", messageTypes},
	{"delayed-messages", "delayed messages that are due and not delivered", delayed},
	{"duplicate-window", "the duplicate window in force against the one that is set", duplicateWindow},
	{"file-descriptors", "descriptors in use and the limit of each process", descriptors},
	{"memory", "memory in use and the limit of each process", memory},
}

// each calls judge for every process that shows one of the names; without any the check is not known.
func each(p *Picture, f *Finding, judge func(at string, m Metrics), names ...string) {
	seen := false
	for _, one := range p.Processes {
		if slices.ContainsFunc(names, func(name string) bool { return len(one.Metrics[name]) > 0 }) {
			seen = true
			judge(one.Address, one.Metrics)
		}
	}
	if !seen {
		f.unknown("name the HTTP ports of all processes with --http", "no process that was asked shows it")
	}
}

func processesAnswer(p *Picture, f *Finding) {
	if len(p.Processes) == 0 {
		f.unknown("name the HTTP ports of all processes with --http", "no process was asked")
	}
	for _, one := range p.Processes {
		if one.Error != "" {
			f.fail("start it, or name its --http-addr with --http", "%s does not answer: %s", one.Address, one.Error)
		}
	}
}

func processesReady(p *Picture, f *Finding) {
	seen := false
	for _, one := range p.Processes {
		for _, part := range one.Parts {
			if seen = true; !part.Ready {
				f.fail("wait if it is starting; else do what the reason says", "%s: the %s is not ready: %s", one.Address, part.Name, part.Reason)
			}
		}
	}
	if !seen {
		f.unknown("name the HTTP ports of all processes with --http", "no process has said")
	}
}

func clocks(p *Picture, f *Finding) {
	seen := false
	for _, one := range p.Processes {
		if one.Error != "" {
			continue
		}
		seen = true
		off := one.Off.Abs().Round(time.Millisecond)
		const do = "let a time service (NTP) run on every machine: delays, retention and start times follow these clocks"
		switch {
		case off >= clockFar:
			f.fail(do, "the clock of %s is off by %s from this machine's", one.Address, off)
		case off >= clockOff:
			f.warn(do, "the clock of %s is off by %s from this machine's", one.Address, off)
		}
	}
	if !seen {
		f.unknown("name the HTTP ports of all processes with --http", "no process has told its time")
	}
}

func versions(p *Picture, f *Finding) {
	who := map[string][]string{}
	if p.Server != nil && p.Server.Release != "" {
		who[p.Server.Release] = append(who[p.Server.Release], p.Server.Address)
	}
	for _, one := range p.Processes {
		if one.Release != "" {
			who[one.Release] = append(who[one.Release], one.Address)
		}
	}
	if len(who) == 0 {
		f.unknown("", "no process has told its release")
	}
	if len(who) > 1 {
		for _, release := range slices.Sorted(maps.Keys(who)) {
			f.warn("bring all processes to one release: controllers first, then brokers, then proxies", "release %s: %s", release, some(who[release]))
		}
	}
}

func raftLeader(p *Picture, f *Finding) {
	leaders := 0
	each(p, f, func(at string, m Metrics) {
		if up, ok := m.value("perigee_controller_up"); ok && up == 0 {
			f.fail("start the other controllers; see whether they reach each other's --raft-addr", "controller %s knows no leader", at)
		}
		if leads, _ := m.value("perigee_controller_leads"); leads == 1 {
			leaders++
		}
		if away := m.with("perigee_controller_brokers", "state", "away"); away > 0 {
			f.fail("start the brokers that are away: messages in their queues wait there", "%.0f broker groups are away, says controller %s", away, at)
		}
	}, "perigee_controller_up")
	if leaders > 1 {
		f.warn("ask again; if it stays, these controllers are of different clusters", "%d controllers lead", leaders)
	}
}

func processSpace(p *Picture, f *Finding) {
	each(p, f, func(at string, m Metrics) {
		const do = "free space or make the file system larger: requests are taken again by themselves then; shorter retention helps for longer"
		level, known := m.value("perigee_space_level")
		used, _ := m.value("perigee_space_used_bytes")
		free, _ := m.value("perigee_space_free_bytes")
		switch {
		case known && level >= 3:
			f.fail(do, "%s refuses producers and consumers", at)
		case known && level >= 2:
			f.fail(do, "%s refuses producers", at)
		case known && level >= 1:
			f.warn(do, "%s is near its watermark: it deletes what it may", at)
		case used+free > 0 && used/(used+free) > diskUsed:
			f.warn(do, "the file system of %s is %.0f %% full", at, 100*used/(used+free))
		}
		if stuck, _ := m.value("perigee_space_stuck"); stuck > 0 {
			f.fail(do, "%s cannot make its next file", at)
		}
	}, "perigee_space_level")
}

func flushTime(p *Picture, f *Finding) {
	const name = "perigee_log_flush_duration_milliseconds"
	each(p, f, func(at string, m Metrics) {
		if n, _ := m.value(name); n == 0 {
			f.unknown("", "%s has synced nothing yet", at)
			return
		}
		const do = "use a disk with fast fdatasync (a local SSD with power-loss protection); see whether others load it; `perigee doctor --data-dir` measures it"
		switch ms, ok := m.quantile(name, 0.99); {
		case !ok || ms > flushStuckMS:
			f.fail(do, "one fdatasync in a hundred takes longer than %.0f ms at %s", flushStuckMS, at)
		case ms > flushSlowMS:
			f.warn(do, "one fdatasync in a hundred takes up to %.0f ms at %s", ms, at)
		}
	}, name)
}

func logFailures(p *Picture, f *Finding) {
	each(p, f, func(at string, m Metrics) {
		if n, _ := m.value("perigee_log_failures_total"); n > 0 {
			f.fail("check the disk, then start the broker again: it recovers all acknowledged data", "a write or fdatasync of %s has failed", at)
		}
		if n := m.with("perigee_broker_events_total", "kind", "damaged"); n > 0 {
			f.fail("check the disk; stop the broker and run `perigee debug check` on its directory", "%s has found %.0f damaged messages since its start", at, n)
		}
	}, "perigee_log_failures_total", "perigee_broker_events_total")
}

func retentionWorks(p *Picture, f *Finding) {
	each(p, f, func(at string, m Metrics) {
		seconds, failing := m.value("perigee_retention_failing_seconds")
		if !failing {
			return
		}
		const do = "look at the warnings about retention in the log of the broker: they name the cause; if it lacks space see disk-space"
		judge := f.warn
		if seconds >= retentionLong {
			judge = f.fail
		}
		judge(do, "%s has not been able to delete old messages for %s, its log grows", at, time.Duration(seconds)*time.Second)
	}, "perigee_retention_steps_total")
}

func checkpoints(p *Picture, f *Finding) {
	each(p, f, func(at string, m Metrics) {
		if n, _ := m.value("perigee_checkpoint_failures_total"); n > 0 {
			f.warn("look at the log of the broker, and at the space and health of its disk", "%s could not save %.0f checkpoints since its start", at, n)
		}
		if behind, _ := m.value("perigee_checkpoint_behind_bytes"); behind > checkpointFar {
			f.warn("a start after a crash reads all of it: see why checkpoints are late, lower --checkpoint-bytes", "%s has %.1f GiB of log behind its newest checkpoint", at, behind/(1<<30))
		}
	}, "perigee_checkpoint_failures_total")
}

func subscriptions(p *Picture, f *Finding) {
	each(p, f, func(at string, m Metrics) {
		for _, s := range m["perigee_proxy_mixed_subscriptions"] {
			f.warn("let all consumers of a group subscribe to the same topics with the same filters, or use groups of their own", "push consumers of group %s at %s subscribe to different things", s.Labels["consumer_group"], at)
		}
	}, "perigee_proxy_clients")
}

func messageTypes(p *Picture, f *Finding) {
	each(p, f, func(at string, m Metrics) {
		if n := m.with("perigee_proxy_requests_total", "code", "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"); n > 0 {
			f.warn("create the topic with the type that is sent (`perigee topic create --type`), or send what it takes; the producer's log names the topic",
				"%s has refused %.0f sends since its start because the topic takes another type", at, n)
		}
	}, "perigee_proxy_clients")
}

func delayed(p *Picture, f *Finding) {
	each(p, f, func(at string, m Metrics) {
		if ms, _ := m.value("perigee_delay_overdue_milliseconds"); ms > overdueMS {
			f.warn("see disk-space and flush-time: what the broker delivers by itself waits when it cannot write", "delayed messages at %s are %s late", at, time.Duration(ms)*time.Millisecond)
		}
	}, "perigee_delay_overdue_milliseconds")
}

func duplicateWindow(p *Picture, f *Finding) {
	each(p, f, func(at string, m Metrics) {
		set, known := m.value("perigee_duplicate_window_set_milliseconds")
		real, _ := m.value("perigee_duplicate_window_milliseconds")
		if known && real < set {
			f.warn("raise --duplicate-memory, or set a shorter --duplicate-window", "%s finds messages that are sent again for %s, not for the %s that are set",
				at, time.Duration(real)*time.Millisecond, time.Duration(set)*time.Millisecond)
		}
	}, "perigee_duplicate_window_milliseconds")
}

func descriptors(p *Picture, f *Finding) {
	each(p, f, func(at string, m Metrics) {
		most, _ := m.value("process_max_fds")
		used, _ := m.value("process_open_fds")
		const do = "raise the limit of file descriptors (LimitNOFILE of systemd, ulimit -n): each connection needs one"
		switch {
		case used > descriptorsUsed*most:
			f.fail(do, "%s uses %.0f of %.0f file descriptors", at, used, most)
		case most < descriptorsFew:
			f.warn(do, "%s may open %.0f files and connections only", at, most)
		}
	}, "process_max_fds")
}

func memory(p *Picture, f *Finding) {
	each(p, f, func(at string, m Metrics) {
		const do = "give the process more memory (--memory-limit), or lower its limits: near the limit it refuses new work"
		limit, live := m.with("perigee_memory_bytes", "kind", "limit"), m.with("perigee_memory_bytes", "kind", "live")
		if limit == 0 { // a controller has no limit of its own
			limit, _ = m.value("go_gc_gomemlimit_bytes")
			live, _ = m.value("process_resident_memory_bytes")
		}
		if limit = cmp.Or(limit, 1<<62); live > memoryUsed*limit {
			f.warn(do, "%s uses %.0f MiB of %.0f MiB", at, live/(1<<20), limit/(1<<20))
		}
		if n, _ := m.value("perigee_memory_refused_total"); n > 0 {
			f.warn(do, "%s has refused new work %.0f times since its start because memory was nearly used up", at, n)
		}
	}, "process_resident_memory_bytes")
}
