package archtest

import (
	"path"
	"slices"
)

// arrow says what the packages within a folder may import of ours, apart from
// each other. The first arrow whose folder fits a package counts.
type arrow struct {
	from string
	to   []string // folders
	why  string
	solo bool // the packages within from may not import each other freely
}

var arrows = []arrow{
	{
		from: "internal/simtest", to: []string{"proxy", "broker", "controller", "store", "api", "internal"},
		why: "it runs a whole cluster in one process",
	},
	{
		from: "internal/startbench", to: []string{"broker", "controller", "store", "api", "internal"},
		why: "it fills a data directory faster than clients could",
	},
	{
		from: "internal/costs", to: []string{"broker", "store", "internal"},
		why: "it counts what the store and the engine do for a message",
	},
	{
		from: "internal/model", to: []string{"internal/brokerapi"}, solo: true,
		why: "the model of the broker shares nothing with what it judges",
	},
	{
		from: "hack", to: nil,
		why: "tools of the build know nothing of ours",
	},
	{
		from: "internal/sql92", to: nil, solo: true,
		why: "the filter language knows text and values and nothing of messages",
	},
	{
		from: "internal/doctor", to: nil, solo: true,
		why: "the doctor judges what was collected and knows nothing of how",
	},
	{
		from: "internal", to: []string{"api"},
		why: "the tiers share internal, so it must know none of them",
	},
	{
		from: "api", to: nil,
		why: "it is generated from the .proto files and knows nothing else of ours",
	},
	{
		from: "store/index", to: []string{"store/record", "internal/mqerr", "internal/vfs"}, solo: true,
		why: "the index is a view of records in files of its own and knows no other view",
	},
	{
		from: "store/dedup", to: []string{"store/record", "internal/mqerr", "internal/vfs"}, solo: true,
		why: "the duplicate window is a view of records in files of its own and knows no other view",
	},
	{
		from: "store/replica", to: []string{"store/record", "internal/mqerr"}, solo: true,
		why: "where the epochs of a log lie is a pure function of its records",
	},
	{
		from: "store", to: []string{"internal/mqerr", "internal/vfs"},
		why: "the store knows files and nothing of who asks for them",
	},
	{
		from: "broker/pop", to: []string{"store/record", "internal/mqerr"}, solo: true,
		why: "the in-flight table is a pure function of records and given times",
	},
	{
		from: "broker/trace", to: []string{"store/record", "internal/mqerr"}, solo: true,
		why: "the life of a message is a pure function of records",
	},
	{
		from: "broker/lite", to: []string{"store/record", "internal/mqerr"}, solo: true,
		why: "the table of lite topics is a pure function of records",
	},
	{
		from: "broker/txn", to: []string{"store/record", "internal/mqerr"}, solo: true,
		why: "the transaction table is a pure function of records and given times",
	},
	{
		from: "broker/timer", to: []string{"store/record", "internal/mqerr"}, solo: true,
		why: "the table of timers is a pure function of records and given times",
	},
	{
		from: "broker/offset", to: []string{"store/record", "internal/mqerr"}, solo: true,
		why: "the table of positions is a pure function of records",
	},
	{
		from: "broker/space", to: []string{"internal/mqerr", "internal/vfs"}, solo: true,
		why: "who is refused when the disk gets full is a pure function of what the disk looks like",
	},
	{
		from: "broker/redriven", to: []string{"store/record", "internal/mqerr"}, solo: true,
		why: "the table of dead letters that were moved on is a pure function of records",
	},
	{
		from: "broker/carry", to: []string{"store/record", "store/queue", "internal/mqerr"}, solo: true,
		why: "what retention left of a log is a pure function of records; it keeps queue entries",
	},
	{
		from: "broker/retain", to: []string{"store/record", "internal/mqerr"}, solo: true,
		why: "the policy of retention is a pure function of sizes and times",
	},
	{
		from: "broker/repl/quorum", to: []string{"store/record", "internal/mqerr"}, solo: true,
		why: "what is acknowledged is a pure function of what a master heard, and when",
	},
	{
		from: "broker/repl/follower", to: []string{"broker/repl/quorum", "store/record", "store/replica", "internal/mqerr"}, solo: true,
		why: "what a follower obeys is a pure function of what it heard",
	},
	{
		from: "broker/filter", to: []string{"store/record", "internal/mqerr", "internal/sql92"}, solo: true,
		why: "a filter judges one message and knows nothing of who asks",
	},
	{
		from: "controller/state", to: []string{"internal/mqerr"}, solo: true,
		why: "the state machine is a pure function of commands, so that every replica computes the same",
	},
	{
		from: "controller/election", to: []string{"controller/state", "internal/mqerr"}, solo: true,
		why: "who is elected follows from what is known, and from nothing else",
	},
	{
		from: "internal/lease", to: nil, solo: true,
		why: "both halves of a lease are arithmetic on times that they are given",
	},
	{
		from: "proxy", to: []string{"api", "internal"},
		why: "the proxy meets brokers through internal/brokerapi and everything else on the wire",
	},
	{
		from: "broker", to: []string{"store", "api", "internal"},
		why: "the broker owns a store and meets the other tiers on the wire",
	},
	{
		from: "controller", to: []string{"api", "internal"},
		why: "the controller meets the other tiers on the wire",
	},
	{
		from: "cmd", to: []string{"proxy", "broker", "controller", "store", "api", "internal"},
		why: "a command wires any tiers together",
	},
	{
		from: "interop", to: nil,
		why: "interop programs use the official clients and nothing of ours",
	},
}

func arrowFor(pkg string) (arrow, bool) {
	i := slices.IndexFunc(arrows, func(a arrow) bool { return within(pkg, a.from) })
	if i < 0 {
		return arrow{}, false
	}
	return arrows[i], true
}

func arrowAllowed(pkg, imported string) bool {
	a, ok := arrowFor(pkg)
	if !ok {
		return false
	}
	if within(imported, "internal/simtest") && !within(pkg, "internal/simtest") {
		return false // nothing may need the simulation
	}
	if !a.solo && within(imported, a.from) {
		return true
	}
	return slices.ContainsFunc(a.to, func(folder string) bool { return within(imported, folder) })
}

func arrowReason(pkg string) string {
	if a, ok := arrowFor(pkg); ok {
		return a.why
	}
	return "no arrow says what this folder may import"
}

// tiers are the folders in which few packages may know the wire.
var tiers = []string{"proxy", "broker", "controller", "store"}

func isTier(pkg string) bool {
	return slices.ContainsFunc(tiers, func(tier string) bool { return within(pkg, tier) })
}

// edge says which packages of the tiers may import something of the wire.
type edge struct {
	imported string   // a folder, as a whole import path
	names    []string // last elements of packages that may
	packages []string // packages that may
	why      string
}

var edges = []edge{
	{
		imported: Module + "/api",
		names:    []string{"server", "ctl", "brokerconn", "repl", "raft"},
		packages: []string{
			"proxy", "broker", "controller", // the roots wire servers and clients
			"proxy/edge",  // binds the public service to its transport
			"proxy/admin", // handlers of the admin service
		},
		why: "inside a tier only its edge knows messages of the wire; others have small types of their own",
	},
	{
		imported: "google.golang.org/grpc",
		names:    []string{"ctl", "brokerconn", "repl", "raft"},
		packages: []string{
			"proxy", "broker", "controller",
			"proxy/edge", "proxy/admin",
			"broker/server", "controller/server",
			// Not proxy/server: its handlers stand behind proxy/call, so that the
			// public service can get another transport.
		},
		why: "inside a tier only its edge knows gRPC; errors are internal/mqerr elsewhere",
	},
}

func (e edge) is(imported string) bool {
	return within(imported, e.imported)
}

func (e edge) allowed(pkg string) bool {
	return slices.Contains(e.names, path.Base(pkg)) || slices.Contains(e.packages, pkg)
}

// pure are packages without clock, file, lock or goroutine: the same input must
// give the same state on every replica and in every replay.
var pure = map[string]string{
	"broker/pop":           "replaying the log must give the same in-flight table",
	"broker/lite":          "replaying the log must give the same lite topics",
	"broker/txn":           "replaying the log must give the same transaction table",
	"broker/trace":         "the same part of the log must tell the same, whoever reads it",
	"broker/timer":         "replaying the log must give the same timers",
	"broker/offset":        "replaying the log must give the same positions",
	"broker/redriven":      "replaying the log must give the same redriven dead letters",
	"broker/space":         "the same disk must refuse the same, whenever it is looked at",
	"broker/repl/quorum":   "what is acknowledged must follow from what was heard, in a test as in a cluster",
	"broker/repl/follower": "what a follower obeys must follow from what it heard, in a test as in a cluster",
	"broker/topic":         "replaying the log must give the same topics",
	"broker/group":         "replaying the log must give the same groups",
	"internal/doctor":      "the same picture must give the same findings",
	"internal/sql92":       "an expression must judge a message the same way at any time",
	"controller/state":     "every controller must compute the same state",
	"store/record":         "a record is bytes and nothing else",
	"store/replica":        "two logs must be found the same by whoever compares them",
}

func forbiddenToPure(imported string) bool {
	return slices.Contains([]string{"os", "net", "net/http", "sync", "sync/atomic", "context", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "syscall"}, imported)
}

// loose are the packages whose tests need not look for goroutines that are left, with the reason.
var loose = map[string]string{}

// pauses are the packages that may use time.Sleep, with the reason.
var pauses = map[string]string{}
