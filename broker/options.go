package broker

import (
	"log/slog"
	"net"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"

	"github.com/perigee-mq/perigee/broker/clock"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/obs"
	"github.com/perigee-mq/perigee/internal/vfs"
)

// Options configures a Broker. The zero value of a field means its default.
type Options struct {
	// DataDir holds everything the broker keeps; it is made if missing. Required.
	DataDir string
	// Group is the name of the broker group, also the public broker name. Required.
	Group string
	// ID is the replica's number within the group, from 1. Default 1.
	ID uint32
	// Listener accepts links of proxies and streams of other replicas; nil serves none: proxies attach in the same
	// process, and the broker is alone in its group.
	Listener net.Listener
	// Link configures the links of proxies, LinksMax bounds them. Defaults: those of link.Options, 1024.
	Link     link.Options
	LinksMax int
	// PeersMax bounds the connections of proxies and of replicas that follow. Default 4096.
	PeersMax int
	// Advertise is the address that proxies and other replicas use, host:port. Default: the listener's.
	Advertise string
	// Controller is a connection to the controller. Required.
	Controller grpc.ClientConnInterface
	// MinISR and Mode count if this replica founds the group: how many copies there must be before anything is
	// acknowledged (0: as the controller sees fit), and what an ack stands for.
	MinISR int
	Mode   quorum.Mode
	// Learner makes a replica that only follows: it never leads and never counts for what is acknowledged.
	Learner bool
	// Replication configures the streams between replicas.
	Replication Replication
	// SegmentBytes is the size of a commit-log file. Default 1 GiB.
	SegmentBytes int64
	// DropRate is how many bytes of deleted commit-log files are given back to the disk in a second. Default 256 MiB.
	DropRate int64
	// DuplicateWindow and DuplicateBytes are those of store.Options.
	DuplicateWindow time.Duration
	DuplicateBytes  int64
	// SkipDamage makes a start go on behind damaged and missing records of the log instead of refusing them.
	SkipDamage bool
	// DrainTimeout bounds how long a stop waits for requests under way. Default 10 s.
	DrainTimeout time.Duration
	// Engine holds the engine's options; Store is filled in.
	Engine engine.Options
	// FS is the file system. Default: the machine's.
	FS vfs.FS
	// Step is called at the steps of promotion and demotion, by tests: it may block, and the broker waits.
	Step func(Step)
	// Boot is the boot-time clock that leases from the controller run on. Default: that of this machine.
	Boot func() time.Duration
	// Metrics is where instruments are registered; nil: nowhere.
	Metrics metric.Meter
	// MetricsLimit bounds the topics, and the pairs of a topic and a group, that metrics show. Default 10,000,
	// at most obs.SeriesMax.
	MetricsLimit int
	// HTTPAddr is where this process tells of itself, host:port, for the status of the cluster; empty: nowhere.
	HTTPAddr string
	// Release is this program's version, for messages to people.
	Release string
	// Log receives what an operator acts on. Default: discard.
	Log *slog.Logger
}

// Replication configures the streams between the replicas of a group. The zero value of a field means the default of
// repl.LeaderOptions and repl.FollowerOptions.
type Replication struct {
	// Times are a master's patience with followers.
	Times quorum.Times
	// BatchBytes is how much of the log is sent at once, WindowBytes how much is under way to a follower.
	BatchBytes  int
	WindowBytes int64
	// Beat is how often a sign of life is sent, Silence how long none may come.
	Beat, Silence time.Duration
	// Skew bounds how far the wall clocks of the replicas differ. It counts when a replica leads that has not heard the
	// clock of the master before: leases then end later by so much. Default 1 s.
	Skew time.Duration
	// DialOptions are added to those of a follower's connection.
	DialOptions []grpc.DialOption
}

func (o Options) withDefaults() Options {
	if o.ID == 0 {
		o.ID = 1
	}
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.MetricsLimit <= 0 {
		o.MetricsLimit = 10_000
	}
	o.MetricsLimit = min(o.MetricsLimit, obs.SeriesMax)
	if o.Replication.Skew == 0 {
		o.Replication.Skew = time.Second
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Advertise == "" && o.Listener != nil {
		o.Advertise = o.Listener.Addr().String()
	}
	if o.Engine.Clock == nil {
		o.Engine.Clock = clock.New()
	}
	if o.Engine.Log == nil {
		o.Engine.Log = o.Log
	}
	return o
}
