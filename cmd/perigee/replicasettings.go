package main

import (
	"time"

	"github.com/perigee-mq/perigee/broker"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/cfg"
)

// replicaSettings are those of a broker as one of several replicas.
type replicaSettings struct {
	MinISR  int    `koanf:"min-isr" help:"if this broker founds its group: copies that there must be before anything is acknowledged; 0: 1, and 2 as soon as three replicas are in sync"`
	Mode    string `koanf:"mode" help:"if this broker founds its group: durable (a copy counts when it is on the disk) or memory (when it is written)"`
	Learner bool   `koanf:"learner" help:"follow only: never lead, and never count for what is acknowledged"`

	ReplicaBehind  time.Duration `koanf:"replica-behind" help:"a replica in sync that was not caught up for so long counts no more"`
	ReplicaSilent  time.Duration `koanf:"replica-silent" help:"one that acknowledged nothing for so long, though there was something"`
	ReplicaGone    time.Duration `koanf:"replica-gone" help:"one whose stream broke so long ago"`
	ReplicaRejoin  time.Duration `koanf:"replica-rejoin" help:"a replica counts again when it was caught up for so long"`
	ReplicaBeat    time.Duration `koanf:"replica-beat" help:"how often a master that has nothing to send gives a sign of life to its followers"`
	ReplicaSilence time.Duration `koanf:"replica-silence" help:"a stream between replicas on which nothing came for so long is opened anew"`
	ReplicaSkew    time.Duration `koanf:"replica-skew" help:"how far the wall clocks of the replicas may differ: a replica that leads without having heard the clock of the master before lets leases last longer by so much"`
	ReplicaBatch   cfg.Bytes     `koanf:"replica-batch" help:"records of the log that are sent to a follower at once"`
	ReplicaWindow  cfg.Bytes     `koanf:"replica-window" help:"records of the log that are under way to a follower"`
}

func defaultReplica() replicaSettings {
	return replicaSettings{
		Mode: "durable", ReplicaBehind: 10 * time.Second, ReplicaSilent: 3 * time.Second, ReplicaGone: time.Second, ReplicaRejoin: 2 * time.Second,
		ReplicaBeat: 200 * time.Millisecond, ReplicaSilence: 3 * time.Second, ReplicaSkew: time.Second, ReplicaBatch: 512 << 10, ReplicaWindow: 4 << 20,
	}
}

// replicaWindowMost is bounded by the flow control of the stream.
const replicaWindowMost = 6 << 20

func (s replicaSettings) check() error {
	switch {
	case s.Mode != "durable" && s.Mode != "memory":
		return usageError("--mode %q: use durable or memory", s.Mode)
	case s.MinISR < 0:
		return usageError("--min-isr %d: use 0 or more", s.MinISR)
	case min(s.ReplicaBehind, s.ReplicaSilent, s.ReplicaGone, s.ReplicaRejoin, s.ReplicaBeat, s.ReplicaSilence, s.ReplicaSkew) < 10*time.Millisecond:
		return usageError("times of replicas have to be 10ms or more")
	case s.ReplicaSilence < 2*s.ReplicaBeat:
		return usageError("--replica-silence %v: use at least twice --replica-beat", s.ReplicaSilence)
	case s.ReplicaBatch < 4<<10 || s.ReplicaBatch > s.ReplicaWindow || s.ReplicaWindow > replicaWindowMost:
		return usageError("--replica-batch %s and --replica-window %s: use 4KiB to 6MiB, the window not below the batch", s.ReplicaBatch.String(), s.ReplicaWindow.String())
	}
	return nil
}

func (s replicaSettings) apply(o *broker.Options) {
	o.MinISR, o.Learner = s.MinISR, s.Learner
	if s.Mode == "memory" {
		o.Mode = quorum.Memory
	}
	o.Replication = broker.Replication{
		Times:      quorum.Times{Behind: s.ReplicaBehind, Silent: s.ReplicaSilent, Gone: s.ReplicaGone, Rejoin: s.ReplicaRejoin},
		BatchBytes: int(s.ReplicaBatch), WindowBytes: int64(s.ReplicaWindow), Beat: s.ReplicaBeat, Silence: s.ReplicaSilence, Skew: s.ReplicaSkew,
	}
}
